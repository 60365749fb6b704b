/** An enrolment token, shown once, with what to do with it. */

import { useRef, useState, type ReactElement } from 'react';

import { useApp } from '../../state/context';
import { ActionButton, formatTime } from '../common';
import { Dialog } from './Dialog';
import { useAct } from '../common/load';

const LIVES = [
  { seconds: 900, word: '15 minutes' },
  { seconds: 3600, word: 'an hour' },
  { seconds: 86_400, word: 'a day' },
  { seconds: 7 * 86_400, word: 'a week' }
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
            A node joins with an enrolment token and gets a key of its own for it. The token is shown once; whoever has it can
            offer a machine to this cluster until it expires.
          </p>
          <label className="det-adm-field">
            It works for
            <select className="det-input" value={ttl} onChange={event => setTtl(Number(event.target.value))}>
              {LIVES.map(({ seconds, word }) => (
                <option key={seconds} value={seconds}>
                  {word}
                </option>
              ))}
            </select>
          </label>
          <div className="det-dialog-buttons">
            <ActionButton label="Cancel" onRun={onClose} />
            <ActionButton label="Make a token" primary onRun={make} />
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
        On the new node, put this token into a file <code>enrolment-token</code> that only you can read. It is shown this once and
        works until {formatTime(made.expires_at)}.
      </p>
      <Copied label="Token" text={made.token} />
      <p>Then start the agent there; it appears here by itself.</p>
      <Copied label="Command" text={command} />
      <div className="det-dialog-buttons">
        <ActionButton label="Done" primary onRun={onClose} />
      </div>
    </>
  );
}

/** Text to take along, selected by one click. */
function Copied({ label, text }: { label: string; text: string }): ReactElement {
  const field = useRef<HTMLTextAreaElement>(null);
  const [word, setWord] = useState('Copy');
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setWord('Copied');
    } catch {
      field.current?.select(); // the clipboard needs https; then Ctrl-C does it
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
