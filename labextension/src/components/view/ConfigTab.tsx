/** A resolved config as YAML. */

import { ReactElement, useMemo } from 'react';
import { stringify } from 'yaml';

import { EmptyState } from '../common';
import { visible } from '../common/text';
import { CopyButton } from '../common/CopyButton';

export function ConfigTab({ config, name }: { config: Record<string, unknown> | null; name: string }): ReactElement {
  const text = useMemo(() => (config ? yamlOf(config) : ''), [config]);
  if (!config || !Object.keys(config).length) return <EmptyState title="No config." />;
  return (
    <div className="det-text-tab">
      <div className="det-controls">
        <span className="det-soft">Resolved, with all defaults; secrets are masked.</span>
        <CopyButton text={text} label="Copy YAML" />
      </div>
      <pre className="det-code-text" tabIndex={0} aria-label={`Config of ${name}`}>{visible(text)}</pre>
    </div>
  );
}

/** A mapping as YAML in its own order; long lines are not folded. */
export function yamlOf(config: Record<string, unknown>): string {
  return stringify(config, { lineWidth: 0 });
}
