/** The common parts of all views. */

export { ActionButton, Menu, type Action } from './Action';
export { Coded } from './Coded';
export { ConfirmDialog } from './ConfirmDialog';
export * from './format';
export { useGrowing, useLoaded, useNow, useVisible, type Loaded } from './loading/hooks';
export { LostHint, reasonOf, TryingAgain, useLost } from './Lost';
export { EmptyState, ErrorBanner, Loading, Notice } from './notices';
export { Progress } from './Progress';
export { sortRows, type Sort, type SortValue } from './sorting';
export { StateBadge } from './StateBadge';
export { Table, type Column, type TableProps } from './Table';
export { Toggle } from './Toggle';
export { useFeed } from './loading/useFeed';
