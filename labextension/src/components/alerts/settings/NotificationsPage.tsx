/** What the user is told of, and how: rules, an address for e-mail, webhooks. Only the page of the Hub has it. */

import type { ReactElement } from 'react';

import { everyItem, type ApiError } from '../../../state/api';
import { useApp, useStore } from '../../../state/context';
import type { AlertRuleView, EmailView, WebhookView } from '../../../state/wire';
import { View } from '../../admin/parts';
import { ErrorBanner, Loading, useLoaded, type Loaded } from '../../common';
import { Email } from './Email';
import { Rules } from './Rules';
import { Webhooks } from './Webhooks';

export function NotificationsPage(): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me?.name ?? '');
  const rules = useLoaded('rules', signal => everyItem<AlertRuleView>(api, 'alerts/rules', 'after', signal));
  const email = useLoaded('email', signal => api.get<EmailView>('alerts/email', signal));
  // Administrators get those of everybody; here are only one's own.
  const hooks = useLoaded('webhooks', signal => everyItem<WebhookView>(api, 'webhooks', 'after', signal));
  const own = hooks.data?.filter(one => one.owner === me) ?? null;
  const both = (): void => {
    rules.reload();
    hooks.reload();
  };
  return (
    <View title="Notifications" summary="What you are told of your experiments and of others that you may read, and how. Past alerts are under the bell.">
      <section className="det-part">
        <h2>Rules</h2>
        <Asked of={rules} what="Rules" />
        {rules.data && <Rules items={rules.data} hooks={own ?? []} email={email.data} reload={both} />}
      </section>
      {email.error?.status !== 404 && (
        <section className="det-part">
          <h2>E-mail</h2>
          <Asked of={email} what="E-mail" />
          {email.data && <Email of={email.data} reload={email.reload} />}
        </section>
      )}
      <section className="det-part">
        <h2>Webhooks</h2>
        <Asked of={hooks} what="Webhooks" />
        {own && <Webhooks items={own} reload={both} />}
      </section>
    </View>
  );
}

function Asked({ of, what }: { of: Loaded<unknown> & { error: ApiError | null }; what: string }): ReactElement | null {
  if (of.error) return <ErrorBanner error={of.error} what={what} onRetry={of.reload} />;
  return of.data === null ? <Loading what={`Loading: ${what.toLowerCase()}`} /> : null;
}
