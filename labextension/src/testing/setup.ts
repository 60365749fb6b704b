/** What jsdom lacks. */

import { cleanup, configure } from '@testing-library/react';
import { afterEach } from 'vitest';

class NoObserver {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

globalThis.ResizeObserver ??= NoObserver as never;
globalThis.IntersectionObserver ??= NoObserver as never;
if (typeof window !== 'undefined') { // a test may ask for plain node
  window.matchMedia ??= (query: string) =>
    ({ matches: false, media: query, addEventListener() {}, removeEventListener() {} }) as never;
  // JupyterLab's widgets derive classes from it as they are loaded.
  window.requestIdleCallback ??= ((then: () => void) => window.setTimeout(then)) as never;
  window.DragEvent ??= class extends MouseEvent {} as never;
  HTMLCanvasElement.prototype.getContext = (() => null) as never;
}

// What is waited for comes, however busy the machine is: how fast things are is measured elsewhere.
configure({ asyncUtilTimeout: 15_000 });
afterEach(cleanup);
