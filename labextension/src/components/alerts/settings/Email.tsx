/** The user's address for alerts: set, confirmed by a code, removed. */

import { FormEvent, ReactElement, useId, useState } from 'react';

import { asApiError, type ApiError } from '../../../state/api';
import { useApp, useStore } from '../../../state/context';
import type { EmailView } from '../../../state/wire';
import { Ago } from '../../admin/parts';
import { ActionButton, ErrorBanner, formatTime, Notice } from '../../common';
import { useAct } from '../../common/loading/load';
import { nameText } from '../../common/text';
import { readOnly } from '../../view/actions';

export function Email({ of, reload }: { of: EmailView; reload: () => void }): ReactElement {
  const { api, confirm, notify } = useApp();
  const me = useStore(s => s.me);
  const act = useAct();
  const why = readOnly(me);
  const none = !of.address && !of.pending;
  const remove = async (): Promise<void> => {
    const question = { title: 'Send no alerts by e-mail any more?', body: 'The address is forgotten, and what waits to be sent. Rules that told by e-mail alone tell the bell again.', yes: 'Remove' };
    if (!(await confirm(question)) || !(await act(() => api.del('alerts/email')))) return;
    notify('No alerts are sent by e-mail any more.', 'good');
    reload();
  };
  const code = (code: string): Promise<EmailView> => api.post<EmailView>('alerts/email/confirm', { code });
  const address = (address: string): Promise<EmailView> => api.replace<EmailView>('alerts/email', { address });
  return (
    <>
      {!of.offered && <Notice><span>This cluster sends no e-mail. An operator can name a mail server in <code>c.DetHub.smtp</code>.</span></Notice>}
      {of.address && (
        <p className="det-told-line">
          Alerts of rules that tell by e-mail go to <b><bdi>{nameText(of.address, 260)}</bdi></b>
          {of.set_by !== '' && of.set_by !== me?.name && <>, which {nameText(of.set_by, 60)} has set</>}.{' '}
          <span className="det-soft">Sent: {of.delivered}{of.delivered_at !== null && <>, the last one <Ago time={of.delivered_at} /></>}. Waiting: {of.waiting}. Given up: {of.failed}.</span>
        </p>
      )}
      {of.error && <Notice tone="bad"><span>The last attempt failed: {nameText(of.error, 600)}</span></Notice>}
      {of.pending && (
        <p className="det-told-line">
          {of.code_until === null ? 'A code is about to be sent to ' : 'A code was sent to '}<b><bdi>{nameText(of.pending, 260)}</bdi></b>
          {of.code_until !== null && ` and is valid until ${formatTime(of.code_until)}`}. Until it is entered, alerts do not go there.
        </p>
      )}
      {of.offered && why === null && (
        <>
          {of.pending && <OneField label="The code that came" holder="xxxx-xxxx-xxxx" yes="Confirm" send={code} done="The address is confirmed." reload={reload} />}
          <OneField label={none ? 'Your address' : 'Another address'} holder="NAME@DOMAIN" yes="Send a code" send={address} done="A code is sent to the address." reload={reload} />
        </>
      )}
      {!none && <div><ActionButton label="Remove" why={why} onRun={remove}>Remove …<span className="det-hidden"> the address</span></ActionButton></div>}
    </>
  );
}

function OneField({ label, holder, yes, send, done, reload }: {
  label: string; holder: string; yes: string; send: (text: string) => Promise<EmailView>; done: string; reload: () => void;
}): ReactElement {
  const { notify } = useApp();
  const id = useId();
  const [text, setText] = useState('');
  const [error, setError] = useState<ApiError | null>(null);
  const run = async (event?: FormEvent): Promise<void> => {
    event?.preventDefault();
    if (!text.trim()) return;
    setError(null);
    try {
      await send(text.trim());
      setText('');
      notify(done, 'good');
      reload();
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <form className="det-adm-filters" aria-label={yes} onSubmit={event => void run(event)}>
      <label htmlFor={id}>{label}</label>
      <input id={id} className="det-input" placeholder={holder} autoComplete="off" maxLength={260} value={text} aria-invalid={error ? true : undefined} onChange={e => setText(e.target.value)} />
      <ActionButton label={yes} why={text.trim() ? null : 'Fill in the field.'} onRun={() => run()} />
      <button type="submit" hidden />
      {error && <ErrorBanner error={error} />}
    </form>
  );
}
