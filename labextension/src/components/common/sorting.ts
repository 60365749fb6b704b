/** Sorting of table rows. */

export type SortValue = string | number | null | undefined;

export interface Sort {
  key: string;
  descending: boolean;
}

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

/** Rows in order of a value, stably; what has no finite value (NaN, ±Infinity) goes last in both directions. */
export function sortRows<R>(rows: readonly R[], value: (row: R) => SortValue, descending: boolean): R[] {
  const keyed = rows.map(row => ({ row, by: value(row) }));
  const sign = descending ? -1 : 1;
  keyed.sort((a, b) => {
    const gaps = Number(absent(a.by)) - Number(absent(b.by));
    return gaps || absent(a.by) ? gaps : sign * compare(a.by!, b.by!);
  });
  return keyed.map(item => item.row);
}

function absent(value: SortValue): boolean {
  return value === null || value === undefined || value === '' || (typeof value === 'number' && !Number.isFinite(value));
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return collator.compare(String(a), String(b));
}
