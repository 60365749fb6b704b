"""Addresses to which users have alerts sent: confirmed by a code, set by administrators, removed.

Nobody has mail sent to whom they like: an address gets one kind of mail, with a code, until that comes back, and few of
those: so many a day of one user, and so many to one mailbox whoever asks.
"""

from __future__ import annotations

import hmac

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas.wire.notify.emails import ConfirmEmail, EmailView, SetEmail, SetUsersEmail
from detlab_hub.core.alerts.mails import plain_code
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers, check_may_ask, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.mails import MOST_TRIES, code_digest, enqueue_code
from detlab_hub.services.notify.sending import GIVEN_UP_AFTER
from detlab_hub.store.queries.notify import emails
from detlab_hub.store.tables import EmailCodeRow, EmailRow, clean_text

DAY = 86400.0
CODES_OF_USER, CODES_TO_MAILBOX = 5, 3
"""Codes that one user may ask for in a day, and that are sent to one mailbox, whoever asks."""
ADMINISTER = "see and set where others have alerts sent"


class Emails(Service):
    """Use cases of the addresses of users."""

    async def get(self, caller: Caller) -> EmailView:
        """Return where the caller has alerts sent."""
        return await self._context.read(lambda s: _view(s, person(caller).name, self._context.settings))

    async def set(self, caller: Caller, wanted: SetEmail) -> EmailView:
        """Have a code sent to an address; until it comes back, alerts go where they went before.

        Raises:
            ConfigError: The operator has no mail sent to its domain.
            Conflict: This cluster sends no e-mail, or too many codes were asked for today.
        """
        check_may_ask(caller, Action.ALERT_EMAIL_SET)

        def ask(unit: UnitOfWork) -> EmailView:
            owner = person(caller).name
            _check_sent(unit.settings, wanted.address)
            row = _row(unit.session, owner)
            if row.address == wanted.address:
                _stop_waiting(unit, row)
            else:
                _check_not_too_many(unit, owner, wanted.address)
                _stop_waiting(unit, row)
                row.pending = wanted.address
                enqueue_code(unit, owner)
                audit.note(unit, caller, Action.ALERT_EMAIL_SET, f"e-mail of {owner}", wanted.address)
            return _view(unit.session, owner, unit.settings)

        return await self._context.write(ask)

    async def confirm(self, caller: Caller, wanted: ConfirmEmail) -> EmailView:
        """Take the code that came to the address that waits for it.

        Raises:
            Conflict: It is not the newest code, no address waits for one, or too many were wrong.
        """
        check_may_ask(caller, Action.ALERT_EMAIL_CONFIRM)

        def confirm(unit: UnitOfWork) -> EmailView | str:
            owner = person(caller).name
            row = unit.session.get(EmailRow, owner)
            if row is None or not row.pending:
                return "no address of yours waits for a code"
            if problem := _take(unit, row, plain_code(wanted.code)):
                return problem
            audit.note(unit, caller, Action.ALERT_EMAIL_CONFIRM, f"e-mail of {owner}", row.address)
            return _view(unit.session, owner, unit.settings)

        found = await self._context.write(confirm)
        if isinstance(found, str):  # after the commit: a wrong code is counted
            raise Conflict(found, hint="The newest mail has the code; another one: det alert email set ADDRESS")
        return found

    async def remove(self, caller: Caller) -> EmailView:
        """Remove the caller's address, with what waits to be sent; rules that told by it alone tell the bell again."""
        check_may_ask(caller, Action.ALERT_EMAIL_REMOVE)
        return await self._remove(caller, person(caller).name, Action.ALERT_EMAIL_REMOVE)

    # --- by administrators

    async def get_of(self, caller: Caller, user: str) -> EmailView:
        """Return where a user has alerts sent.

        Raises:
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.SITE, ADMINISTER)
        return await self._context.read(lambda s: _view(s, clean_text(user), self._context.settings))

    async def give(self, caller: Caller, wanted: SetUsersEmail) -> EmailView:
        """Set the address of a user, without a code.

        Raises:
            ConfigError: The operator has no mail sent to its domain.
            Conflict: This cluster sends no e-mail.
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.SITE, ADMINISTER)

        def give(unit: UnitOfWork) -> EmailView:
            owner = clean_text(wanted.user)
            _check_sent(unit.settings, wanted.address)
            _confirmed(unit, _row(unit.session, owner), wanted.address, by=caller.name)
            audit.note(unit, caller, Action.ALERT_EMAIL_GIVE, f"e-mail of {owner}", wanted.address)
            return _view(unit.session, owner, unit.settings)

        return await self._context.write(give)

    async def take(self, caller: Caller, user: str) -> EmailView:
        """Remove the address of a user, as `remove` does.

        Raises:
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.SITE, ADMINISTER)
        return await self._remove(caller, clean_text(user), Action.ALERT_EMAIL_TAKE)

    async def _remove(self, caller: Caller, owner: str, action: Action) -> EmailView:
        def remove(unit: UnitOfWork) -> EmailView:
            row = unit.session.get(EmailRow, owner)
            if row is not None:
                emails.remove(unit.session, row)
                audit.note(unit, caller, action, f"e-mail of {owner}", row.address or row.pending)
                unit.session.flush()
            return _view(unit.session, owner, unit.settings)

        return await self._context.write(remove)

    async def sweep(self) -> None:
        """Forget codes that were asked for before today; and what waits to be sent, where nothing is sent any more."""
        now, sends = self._context.clock(), self._context.settings.smtp is not None

        def sweep(unit: UnitOfWork) -> None:
            emails.purge_codes(unit.session, now - DAY)
            if not sends:
                emails.purge_calls(unit.session, now - GIVEN_UP_AFTER)

        await self._context.write(sweep)


def check_has_address(unit: UnitOfWork, caller: Caller) -> None:
    """Check that e-mail to the caller has somewhere to go.

    Raises:
        Conflict: It has not.
    """
    _check_sent(unit.settings)
    row = unit.session.get(EmailRow, person(caller).name)
    if row is None or not row.address:
        raise Conflict("you have no confirmed e-mail address", hint="det alert email set ADDRESS")


def _check_sent(settings: Settings, address: str | None = None) -> None:
    """Check that the cluster sends e-mail, and to an address."""
    if settings.smtp is None:
        raise Conflict("this cluster sends no e-mail", hint="An operator names a mail server in c.DetHub.smtp")
    if address is not None and not settings.smtp.takes(address):
        domains = ", ".join(settings.smtp.domains)
        problem = f"this cluster sends e-mail to addresses of {domains} alone"
        raise ConfigError([Problem("address", problem, "an operator changes c.DetHub.smtp")], problem)


def _check_not_too_many(unit: UnitOfWork, owner: str, address: str) -> None:
    """Note that a code is asked for.

    Raises:
        Conflict: Too many were today, by this user or for this mailbox.
    """
    since, box = unit.now - DAY, mailbox(address)
    mine = emails.codes_since(unit.session, since, owner=owner)
    there = emails.codes_since(unit.session, since, mailbox=box)
    if mine >= CODES_OF_USER or there >= CODES_TO_MAILBOX:
        said = f"you have asked for {mine} codes" if mine >= CODES_OF_USER else f"{there} codes were sent to {address}"
        hint = "Try again tomorrow, or ask an administrator: det alert email set ADDRESS --user YOU"
        raise Conflict(f"{said} within a day", hint=hint)
    unit.session.add(EmailCodeRow(owner=owner, mailbox=box, asked_at=unit.now))


def mailbox(address: str) -> str:
    """Return an address without what many providers do not tell apart: capitals, dots, and what follows a `+`."""
    local, _, domain = address.lower().rpartition("@")
    return f"{local.partition('+')[0].replace('.', '')}@{domain}"


def _row(s: Session, owner: str) -> EmailRow:
    row = s.get(EmailRow, owner)
    if row is None:
        row = EmailRow(owner=owner)
        s.add(row)
        s.flush()
    return row


def _take(unit: UnitOfWork, row: EmailRow, code: str) -> str:
    """Take a code; return why not, or nothing. Wrong ones are counted."""
    if not row.code_hash:
        return "no code is valid now: it was not sent yet, or too many were wrong"
    if row.code_until is None or unit.now >= row.code_until:
        return "the code is too old"
    if not hmac.compare_digest(row.code_hash, code_digest(row.owner, row.pending, code)):
        row.code_tries += 1
        if row.code_tries >= MOST_TRIES:
            row.code_hash = ""
        return "this is not the code that was sent"
    _confirmed(unit, row, row.pending, by=row.owner)
    return ""


def _confirmed(unit: UnitOfWork, row: EmailRow, address: str, *, by: str) -> None:
    row.address, row.confirmed_at, row.set_by = address, unit.now, by
    _stop_waiting(unit, row)


def _stop_waiting(unit: UnitOfWork, row: EmailRow) -> None:
    """Wait for no code any more: one that was sent is void."""
    row.pending, row.code_hash, row.code_until, row.code_tries, row.error = "", "", None, 0, ""
    emails.forget_code(unit.session, row.owner)


def _view(s: Session, owner: str, settings: Settings) -> EmailView:
    s.flush()
    row = s.get(EmailRow, owner)
    offered = settings.smtp is not None
    if row is None:
        return EmailView(user=owner, offered=offered)
    waiting, failed = emails.calls_of(s, owner)
    return EmailView(
        user=owner,
        address=row.address,
        confirmed_at=row.confirmed_at,
        set_by=row.set_by,
        pending=row.pending,
        code_until=row.code_until,
        delivered=row.delivered,
        delivered_at=row.delivered_at,
        waiting=waiting,
        failed=failed,
        error=row.error,
        offered=offered,
    )
