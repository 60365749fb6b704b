/**
 * Where a box of lines stands: at its newest line, which it keeps, or where its reader has put it.
 *
 * A scroll event does not say who scrolled. The browser sends the same one where the box or what is in it has got another
 * size (the window, the zoom, text that wraps, a filter), and where the page itself has scrolled.
 */

import { useCallback, useEffect, useLayoutEffect, useRef, type RefObject } from 'react';

import type { LogRow } from './filter';

/** So many pixels from its end a box counts as being there. */
const NEAR = 27;
/** A position is read with less precision than it was set. */
const ROUNDING = 2;

/** The line at the upper edge of a box, and the index of its row. */
export interface ReadPlace {
  line: number;
  index: number;
  /** Pixels of it above the edge. */
  above: number;
}

interface Extent {
  top: number;
  content: number;
  box: number;
}

interface KeptEnd {
  /** Go to the end if it is kept there; what has changed until now is nobody's scrolling. */
  settle: () => void;
  /** Take note of a position that the page itself has set. */
  note: () => void;
  onScroll: () => void;
}

/**
 * Keep a box at its end while `follow` is on; `onFollow` is told where its reader leaves the end or comes back to it, and
 * `onSized` where the box has got another size.
 */
export function useKeptEnd(box: RefObject<HTMLDivElement>, follow: boolean, onFollow: (on: boolean) => void, onSized?: () => void): KeptEnd {
  const seen = useRef<Extent | null>(null);
  // The reader's scrolling counts at once: lines that come before the page is drawn again must not undo it.
  const kept = useRef(follow);
  useLayoutEffect(() => { kept.current = follow; }, [follow]);
  const note = useCallback((): void => { seen.current = extentOf(box.current!); }, [box]);
  const settle = useCallback((): void => {
    const el = box.current!;
    if (kept.current) el.scrollTop = el.scrollHeight;
    note();
  }, [box, note]);
  const told = useRef(onSized);
  useLayoutEffect(() => { told.current = onSized; });
  useEffect(() => {
    const sized = new ResizeObserver(() => {
      settle();
      told.current?.();
    });
    sized.observe(box.current!);
    return () => sized.disconnect();
  }, [box, settle]);
  const onScroll = (): void => {
    const [now, before] = [extentOf(box.current!), seen.current];
    if (!before || now.content !== before.content || now.box !== before.box) return settle();
    if (Math.abs(now.top - before.top) < ROUNDING) return;
    seen.current = now;
    const end = now.content - now.top - now.box < NEAR;
    if (!end) kept.current = false;
    if (end !== follow) onFollow(end);
  };
  return { settle, note, onScroll };
}

function extentOf(el: HTMLElement): Extent {
  return { top: el.scrollTop, content: el.scrollHeight, box: el.clientHeight };
}

/** The line at the upper edge of a box, given the index of the row there; null if there is none. */
export function readPlace(rows: readonly LogRow[], at: number): ReadPlace | null {
  for (let index = Math.max(0, at); index < rows.length; index += 1) {
    const row = rows[index]!;
    if (!('mark' in row)) return { line: row.id, index, above: 0 };
  }
  return null;
}

/** The index of the row of a line, or where it is left out of the first one after it; of the last one if there is none. */
export function rowOf(rows: readonly LogRow[], line: number): number {
  const index = rows.findIndex(row => !('mark' in row) && row.id >= line);
  return index < 0 ? rows.length - 1 : index;
}
