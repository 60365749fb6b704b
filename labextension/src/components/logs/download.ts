/** Output as a text file: all lines that fit, page by page, put together here. */

import type { Api } from '../../state/api';
import type { LogLine } from '../../state/wire';
import { formatTime } from '../common';
import type { Zone } from '../common/zone';
import { params } from './feed';
import type { LogFilter } from './filter';

const PAGE = 10_000;
/** Characters after which the file ends, with a line that says so: a browser holds them all. */
const MOST_CHARS = 200_000_000;

/** The text of all lines that fit. `onCount` is told how many there are so far. */
export async function wholeText(
  api: Api, base: string, filter: LogFilter, zone: Zone | null, signal: AbortSignal, onCount: (lines: number) => void
): Promise<Blob> {
  const parts: string[] = [];
  let [after, chars, count] = [0, 0, 0];
  for (;;) {
    const page = await api.get<{ items: LogLine[]; next?: number | null }>(`${base}?after=${after}&limit=${PAGE}${params({ ...filter, context: 0 })}`, signal);
    signal.throwIfAborted();
    const text = page.items.map(line => `${head(line, zone)}${line.text}\n`).join('');
    parts.push(text);
    chars += text.length;
    onCount(count += page.items.length);
    const next = page.next ?? null;
    if (next === null || next <= after) break;
    if (chars > MOST_CHARS) {
      parts.push(`[detlab: the file ends here, after ${count} lines; the command line has all: det ${base.replace(/^(trial|task)s\/(.+)\/logs$/, '$1 logs $2')}]\n`);
      break;
    }
    after = next;
  }
  return new Blob(parts, { type: 'text/plain;charset=utf-8' });
}

function head(line: LogLine, zone: Zone | null): string {
  return `${zone === null ? '' : `${formatTime(line.time, zone)} `}${line.rank === null ? '' : `[${line.rank}] `}`;
}

/** Have the browser save it. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
