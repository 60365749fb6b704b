/** A button that stays pressed. */

import type { ReactElement } from 'react';

export function Toggle({ on, label, tip, onChange }: {
  on: boolean; label: string; tip?: string; onChange: (on: boolean) => void;
}): ReactElement {
  return (
    <button type="button" className="det-button det-toggle-button" aria-pressed={on} title={tip} onClick={() => onChange(!on)}>
      {label}
    </button>
  );
}
