/** What jsdom lacks. */

import { cleanup } from '@testing-library/react';
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

afterEach(cleanup);
