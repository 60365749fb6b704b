/** Create an enrolment token and show it once, with the command that uses it. */

import { useRef, useState, type ReactElement } from 'react';

import { useApp } from '../../state/context';
import { ActionButton, formatTime } from '../common';
import { Dialog } from './Dialog';
import { useAct } from '../common/loading/load';

const LIFETIMES = [
  { seconds: 900, word: '15 minutes' },
  { seconds: 3600, word: '1 hour' },
  { seconds: 86_400, word: '1 day' },
  { seconds: 7 * 86_400, word: '1 week' }
];

interface Enrolment {
  token: string;
  expires_at: number;
}

export function Enrol({ onClose }: { onClose: () => void }): ReactElement {
  const { api } = useApp();
  const act = useAct();
  const [ttl, setTtl] = useState(3600);
  const [made, setMade] = useState<Enrolment | null>(null);
  const make = async (): Promise<void> => {
    await act(async () => setMade(await api.post<Enrolment>('agents/enrolments', { ttl })));
  };
  return (
    <Dialog title="Enrol a node" onClose={onClose}>
      {made ? (
        <Made made={made} onClose={onClose} />
      ) : (
        <>
          <p>
            A node joins with an enrolment token and gets its own key in exchange. The token is shown once. Anyone who has it can
            add a machine to this cluster until it expires.
          </p>
          <label className="det-adm-field">
            Valid for
            <select className="det-input" value={ttl} onChange={event => setTtl(Number(event.target.value))}>
              {LIFETIMES.map(({ seconds, word }) => (
                <option key={seconds} value={seconds}>
                  {word}
                </option>
              ))}
            </select>
          </label>
          <div className="det-dialog-buttons">
            <ActionButton label="Cancel" onRun={onClose} />
            <ActionButton label="Create token" primary onRun={make} />
          </div>
        </>
      )}
    </Dialog>
  );
}

function Made({ made, onClose }: { made: Enrolment; onClose: () => void }): ReactElement {
  const store = useApp().store.getSnapshot();
  const address = store.cluster?.url || `${window.location.origin}/services/detlab/`;
  const command = `det agent run --master ${address} --enrolment-token-file enrolment-token`;
  return (
    <>
      <p>
        Save this token on the new node in a file <code>enrolment-token</code> that only you can read. It is shown only now and
        valid until {formatTime(made.expires_at)}.
      </p>
      <Copied label="Token" text={made.token} />
      <p>Then start the agent there. The node appears here when it has connected.</p>
      <Copied label="Command" text={command} />
      <div className="det-dialog-buttons">
        <ActionButton label="Done" primary onRun={onClose} />
      </div>
    </>
  );
}

/** Text to copy, selected by one click. */
function Copied({ label, text }: { label: string; text: string }): ReactElement {
  const field = useRef<HTMLTextAreaElement>(null);
  const [word, setWord] = useState('Copy');
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setWord('Copied');
    } catch {
      field.current?.select(); // the clipboard needs https; without it, Ctrl-C works
      setWord('Press Ctrl-C');
    }
  };
  return (
    <div className="det-adm-copied">
      <textarea className="det-input det-mono" ref={field} readOnly rows={2} aria-label={label} value={text} onFocus={event => event.target.select()} />
      <ActionButton label={word} onRun={copy} />
    </div>
  );
}
