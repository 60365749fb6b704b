/** A bar for a share of 0 to 1. */

import type { ReactElement } from 'react';

import { formatPercent } from './format';

export function Progress({ value, label, tone = 'running' }: {
  value: number; label: string; tone?: 'running' | 'good' | 'bad' | 'off' | 'paused' | 'waiting' | 'warn';
}): ReactElement {
  const share = Math.min(Math.max(value, 0), 1);
  return (
    <div
      className="det-progress" data-tone={tone} role="progressbar" aria-label={label} aria-valuemin={0}
      aria-valuemax={100} aria-valuenow={Math.floor(share * 100)} title={`${label}: ${formatPercent(share)}`}
    >
      <div className="det-progress-fill" style={{ transform: `scaleX(${share})` }} />
    </div>
  );
}
