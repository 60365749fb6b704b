"""Alerts by e-mail, through a real mail server that is killed and comes back; and whose mailbox gets what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerted_world import Alerted, losses, say
from pydantic import ValidationError
from services_scripted import ALICE, BOB, ROOT, config, deaf

from detlab.errors import ConfigError, Conflict, Forbidden
from detlab.schemas.wire.grants import GrantRequest, GrantTo
from detlab.schemas.wire.notify.alerts import SetAlertRule
from detlab.schemas.wire.notify.emails import ConfirmEmail, EmailView, SetEmail, SetUsersEmail
from detlab_hub.services.alerts.emails import CODES_OF_USER, CODES_TO_MAILBOX, DAY, Emails
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.notify import mails, sending
from detlab_hub.services.notify.mails import MOST_AN_HOUR, MOST_TRIES, MailSender
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.store.tables import EmailRow, WebhookRow
from testbed.mail.servers import KINDS, MailServer

ADA = "ada@example.org"
RUN = Caller("alice", run="1.a.0")


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MailServer]:
    """A mail server, which its test may kill and start."""
    folder = tmp_path / "mail"
    folder.mkdir()
    found = MailServer(folder, getattr(request, "param", "small")).start()
    yield found
    found.kill()


def by(server: MailServer, **more: object) -> SmtpServer:
    """The settings for a server in the clear."""
    return SmtpServer(
        **{"host": "127.0.0.1", "port": server.port, "security": "none", "sender": "det@example.org"} | more
    )


class Mailed(Alerted):
    """The services of alerts in a world with a mail server."""

    def renew(self) -> None:
        super().renew()
        self.emails = self.world.services[Emails]
        self.mails = MailSender(self.world.services.context)

    async def post(self) -> None:
        """Send what is due."""
        while await self.mails.step():
            pass

    async def given(self, caller: Caller = ALICE, address: str = ADA) -> EmailView:
        """Have an administrator set an address."""
        return await self.emails.give(ROOT, SetUsersEmail(user=caller.name, address=address))

    async def row(self, owner: str = "alice") -> EmailRow | None:
        return await self.world.services.context.read(lambda s: s.get(EmailRow, owner))


@pytest.fixture
async def mailed(make_world, server: MailServer) -> Mailed:
    """A trial that waits to be told what to say, and a server."""
    world = await make_world(deaf(1), smtp=by(server))
    await world.add_agent()
    return Mailed(world)


async def talking(mailed: Mailed, **rule: object) -> None:
    """Give alice an address and a rule by e-mail, and start a trial that `say` has say things."""
    await mailed.given()
    await mailed.rule(ALICE, "alert", **{"email": True, "bell": False} | rule)
    await mailed.world.submit(config(name="mine"))
    await mailed.world.steps(3)


def code_in(server: MailServer) -> str:
    """The code of the last mail."""
    found = re.search(r"det alert email confirm (\S+)", server.mails[-1].get_content())
    assert found is not None
    return found[1]


# --- the proof


@pytest.mark.parametrize("server", KINDS, indirect=True)
async def test_a_mail_server_that_is_killed_and_comes_back_misses_nothing_and_gets_nothing_twice(
    mailed: Mailed, server: MailServer
) -> None:
    await talking(mailed)
    await say(mailed.world, "x", title="first")
    await mailed.post()
    server.kill()
    for title in ("second", "third"):
        await say(mailed.world, "x", title=title)
        await mailed.post()
    mailed.world.now += DAY
    await mailed.post()
    assert server.subjects == ["[detlab] first"]
    assert "away" in (await mailed.emails.get(ALICE)).error
    await mailed.world.reboot()  # the master dies, too
    mailed.renew()
    server.start()
    (server.folder / "dies").touch()  # once it has the next one, before it says so
    mailed.world.now += sending.LAST_RETRY
    await mailed.post()
    server.wait()
    server.start()
    mailed.world.now += sending.LAST_RETRY
    await mailed.post()
    assert list(dict.fromkeys(server.subjects)) == ["[detlab] first", "[detlab] second", "[detlab] third"]
    ids = [mail["Message-ID"] for mail in server.mails]
    assert len(ids) == 4, "the second one came twice, as the server died in between"
    assert len(set(ids)) == 3, "and it is the same mail to who looks at its Message-ID"
    assert {tuple(one["to"]) for one in server.kept} == {(ADA,)}
    seen = await mailed.emails.get(ALICE)
    assert (seen.delivered, seen.waiting, seen.failed, seen.error) == (3, 0, 0, "")


@pytest.mark.parametrize("kind", ["starttls", "tls"])
async def test_it_is_sent_encrypted_by_who_logs_in(make_world, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass word\n")
    server = MailServer(tmp_path, kind, ("det", "pass word")).start()
    smtp = by(server, security=kind, user="det", password_file=str(secret), ca_file=server.authority)
    world = await make_world(losses(1.0), smtp=smtp)
    mailed = Mailed(world)
    await mailed.given()
    await mailed.world.services.context.write(
        lambda unit: mails.enqueue_mail(unit, "alice", "test", {"level": "info", "title": "hello", "text": ""}, None)
    )
    secret.write_text("wrong")
    await mailed.post()
    assert (await mailed.emails.get(ALICE)).error == "the mail server answered 535 before it took anything"
    secret.write_text("pass word")
    object.__setattr__(world.services.settings, "smtp", by(server, security=kind))
    world.now += 60.0
    await mailed.post()
    assert "(SSLCertVerificationError)" in (await mailed.emails.get(ALICE)).error, "nobody signed for it"
    object.__setattr__(world.services.settings, "smtp", smtp)
    world.now += 60.0
    await mailed.post()
    assert [(one["from"], one["login"]) for one in server.kept] == [("det@example.org", "det")]
    server.kill()


async def test_a_server_without_encryption_gets_nothing_where_it_is_asked_for(make_world, server: MailServer) -> None:
    mailed = Mailed(await make_world(losses(1.0), smtp=by(server, security="starttls")))
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    await mailed.post()
    assert server.kept == []
    assert "does not offer" in (await mailed.emails.get(ALICE)).error


# --- addresses


async def test_an_address_is_confirmed_by_the_code_that_came_there(mailed: Mailed, server: MailServer) -> None:
    with pytest.raises(Conflict, match="no confirmed e-mail address"):
        await mailed.rule(ALICE, "failed", email=True)
    asked = await mailed.emails.set(ALICE, SetEmail(address=ADA))
    assert (asked.pending, asked.address, asked.code_until) == (ADA, "", None)
    with pytest.raises(Conflict, match="not sent yet"):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code="x"))
    await mailed.post()
    code = code_in(server)
    row = await mailed.row()
    stored = await mailed.world.services.context.read(
        lambda s: repr([vars(one) for one in (*s.query(EmailRow), *s.query(WebhookRow))])
    )
    assert row is not None
    assert len(row.code_hash) == 64
    assert code not in stored
    assert code.replace("-", "") not in stored
    for other in (BOB, ROOT):
        with pytest.raises(Conflict, match="no address of yours waits"):
            await mailed.emails.confirm(other, ConfirmEmail(code=code))
    found = await mailed.emails.confirm(ALICE, ConfirmEmail(code=f" {code.upper()} "))
    assert (found.address, found.pending, found.set_by) == (ADA, "", "alice")
    with pytest.raises(Conflict):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=code))
    await mailed.rule(ALICE, "failed", email=True)


async def test_a_code_is_void_after_some_tries_and_after_a_day(mailed: Mailed, server: MailServer) -> None:
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    await mailed.post()
    for _ in range(MOST_TRIES):
        with pytest.raises(Conflict, match="not the code"):
            await mailed.emails.confirm(ALICE, ConfirmEmail(code="aaaa-aaaa-aaaa"))
    with pytest.raises(Conflict, match="no code is valid"):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=code_in(server)))
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    await mailed.post()
    first = code_in(server)
    mailed.world.now += mails.CODE_LASTS
    with pytest.raises(Conflict, match="too old"):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=first))
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    await mailed.post()
    with pytest.raises(Conflict, match="not the code"):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=first))
    assert (await mailed.emails.confirm(ALICE, ConfirmEmail(code=code_in(server)))).address == ADA


async def test_a_code_is_good_for_its_address_alone_and_the_old_one_stays_until_then(
    mailed: Mailed, server: MailServer
) -> None:
    await mailed.given()
    await mailed.emails.set(ALICE, SetEmail(address="mine@example.org"))
    await mailed.post()
    code = code_in(server)
    asked = await mailed.emails.set(ALICE, SetEmail(address="victim@example.org"))
    assert (asked.address, asked.pending) == (ADA, "victim@example.org")
    with pytest.raises(Conflict):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=code))
    await mailed.post()
    with pytest.raises(Conflict):
        await mailed.emails.confirm(ALICE, ConfirmEmail(code=code))
    assert server.kept[-1]["to"] == ["victim@example.org"]
    kept = await mailed.emails.set(ALICE, SetEmail(address=ADA))
    assert (kept.address, kept.pending) == (ADA, ""), "it was confirmed before"


async def test_nobody_is_flooded_with_codes(mailed: Mailed, server: MailServer) -> None:
    for number in range(CODES_TO_MAILBOX):
        await mailed.emails.set(Caller(f"user{number}"), SetEmail(address=f"v.ictim+{number}@example.org"))
    with pytest.raises(Conflict, match="3 codes were sent to Victim@"):
        await mailed.emails.set(BOB, SetEmail(address="Victim@example.org"))
    for number in range(CODES_OF_USER):
        await mailed.emails.set(BOB, SetEmail(address=f"nobody{number}@example.org"))
    with pytest.raises(Conflict, match="you have asked for 5 codes"):
        await mailed.emails.set(BOB, SetEmail(address="other@example.org"))
    await mailed.emails.remove(BOB)
    with pytest.raises(Conflict, match="5 codes"):
        await mailed.emails.set(BOB, SetEmail(address="other@example.org"))
    await mailed.post()
    assert len(server.kept) == CODES_TO_MAILBOX, "what was asked for before is not sent any more"
    await mailed.emails.sweep()
    with pytest.raises(Conflict, match="5 codes"):
        await mailed.emails.set(BOB, SetEmail(address="other@example.org"))
    mailed.world.now += DAY + 1.0
    await mailed.emails.sweep()
    assert (await mailed.emails.set(BOB, SetEmail(address="Victim@example.org"))).pending == "Victim@example.org"


async def test_who_may_set_which_address(mailed: Mailed) -> None:
    for act in (
        mailed.emails.get_of(ALICE, "bob"),
        mailed.emails.give(ALICE, SetUsersEmail(user="alice", address=ADA)),
        mailed.emails.take(ALICE, "bob"),
        mailed.emails.set(RUN, SetEmail(address=ADA)),
        mailed.emails.confirm(RUN, ConfirmEmail(code="x")),
        mailed.emails.remove(RUN),
    ):
        with pytest.raises(Forbidden):
            await act
    given = await mailed.given(BOB, "ben@example.org")
    assert (given.user, given.address, given.set_by) == ("bob", "ben@example.org", "root")
    assert (await mailed.emails.get_of(ROOT, "bob")).address == "ben@example.org"
    assert (await mailed.emails.get(ALICE)).address == ""
    await mailed.rule(BOB, "failed", email=True, bell=False)
    assert (await mailed.emails.take(ROOT, "bob")).address == ""
    (rule,) = (await mailed.alerts.rules(BOB)).items
    assert (rule.email, rule.bell) == (False, True), "what was told by e-mail alone is told by the bell"


async def test_where_no_mail_server_is_nothing_is_asked_for(make_world) -> None:
    mailed = Mailed(await make_world(losses(1.0)))
    assert not (await mailed.emails.get(ALICE)).offered
    for act in (
        mailed.emails.set(ALICE, SetEmail(address=ADA)),
        mailed.given(),
        mailed.alerts.set_rule(ALICE, SetAlertRule(kind="failed", email=True)),
    ):
        with pytest.raises(Conflict, match="sends no e-mail"):
            await act


async def test_the_operator_says_to_which_domains(make_world, server: MailServer) -> None:
    mailed = Mailed(await make_world(losses(1.0), smtp=by(server, domains=("example.org",))))
    for address in ("ada@evil.org", "ada@sub.example.org"):
        with pytest.raises(ConfigError, match=r"of example\.org alone"):
            await mailed.emails.set(ALICE, SetEmail(address=address))
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    object.__setattr__(mailed.world.services.settings, "smtp", by(server, domains=("other.org",)))
    await mailed.post()
    assert server.kept == [], "that of today counts"


# --- alerts


async def test_what_is_sent_is_plain_text_to_the_owner_of_the_rule_alone(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    await say(mailed.world, "<script>x</script>\r\n.\r\nMAIL FROM:<x@y.z>", title="<b>bold</b>\r\nBcc: bob@example.org")
    await mailed.post()
    (mail,) = server.mails
    assert (mail["To"], mail["Bcc"], mail.get_content_type()) == (ADA, None, "text/plain")
    assert mail["Subject"] == "[detlab] <b>bold</b> Bcc: bob@example.org"
    assert "> <script>x</script>\n> .\n> MAIL FROM:<x@y.z>\n" in mail.get_content()
    assert server.kept[0]["to"] == [ADA]


async def test_what_the_owner_may_no_longer_read_is_not_mailed(mailed: Mailed, server: MailServer) -> None:
    world = mailed.world
    await mailed.given(BOB, "ben@example.org")
    made = await world.submit(config())
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob"))
    await mailed.rule(BOB, "alert", experiment_id=made.id, email=True)
    await world.steps(3)
    await say(world, "x", title="seen")
    await mailed.post()
    await say(world, "x", title="unseen")
    await world.services[Grants].remove(ALICE, made.id, GrantTo(kind="user", name="bob"))
    await mailed.post()
    assert server.subjects == ["[detlab] seen"]
    assert (await mailed.emails.get(BOB)).waiting == 0


async def test_a_storm_is_told_by_a_number(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    for _ in range(4):
        await say(mailed.world, *["x"] * 10, title="storm")
        mailed.world.now += 61.0
    await mailed.post()
    assert server.subjects == ["[detlab] storm"] * MOST_AN_HOUR
    mailed.world.now += mails.HOUR
    await mailed.post()
    assert server.subjects[MOST_AN_HOUR:] == ["[detlab] 20 more alerts"]
    await say(mailed.world, "x", title="later")
    await mailed.post()
    assert server.subjects[-1] == "[detlab] later"


@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_AN_HOUR"])
async def test_what_is_told_by_mail_alone_and_not_sent_is_new_in_the_list(
    mailed: Mailed, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(mails, limit, 2)

    async def tell_one() -> None:
        said = Said("completed", "has completed")
        await mailed.world.services.context.write(
            lambda unit: tell(unit, "alice", "rule 1", said, most=60, bell=False, email=True)
        )

    await tell_one()
    await mailed.given()
    for _ in range(4):
        await tell_one()
    assert [one.read for one in await mailed.told(ALICE)] == [False, True, True, False, False]
    (summary,) = await mailed.world.services.context.read(
        lambda s: [one.body for one in s.query(WebhookRow).filter_by(event=mails.HELD_BACK)]
    )
    assert summary == {"count": 2}


async def test_an_address_that_is_gone_and_one_that_is_busy(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    await mailed.given(ALICE, "gone@example.org")
    await say(mailed.world, "a", "b")
    await mailed.post()
    seen = await mailed.emails.get(ALICE)
    assert (seen.failed, seen.waiting) == (2, 0), "it is not asked again and again"
    assert seen.error == "the mail server refused the address (550)", "without its words"
    await mailed.given(ALICE, "busy@example.org")
    await say(mailed.world, "c", title="c")
    await mailed.post()
    assert (await mailed.emails.get(ALICE)).waiting == 1
    await mailed.given(ALICE, ADA)
    mailed.world.now += sending.FIRST_RETRY
    await mailed.post()
    assert server.subjects == ["[detlab] c"]
    mailed.world.now += sending.KEPT_FOR + 1.0
    await mailed.webhooks.sweep()
    assert (await mailed.emails.get(ALICE)).failed == 0


async def test_a_mail_that_is_refused_holds_up_no_later_one(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    await say(mailed.world, "XJUNK", title="junk")
    await say(mailed.world, "x", title="fine")
    await mailed.post()
    assert server.subjects == ["[detlab] fine"]
    seen = await mailed.emails.get(ALICE)
    assert (seen.delivered, seen.failed) == (1, 1)


async def test_a_mail_server_that_hangs_holds_up_no_webhook_and_no_stop(mailed: Mailed, server: MailServer) -> None:
    from detlab.schemas.wire.notify.webhooks import CreateWebhook

    (server.folder / "hangs").touch()
    await mailed.webhooks.create(BOB, CreateWebhook(name="chat", url="https://hooks.example/x"))
    for number in range(10):
        await mailed.emails.set(Caller(f"user{number}"), SetEmail(address=f"u{number}@example.org"))
    sends = asyncio.create_task(mailed.mails.run()), asyncio.create_task(mailed.sender.run())
    async with asyncio.timeout(10):
        while len(mailed.mails._busy) < mailed.mails.most_at_once:
            await asyncio.sleep(0.01)
        await mailed.webhooks.test(BOB, "chat")
        while not mailed.receiver.heard:
            await asyncio.sleep(0.01)
    for task in sends:
        task.cancel()
    async with asyncio.timeout(sending.LEAVE + 5.0):
        await asyncio.gather(*sends, return_exceptions=True)
    (server.folder / "hangs").unlink()
    assert server.kept == []


async def test_a_copy_of_a_cluster_mails_nobody(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    await say(mailed.world, "x")
    object.__setattr__(mailed.world.services.settings, "is_copy", True)
    await mailed.post()
    assert server.kept == []
    assert await mailed.calls() == 0


async def test_what_waits_goes_with_the_address_or_the_server(mailed: Mailed, server: MailServer) -> None:
    await talking(mailed)
    await say(mailed.world, "x")
    await mailed.emails.remove(ALICE)
    assert await mailed.calls() == 0
    await mailed.emails.set(ALICE, SetEmail(address=ADA))
    object.__setattr__(mailed.world.services.settings, "smtp", None)
    await mailed.emails.sweep()
    assert await mailed.calls() == 1
    mailed.world.now += sending.GIVEN_UP_AFTER + 1.0
    await mailed.emails.sweep()
    assert await mailed.calls() == 0


def test_a_rule_tells_somewhere() -> None:
    with pytest.raises(ValidationError, match="leave bell on, set email"):
        SetAlertRule(kind="failed", bell=False)
    assert SetAlertRule(kind="failed", bell=False, email=True).email
