"""How calls of the outbox are sent, whatever they are: in order, again after failures, side by side, fair by owner.

Each kind of receivers has a sender with places of its own, so that a mail server that hangs delays no webhook.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from sqlalchemy.orm import Session

from detlab_hub.core.rights import Right, right_of
from detlab_hub.services.base.access import may_read, person, tracked_thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.store.queries.notify import webhooks
from detlab_hub.store.queries.notify.webhooks import DueCall
from detlab_hub.store.tables import EmailRow, HookRow, TrackedRunRow, WebhookRow

FIRST_RETRY, LAST_RETRY = 5.0, 3600.0
"""Seconds until a call that failed is tried again: doubled from the first to the last."""
GIVEN_UP_AFTER = 3 * 86400.0
"""Seconds after which a call that never went through is given up."""
KEPT_FOR = 7 * 86400.0
"""Seconds for which a user's call that was given up is kept and shown."""
BATCH = 50
MOST_OF_OWNER = 4
"""Receivers of one owner that are called side by side."""
MOST_WAITING = 1000
"""Calls to one receiver of a user that wait; further ones are not sent, and the receiver's owner is told so."""
PAUSE = 0.5
"""Seconds between two looks for calls that are due, of which the first has found none."""
LEAVE = 2.0
"""Seconds for calls that are being sent when the master stops."""
LOOK_AGAIN = 5.0
"""Seconds after which there is a look without news."""
ERROR_CHARS = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentCall:
    """How a call went.

    Attributes:
        call: The call.
        error: Why it failed; empty: it did not.
        dropped: It was not to be sent.
        final: It failed, and would again.
    """

    call: DueCall
    error: str = ""
    dropped: bool = False
    final: bool = False


Receiver = HookRow | EmailRow
"""Counts what a user's webhook, or address, has got."""


class CallSender(Service):
    """Sends the calls of one kind that are due.

    Attributes:
        mails: Whether its kind is e-mail.
        most_at_once: Receivers that are called side by side.
    """

    mails: ClassVar[bool]
    most_at_once: ClassVar[int]

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._busy: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The receivers that are called now: target -> (owner, task)."""

    @abstractmethod
    async def send(self, call: DueCall) -> SentCall:
        """Send a call, once."""

    @abstractmethod
    def receiver(self, s: Session, row: WebhookRow) -> Receiver | None:
        """Return what counts a user's calls; None: it is the operator's, or gone."""

    async def run(self) -> None:
        """Send until the master stops."""
        try:
            with self._context.wakeups.listen("streams") as news:
                while not self._context.stopped:
                    news.clear()
                    begun = await self._begin(news)
                    if not begun:
                        await wait_until(news, LOOK_AGAIN)
                        await asyncio.sleep(PAUSE)  # any commit is news
        finally:
            tasks = [task for _, task in self._busy.values()]
            if tasks:  # what is nearly sent is not sent again by the next start
                await asyncio.wait(tasks, timeout=LEAVE)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> int:
        """Send the calls that are due now, once; return how many there were."""
        found = await self._due()
        begun = self._by_target(found)
        await asyncio.gather(*(self._send_all(calls) for calls in begun.values()))
        return len(found)

    async def _begin(self, news: asyncio.Event) -> int:
        """Begin to call receivers that have calls due and are not called yet; return how many."""
        of_owner = Counter(owner for owner, _ in self._busy.values())
        begun = 0
        for target, calls in self._by_target(await self._due()).items():
            owner = calls[0].owner
            if len(self._busy) >= self.most_at_once or (owner and of_owner[owner] >= MOST_OF_OWNER):
                continue
            of_owner[owner] += 1
            begun += 1
            self._busy[target] = owner, asyncio.create_task(self._serve(target, calls, news))
        return begun

    async def _serve(self, target: str, calls: list[DueCall], news: asyncio.Event) -> None:
        try:
            await self._send_all(calls)
        except Exception:  # the database is away: the calls are still due
            _log.exception("calls could not be sent")
            await asyncio.sleep(LOOK_AGAIN)
        finally:
            self._busy.pop(target, None)
            news.set()

    async def _due(self) -> list[DueCall]:
        now, busy = self._context.clock(), list(self._busy)
        full = {owner for owner, n in Counter(owner for owner, _ in self._busy.values()).items() if n >= MOST_OF_OWNER}
        found = await self._context.read(lambda s: webhooks.due(s, now, BATCH, busy, mails=self.mails))
        return [one for one in found if not one.owner or one.owner not in full]

    @staticmethod
    def _by_target(calls: list[DueCall]) -> dict[str, list[DueCall]]:
        found: dict[str, list[DueCall]] = {}
        for call in sorted(calls, key=lambda one: one.id):
            found.setdefault(call.target, []).append(call)
        return found

    async def _send_all(self, calls: list[DueCall]) -> None:
        """Send the calls of one receiver in their order, up to the first that fails: the others would, too."""
        for call in calls:
            sent = await self.send(call)
            await self._context.write(partial(self._note, sent=sent))
            if (sent.error and not sent.final) or self._context.stopped:
                break

    def _note(self, unit: UnitOfWork, sent: SentCall) -> None:
        """Drop a call that went through; of one that did not, say when it is tried again, or that it is given up."""
        row = unit.session.get(WebhookRow, sent.call.id)
        if row is None:
            return
        receiver = self.receiver(unit.session, row)
        if not sent.error:
            unit.session.delete(row)
            if receiver is not None and not sent.dropped:
                receiver.delivered, receiver.delivered_at, receiver.error = receiver.delivered + 1, unit.now, ""
            return
        row.attempts, row.error = row.attempts + 1, sent.error
        if receiver is not None:
            receiver.error = sent.error
        named = self.named(row)
        if sent.final or unit.now - row.created_at > GIVEN_UP_AFTER:
            _log.error("%s: call %d (%s) is given up: %s", named, row.id, row.event, sent.error)
            if receiver is None:
                unit.session.delete(row)
            else:
                row.failed_at = unit.now
            return
        pause = min(FIRST_RETRY * 2.0 ** min(row.attempts - 1, 30), LAST_RETRY)
        row.due_at = unit.now + pause
        _log.warning("%s: call %d: %s; again in %g s", named, row.id, sent.error, pause)

    def named(self, row: WebhookRow) -> str:
        """Return what the log calls the receiver of a call."""
        return row.url


def may_tell(s: Session, owner: str, row: WebhookRow) -> bool:
    """Whether the owner of a receiver may read, now, what a call tells of.

    Nobody is logged in, so that the groups of the Hub of the owner are not known: a right by a group alone does not
    count here.
    """
    caller = Caller(owner)
    if row.experiment_id is not None:
        return may_read(s, caller, row.experiment_id)
    if (run_id := row.body.get("run_id")) is not None:
        run = s.get(TrackedRunRow, run_id)
        return run is not None and right_of(person(caller), tracked_thing(s, caller, run)) >= Right.READ
    return True


def link_of(page: str, row: WebhookRow) -> str:
    """Return the address of the page of what a call tells of, below that of the Hub's page; empty: of nothing."""
    if row.experiment_id is not None:
        return f"{page}/experiments/{row.experiment_id}"
    run_id = row.body.get("run_id")
    return "" if run_id is None else f"{page}/runs/{run_id}"
