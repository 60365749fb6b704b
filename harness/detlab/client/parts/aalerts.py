"""The part of the asynchronous client for what people are told: alerts, their rules, e-mail, webhooks."""

from __future__ import annotations

from collections.abc import Collection

from detlab.client.operations.notify import alerts, emails, webhooks
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire.notify.alerts import AlertRuleView, AlertView, RuleKind
from detlab.schemas.wire.notify.emails import EmailView
from detlab.schemas.wire.notify.webhooks import HookTrigger, WebhookCallView, WebhookFormat, WebhookView


class AsyncAlertCalls:
    """Alerts, their rules, the address for e-mail, and webhooks of the user who is logged in."""

    session: AsyncSession

    async def list_alerts(
        self, *, unread: bool = False, limit: int | None = 100, all_channels: bool = False
    ) -> list[AlertView]:
        """Return what you were told, the newest first; of runs that you may not read any more nothing.

        Args:
            unread: Only what you have not marked as read.
            limit: Return at most this many; None: all.
            all_channels: With those of rules without the bell, which were sent by webhook or e-mail alone.
        """
        return await self.session.run(alerts.alerts(limit, unread=unread, all_channels=all_channels))

    async def read_alerts(self, ids: Collection[int] = (), *, upto: int | None = None) -> int:
        """Mark alerts as read, some or all up to one; return how many are left, counted up to 100."""
        left = await self.session.run(alerts.read_alerts(sorted(ids), upto))
        return left.unread

    async def list_alert_rules(self) -> list[AlertRuleView]:
        """Return your rules, the oldest first."""
        return await self.session.run(alerts.alert_rules())

    async def add_alert_rule(
        self,
        kind: RuleKind,
        amount: float | None = None,
        *,
        pattern: str = "",
        experiment: int | None = None,
        workspace: str | int | None = None,
        project: str | int | None = None,
        bell: bool = True,
        webhook: int | None = None,
        email: bool = False,
    ) -> AlertRuleView:
        """Be told when something happens to experiments that you may read.

        Args:
            kind: `completed`, `failed`, `improved` (by so many percent), `plateau` (so many validations without a
                better value), `waiting` (nothing has run for so many seconds), `budget` (so many percent are used),
                `alert` (the code has called `alert`) or `log` (a trial has printed a line that fits).
            amount: That number; None: 1 %, 20, 3600 s, 80 %.
            pattern: Of `log`: a regular expression in RE2's syntax.
            experiment: Only this one.
            workspace: Only what lies there: its name, `OWNER/NAME` or id.
            project: Only what lies in this project of it, or of your personal one. None of the three: all of your own.
            bell: Whether it is new in your list of alerts.
            webhook: The id of a webhook of yours that is called, too.
            email: Whether it is sent to your confirmed address, too.

        Raises:
            Conflict: You have no confirmed address, or too many rules.
            NotFound: There is no such experiment, workspace, project or webhook for you.
        """
        where = {"workspace": _text(workspace), "project": _text(project), "experiment_id": experiment}
        return await self.session.run(
            alerts.set_alert_rule(kind, amount, pattern=pattern, bell=bell, webhook=webhook, email=email, **where)
        )

    async def remove_alert_rule(self, rule: int) -> AlertRuleView:
        """Remove a rule; return it as it was."""
        return await self.session.run(alerts.remove_alert_rule(rule))

    async def get_alert_email(self, user: str | None = None) -> EmailView:
        """Return where you have alerts sent by e-mail; as an administrator, where a user has."""
        return await self.session.run(emails.email(user))

    async def set_alert_email(self, address: str, user: str | None = None) -> EmailView:
        """Have a code sent to an address of yours, which `confirm_alert_email` takes.

        Args:
            address: Where alerts are to be sent.
            user: As an administrator: whose address it is. It is set without a code.

        Raises:
            Conflict: This cluster sends no e-mail, or too many codes were asked for today.
        """
        return await self.session.run(emails.set_email(address, user))

    async def confirm_alert_email(self, code: str) -> EmailView:
        """Confirm your address by the code that came there.

        Raises:
            Conflict: It is not the code, or is too old; after five wrong ones it is void.
        """
        return await self.session.run(emails.confirm_email(code))

    async def remove_alert_email(self, user: str | None = None) -> EmailView:
        """Have no alerts sent by e-mail any more; as an administrator, those of a user."""
        return await self.session.run(emails.remove_email(user))

    async def list_webhooks(self) -> list[WebhookView]:
        """Return your webhooks, the oldest first."""
        return await self.session.run(webhooks.webhooks())

    async def get_webhook(self, name: str | int) -> WebhookView:
        """Return a webhook of yours, by its name or id."""
        return await self.session.run(webhooks.webhook(name))

    async def create_webhook(
        self,
        name: str,
        url: str,
        *,
        format: WebhookFormat = "default",  # noqa: A002  (its name in requests)
        triggers: Collection[HookTrigger] = (),
        workspace: str | int | None = None,
        project: str | int | None = None,
    ) -> WebhookView:
        """Make a webhook with rules. What is returned has its `secret`, which is not told again.

        Args:
            name: Its name.
            url: A public address, http or https.
            format: `default` (Determined's payloads, signed), `slack` or `teams`.
            triggers: Kinds of rules, see `add_alert_rule`, each with its usual amount.
            workspace: Where these rules look.
            project: Likewise; neither: at all experiments of yours.

        Raises:
            ConfigError: The master does not call that address.
        """
        where = {"workspace": _text(workspace), "project": _text(project)}
        wanted = webhooks.create_webhook(name, url, format=format, triggers=list(triggers), **where)
        return await self.session.run(wanted)

    async def delete_webhook(self, name: str | int) -> WebhookView:
        """Delete a webhook with its calls, and the rules that only tell it; return it as it was."""
        return await self.session.run(webhooks.delete_webhook(name))

    async def test_webhook(self, name: str | int) -> WebhookView:
        """Have a call sent; `get_webhook` says soon how it went."""
        return await self.session.run(webhooks.test_webhook(name))

    async def list_webhook_calls(self, name: str | int, *, limit: int | None = 100) -> list[WebhookCallView]:
        """Return the calls of a webhook that wait, or were given up in the last week, the newest first."""
        return await self.session.run(webhooks.webhook_calls(name, limit))


def _text(reference: str | int | None) -> str:
    return "" if reference is None else str(reference)
