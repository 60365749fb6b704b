/** Tabs by the ARIA pattern: arrow keys move, only the chosen panel exists. */

import { KeyboardEvent, ReactElement, ReactNode, useEffect, useId, useRef } from 'react';

export interface Tab {
  key: string;
  label: string;
  /** Said beside the label, such as a number. */
  note?: string | number | null;
}

export function Tabs({ label, tabs, chosen, onChoose, children }: {
  label: string;
  tabs: readonly Tab[];
  chosen: string;
  onChoose: (key: string) => void;
  children: ReactNode;
}): ReactElement {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // On a narrow page the row of tabs scrolls.
    const tab = list.current?.querySelector<HTMLElement>('[aria-selected=true]');
    if (tab?.scrollIntoView && list.current!.scrollWidth > list.current!.clientWidth) tab.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [chosen]);
  const onKey = (event: KeyboardEvent): void => {
    const at = tabs.findIndex(tab => tab.key === chosen);
    const moves: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length]!;
    onChoose(next.key);
    list.current?.querySelector<HTMLElement>(`[data-key="${next.key}"]`)?.focus();
  };
  return (
    <>
      <div ref={list} className="det-tabs" role="tablist" aria-label={label} onKeyDown={onKey}>
        {tabs.map(tab => (
          <button
            key={tab.key} type="button" role="tab" id={`${id}-${tab.key}`} data-key={tab.key} className="det-tab"
            aria-selected={tab.key === chosen} aria-controls={tab.key === chosen ? `${id}-panel` : undefined}
            tabIndex={tab.key === chosen ? 0 : -1} onClick={() => onChoose(tab.key)}
          >
            {tab.label}
            {tab.note !== undefined && tab.note !== null && <span className="det-tab-note">{tab.note}</span>}
          </button>
        ))}
      </div>
      <div className="det-tab-panel" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${chosen}`}>
        {children}
      </div>
    </>
  );
}
