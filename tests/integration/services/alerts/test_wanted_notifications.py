"""Which notifications people want: their own settings go before those of rules, and nothing is lost by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alerted_world import Alerted
from services_scripted import ALICE, BOB, ROOT

from detlab.schemas.wire.notify.emails import SetUsersEmail
from detlab.schemas.wire.notify.user_settings import SetUserSettings
from detlab_hub.services.alerts.emails import Emails
from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.cluster.user_settings import UserSettingsKept
from detlab_hub.services.notify.mails import MailSender
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.store.tables import Meta
from testbed.mail.servers import MailServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    """A mail server."""
    found = MailServer(tmp_path).start()
    yield found
    found.kill()


@pytest.fixture
async def told(make_world: Any, server: MailServer) -> Any:
    """Tells alice something by bell and mail; returns (unread, mails that were sent)."""
    world = await make_world(smtp=SmtpServer("127.0.0.1", server.port, "none", "det@example.org"))
    alerted, context = Alerted(world), world.services.context
    await world.services[Emails].give(ROOT, SetUsersEmail(user="alice", address="ada@example.org"))
    settings = world.services[UserSettingsKept]

    async def tell_her(*, bell: bool, send: bool = True, **wanted: bool) -> tuple[list[str], int]:
        if wanted:
            await settings.set(ALICE, SetUserSettings(**wanted))
        said = Said("alert", "said", "x")
        await context.write(lambda unit: tell(unit, "alice", "rule 1", said, most=60, bell=bell, email=True))
        if send:
            await MailSender(context).step()
        listed = await alerted.alerts.list(ALICE)
        return [one.title for one in listed.items if not one.read], len(server.mails)

    tell_her.world = world  # type: ignore[attr-defined]
    return tell_her


async def test_what_is_not_wanted_by_mail_is_new_at_the_bell(told: Any) -> None:
    assert await told(bell=False) == ([], 1)
    assert await told(bell=False, email=False) == (["said"], 1)
    assert await told(bell=True, email=True) == (["said", "said"], 2)


async def test_a_quiet_bell_has_alerts_as_read(told: Any) -> None:
    assert await told(bell=True) == (["said"], 1)
    await told.world.services[UserSettingsKept].set(ALICE, SetUserSettings(bell=False))
    assert await told(bell=True) == (["said"], 2)
    assert await told(bell=True, email=False) == (["said"], 2)
    assert len((await Alerted(told.world).alerts.list(ALICE)).items) == 3, "all are in the list"


async def test_mails_that_wait_are_not_sent_to_who_wants_none(told: Any, server: MailServer) -> None:
    await told(bell=True, send=False)
    await told.world.services[UserSettingsKept].set(ALICE, SetUserSettings(email=False))
    await MailSender(told.world.services.context).step()
    assert server.mails == []


async def test_settings_of_another_version_do_no_harm(told: Any) -> None:
    settings = told.world.services[UserSettingsKept]

    def odd(unit: Any) -> None:
        value = json.dumps({"theme": "sepia", "bell": False, "density": 3})
        unit.session.merge(Meta(key="settings of user alice", value=value))

    await told.world.services.context.write(odd)
    assert (await settings.get(ALICE)).chosen == []
    assert (await settings.set(ALICE, SetUserSettings(theme="dark"))).theme == "dark"
    assert (await settings.get(BOB)).chosen == []
