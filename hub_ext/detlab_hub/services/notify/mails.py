"""Alerts by e-mail: written into the outbox with what they tell, and handed to the operator's mail server.

They go to the address that a user has confirmed, or an administrator has set, and to no other. Each is sent with its
owner's rights of that moment, in order, again and again for three days while the server is away. Its Message-ID is the
same at each attempt: where a server has taken a mail and died before it said so, the mail comes twice, and this tells.
So many are sent to one user in an hour; a last one counts those beyond.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from dataclasses import dataclass
from email.headerregistry import Address
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab_hub.core.alerts.mails import (
    CODE_ALPHABET,
    CODE_CHARS,
    Letter,
    alert_letter,
    code_letter,
    compose,
    grouped,
    summary_letter,
)
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.sending import (
    ERROR_CHARS,
    MOST_WAITING,
    CallSender,
    Receiver,
    SentCall,
    link_of,
    may_tell,
)
from detlab_hub.services.notify.smtp import Delivery, MailError
from detlab_hub.store.queries.notify import emails, user_settings, webhooks
from detlab_hub.store.queries.notify.webhooks import DueCall
from detlab_hub.store.tables import EmailRow, WebhookRow

HOUR = 3600.0
MOST_AN_HOUR = 20
"""Alerts that are sent to one user in an hour."""
CODE_LASTS = 24 * HOUR
"""Seconds after it was sent in which a code is taken."""
MOST_TRIES = 5
"""Wrong codes after which one is void."""
LEAVE = 1.0
"""Seconds for a mail that is given up, as the master stops."""
HELD_BACK, CODE = "held_back", "code"
"""Events of calls that tell no alert."""


# --- what is to be sent


def enqueue_mail(unit: UnitOfWork, owner: str, event: str, told: dict[str, Any], experiment_id: int | None) -> bool:
    """Note an alert to be sent to a user; committed with the unit of work.

    Args:
        unit: The unit of work of what happened.
        owner: Who is told.
        event: The kind of the alert.
        told: As `core.alerts.mails.alert_letter` takes it.
        experiment_id: What it tells of.

    Returns:
        Whether it is sent: they have an address, and not too much was sent to it.
    """
    row = unit.session.get(EmailRow, owner)
    if unit.settings.smtp is None or row is None or not row.address:
        return False
    if not row.hour_began <= unit.now < row.hour_began + HOUR:
        row.hour_began, row.hour_count, row.summary_id = unit.now, 0, None
    target = emails.target_of(owner)
    if row.hour_count >= MOST_AN_HOUR or webhooks.waiting(unit.session, target, MOST_WAITING) >= MOST_WAITING:
        _hold_back(unit, row)
        return False
    row.hour_count += 1
    unit.outbox.wake_streams = True
    _call(unit, target, owner, event, told, experiment_id=experiment_id)
    return True


def _hold_back(unit: UnitOfWork, row: EmailRow) -> None:
    """Count an alert that is not sent; the count is, at the end of the hour."""
    call = None if row.summary_id is None else unit.session.get(WebhookRow, row.summary_id)
    if call is not None:
        call.body = {"count": call.body["count"] + 1}
        return
    due = row.hour_began + HOUR
    call = _call(unit, emails.target_of(row.owner), row.owner, HELD_BACK, {"count": 1}, due_at=due)
    unit.session.flush()
    row.summary_id = call.id


def enqueue_code(unit: UnitOfWork, owner: str) -> None:
    """Note that a code is to be sent to the address that a user wants to confirm.

    The call has no code: it is made when it is sent, so that it is nowhere but in the mail, and lasts from then on.
    """
    _call(unit, emails.code_target_of(owner), owner, CODE, {})
    unit.outbox.wake_streams = True


def _call(
    unit: UnitOfWork,
    target: str,
    owner: str,
    event: str,
    body: dict[str, Any],
    *,
    experiment_id: int | None = None,
    due_at: float | None = None,
) -> WebhookRow:
    call = WebhookRow(url=target, event=event, body=body, owner=owner, experiment_id=experiment_id)
    call.created_at, call.due_at = unit.now, unit.now if due_at is None else due_at
    unit.session.add(call)
    return call


def code_digest(owner: str, address: str, code: str) -> str:
    """Return what is kept of a code: it is good for this user and this address alone."""
    return hashlib.sha256("\0".join((owner, address, code)).encode()).hexdigest()


# --- sending


@dataclass(frozen=True)
class _AddressedLetter:
    """A letter, where it goes, and what its Message-ID begins with."""

    address: str
    letter: Letter
    created_at: float
    key: str


class MailSender(CallSender):
    """Sends the e-mail that is due."""

    mails = True
    most_at_once = 4

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        settings = context.settings
        self._page = settings.public_url or settings.service_url
        self._cluster = hashlib.sha256(settings.cluster_id.encode()).hexdigest()[:12]

    def receiver(self, s: Session, row: WebhookRow) -> Receiver | None:
        """Return where the user has alerts sent; None: nowhere any more."""
        return s.get(EmailRow, row.owner)

    async def send(self, call: DueCall) -> SentCall:
        """Hand a mail to the server, once."""
        server = self._context.settings.smtp
        if server is None or self._context.settings.is_copy:
            return SentCall(call, dropped=True)  # the original tells its users
        if emails.is_code(call.target):
            wanted = await self._context.write(partial(self._code, call=call))
        else:
            wanted = await self._context.read(partial(self._alert, call=call))
        if wanted is None:
            return SentCall(call, dropped=True)
        if not server.takes(wanted.address):
            return SentCall(call, "the operator has no mail sent to the domain of this address", final=True)
        try:
            await self._deliver(server, call, wanted)
        except MailError as error:
            return SentCall(call, error.message[:ERROR_CHARS], final=error.final)
        return SentCall(call)

    async def _deliver(self, server: SmtpServer, call: DueCall, wanted: _AddressedLetter) -> None:
        domain = server.sender.rpartition("@")[2]
        message_id = f"<{wanted.key}.{self._cluster}.detlab@{domain}>"
        sender = Address(server.sender_name, addr_spec=server.sender)
        to = Address(addr_spec=wanted.address)
        delivery = Delivery(server, compose(wanted.letter, sender, to, message_id, wanted.created_at), wanted.address)
        work = asyncio.ensure_future(self._context.workers.mails.run(call.owner, delivery.run))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            delivery.give_up()
            work.cancel()
            await asyncio.wait({work}, timeout=LEAVE)
            raise
        except Unavailable:
            delivery.give_up()
            raise MailError("the mail server was too slow") from None

    def _alert(self, s: Session, call: DueCall) -> _AddressedLetter | None:
        """Return what is sent; None: nothing, for its owner has no address, wants none, or may not read that now."""
        row, to = s.get(WebhookRow, call.id), s.get(EmailRow, call.owner)
        if row is None or to is None or not to.address or not may_tell(s, call.owner, row):
            return None
        if not user_settings.settings_of(s, call.owner).email:
            return None
        if row.event == HELD_BACK:
            letter = summary_letter(row.body["count"], self._page)
        else:
            letter = alert_letter(row.body, link_of(self._page.rstrip("/"), row), self._page)
        return _AddressedLetter(to.address, letter, row.created_at, _key(row))

    def _code(self, unit: UnitOfWork, call: DueCall) -> _AddressedLetter | None:
        """Make a code, of which the hash is kept, and return what is sent; None: no address waits for one."""
        row, to = unit.session.get(WebhookRow, call.id), unit.session.get(EmailRow, call.owner)
        if row is None or to is None or not to.pending:
            return None
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARS))
        to.code_hash, to.code_tries = code_digest(call.owner, to.pending, code), 0
        to.code_until = unit.now + CODE_LASTS
        letter = code_letter(call.owner, grouped(code), CODE_LASTS / HOUR, self._page)
        # No attempt repeats another: each has a code of its own, and the newest counts.
        return _AddressedLetter(to.pending, letter, row.created_at, f"{_key(row)}.{secrets.token_hex(4)}")


def _key(row: WebhookRow) -> str:
    """Return what is the same for each attempt of a call, and of no other one: not in a restored database either."""
    return f"{row.id}.{round(row.created_at * 1000)}"
