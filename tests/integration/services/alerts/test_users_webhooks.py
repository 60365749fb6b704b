"""Webhooks of users: signed, retried, fair by owner, with their owner's rights of the moment, to public addresses."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json

import pytest
from alerted_world import Alerted, losses, say
from pydantic import ValidationError
from services_scripted import ALICE, BOB, ROOT, config, deaf
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from detlab.errors import ConfigError, Conflict, NotFound
from detlab.schemas.wire.grants import GrantRequest, GrantTo
from detlab.schemas.wire.notify.alerts import ReadAlerts
from detlab.schemas.wire.notify.webhooks import CreateWebhook, WebhookView
from detlab_hub.services.alerts.webhooks import Webhooks
from detlab_hub.services.base.outgoing import Allowed, Outgoing
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.notify import sending
from detlab_hub.services.notify.outbox import WebhookSender, outgoing_for_users
from detlab_hub.store.queries.notify import webhooks
from detlab_hub.store.tables import HookRow, WebhookRow

URL = "https://hooks.example/T0/secret"


@pytest.fixture
async def alerted(make_world):
    world = await make_world(losses(1.0))
    await world.add_agent()
    return Alerted(world)


async def hook(alerted: Alerted, caller=ALICE, name="chat", **more) -> WebhookView:
    more.setdefault("triggers", ["completed"])
    more.setdefault("url", URL)
    made = await alerted.webhooks.create(caller, CreateWebhook(name=name, **more))
    await alerted.evaluate()
    return made


async def ended(alerted: Alerted, **more):
    made = await alerted.world.submit(config(**more))
    await alerted.world.finish(made.id)
    await alerted.evaluate()
    return made


async def test_the_end_is_sent_signed_as_determined_does(alerted) -> None:
    made_hook = await hook(alerted)
    assert made_hook.secret
    assert (await alerted.webhooks.get(ALICE, "chat")).secret == ""
    made = await ended(alerted, name="mine")
    assert await alerted.send() == 1
    (request,) = alerted.receiver.heard
    assert str(request.url) == URL
    stamp = request.headers["X-Determined-AI-Signature-Timestamp"]
    wanted = hmac.new(made_hook.secret.encode(), f"{stamp},".encode() + request.content, hashlib.sha256).hexdigest()
    assert request.headers["X-Determined-AI-Signature"] == wanted
    body = json.loads(request.content)
    assert (body["event_type"], body["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "COMPLETED"})
    experiment = body["event_data"]["experiment"]
    assert (experiment["id"], experiment["state"], experiment["name"]) == (made.id, "COMPLETED", "mine")
    assert body["link"].endswith(f"/experiments/{made.id}")
    seen = await alerted.webhooks.get(ALICE, "chat")
    assert (seen.delivered, seen.waiting, seen.failed) == (1, 0, 0)
    assert [one.read for one in (await alerted.alerts.list(ALICE, all_channels=True)).items] == [True], (
        "it is in the list, and not new"
    )


async def test_the_list_is_that_of_the_bell_unless_all_channels_are_asked_for(alerted) -> None:
    """One end was listed once for the bell, and once more for each rule with a webhook alone."""
    for name in ("chat", "mail"):
        mine = await hook(alerted, name=name, triggers=[])
        await alerted.rule(ALICE, "completed", webhook=mine.id, bell=False)
    await alerted.rule(ALICE, "completed")
    made = await ended(alerted)
    assert len(await alerted.told(ALICE)) == 3
    (one,) = (await alerted.alerts.list(ALICE)).items
    assert (one.experiment_id, one.read) == (made.id, False)
    await alerted.alerts.read(ALICE, ReadAlerts(upto=one.id))
    assert [item.id for item in (await alerted.alerts.list(ALICE)).items] == [one.id], "also when it is read"


@pytest.mark.parametrize("form", ["slack", "teams", "apprise"])
async def test_texts_of_others_are_no_markup_in_chats(make_world, form) -> None:
    world = await make_world(deaf(1))
    await world.add_agent()
    alerted = Alerted(world)
    await hook(alerted, format=form, triggers=["alert"])
    await world.submit(config())
    await world.steps(3)
    await say(world, "<!channel> <https://evil.example|log in> & *b*", title="<!here> a\nb")
    assert await alerted.send() == 1
    request = alerted.receiver.heard[0]
    assert "X-Determined-AI-Signature" not in request.headers
    body = json.loads(request.content)
    if form == "slack":
        assert body["text"] == "&lt;!here&gt; a b"
        markup = [one["text"]["text"] for one in body["blocks"] if one["text"]["type"] != "plain_text"]
        assert all("<!" not in text and "evil" not in text for text in markup)
    elif form == "apprise":
        assert (body["format"], body["type"]) == ("text", "info")
        assert body["body"].startswith("<!channel>")
    else:
        card = body["attachments"][0]["content"]
        assert {one["type"] for one in card["body"]} == {"RichTextBlock"}, "which has no markup"
        assert card["body"][1]["inlines"][0]["text"].startswith("<!channel>")


@pytest.mark.parametrize("answer", [500, 302, 0])
async def test_a_call_is_repeated_kept_when_given_up_and_shown(alerted, answer) -> None:
    made_hook = await hook(alerted)
    await ended(alerted)
    alerted.receiver.answer = answer
    assert await alerted.send() == 1
    assert all(one.url.host == "hooks.example" for one in alerted.receiver.heard), "no redirect is followed"
    (call,) = (await alerted.webhooks.calls(ALICE, "chat")).items
    assert (call.attempts, call.event, call.due_at) == (1, "completed", alerted.world.now + sending.FIRST_RETRY)
    assert call.error
    alerted.world.now += sending.GIVEN_UP_AFTER + 1.0
    await alerted.send()
    seen = await alerted.webhooks.get(ALICE, str(made_hook.id))
    assert (seen.delivered, seen.waiting, seen.failed) == (0, 0, 1)
    assert (await alerted.webhooks.calls(ALICE, "chat")).items[0].due_at is None
    alerted.receiver.answer = 200
    alerted.world.now += 86400.0
    assert await alerted.send() == 2, "what was given up is not sent again"
    alerted.world.now += sending.KEPT_FOR
    await alerted.webhooks.sweep()
    assert await alerted.calls() == 0


async def test_a_killed_master_sends_what_it_has_not_sent(alerted) -> None:
    await hook(alerted)
    await ended(alerted)
    await alerted.world.reboot()
    alerted.renew()
    assert await alerted.send() == 1
    assert await alerted.send() == 1


async def test_what_the_owner_may_no_longer_read_is_not_sent(alerted) -> None:
    world = alerted.world
    made = await world.submit(config())
    to_bob = GrantTo(kind="user", name="bob")
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob"))
    theirs = await hook(alerted, BOB, triggers=[])
    await alerted.rule(BOB, "completed", experiment_id=made.id, webhook=theirs.id)
    await world.finish(made.id)
    await alerted.evaluate()
    assert await alerted.calls() == 1
    await world.services[Grants].remove(ALICE, made.id, to_bob)
    assert await alerted.send() == 0
    assert await alerted.calls() == 0
    assert (await alerted.webhooks.get(BOB, "chat")).delivered == 0


async def test_a_webhook_is_its_owners(alerted) -> None:
    mine = await hook(alerted)
    for name in (str(mine.id), "chat", f"{mine.id + 1}"):
        for refused in (
            alerted.webhooks.get(BOB, name),
            alerted.webhooks.delete(BOB, name),
            alerted.webhooks.test(BOB, name),
            alerted.webhooks.calls(BOB, name),
        ):
            with pytest.raises(NotFound, match="there is no webhook"):
                await refused
    for caller in (BOB, ROOT):
        with pytest.raises(NotFound):
            await alerted.rule(caller, "completed", webhook=mine.id)
    assert (await alerted.webhooks.list(BOB)).items == []
    (seen,) = (await alerted.webhooks.list(ROOT)).items
    assert (seen.owner, seen.url, seen.secret) == ("alice", "https://hooks.example/…", "")
    with pytest.raises(Conflict):
        await hook(alerted)
    await hook(alerted, BOB)
    assert (await alerted.webhooks.delete(ALICE, "chat")).id == mine.id
    assert (await alerted.alerts.rules(ALICE)).items == []


async def test_a_webhook_that_is_gone_is_not_called(alerted) -> None:
    await hook(alerted)
    await ended(alerted)
    assert await alerted.calls() == 1
    await alerted.webhooks.delete(ALICE, "chat")
    assert await alerted.calls() == 0
    assert await alerted.send() == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8642/services/detlab/",
        "http://[::1]/",
        "http://loop.example/",
        "http://inside.example/",
        "http://meta.example/latest/meta-data/",
        "http://169.254.169.254/",
        "http://10.0.0.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
    ],
)
async def test_an_address_inside_is_refused_in_words_that_tell_nothing(alerted, url) -> None:
    with pytest.raises(ConfigError) as refused:
        await hook(alerted, url=url)
    assert "no such host, or its address is not public" in str(refused.value)


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "https://", "https://u:p@a.example/", "https://a.example/\r\nX: y"]
)
def test_what_is_no_address_is_refused(url) -> None:
    with pytest.raises(ValidationError):
        CreateWebhook(name="chat", url=url)


async def test_an_address_that_turns_inside_later_is_not_called(alerted) -> None:
    await hook(alerted, url="https://turns.example/")
    await ended(alerted)

    async def inside(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    sender = WebhookSender(alerted.world.services.context, Outgoing(Allowed(), resolve=inside))
    await sender.step()
    (call,) = (await alerted.webhooks.calls(ALICE, "chat")).items
    assert "not public" in call.error


async def test_the_operators_hosts_are_not_users(make_world) -> None:
    """That the operator's webhook is inside lets no user call that host."""
    from detlab_hub.services.base.settings import Webhook

    world = await make_world(losses(1.0), webhooks=(Webhook("http://127.0.0.1:9/hook"),))
    with pytest.raises(Exception, match="not public"):
        await outgoing_for_users(world.services.context).check("http://127.0.0.1:9/other")


async def test_a_test_call_is_sent_and_limited(alerted) -> None:
    await hook(alerted, triggers=[])
    await alerted.webhooks.test(ALICE, "chat")
    assert await alerted.send() == 1
    assert json.loads(alerted.receiver.heard[0].content)["event_data"]["custom_alert"]["kind"] == "test"
    for _ in range(5):
        await alerted.webhooks.test(ALICE, "chat")
    with pytest.raises(Conflict):
        await alerted.webhooks.test(ALICE, "chat")


async def test_many_calls_of_one_user_do_not_delay_those_of_another(alerted) -> None:
    await hook(alerted)
    await hook(alerted, BOB)
    alice, bob = await alerted.world.services.context.read(lambda s: [one.id for one in s.query(HookRow)])

    def pile(unit) -> None:
        for number in range(300):
            target, owner = (webhooks.target_of(alice), "alice") if number < 298 else (webhooks.target_of(bob), "bob")
            told = {"kind": "test", "level": "info", "title": str(number), "text": ""}
            unit.session.add(
                WebhookRow(url=target, owner=owner, event="test", body=told, created_at=unit.now, due_at=unit.now)
            )

    await alerted.world.services.context.write(pile)
    found = await alerted.world.services.context.read(lambda s: webhooks.due(s, alerted.world.now, 10))
    assert [one.owner for one in found] == ["alice", "bob"] * 2 + ["alice"] * 6


async def test_a_receiver_that_hangs_holds_up_no_other(alerted) -> None:
    hanging, free = asyncio.Event(), asyncio.Event()
    heard = alerted.receiver.heard

    class Hangs(type(alerted.receiver)):
        async def __call__(self, request):
            reply = await super().__call__(request)
            if request.url.host == "hangs.example":
                hanging.set()
                await free.wait()
            return reply

    alerted.receiver.__class__ = Hangs
    await hook(alerted, url="https://hangs.example/", triggers=[])
    await hook(alerted, BOB, triggers=[])
    await alerted.webhooks.test(ALICE, "chat")
    running = asyncio.create_task(alerted.sender.run())
    await asyncio.wait_for(hanging.wait(), 10)
    await alerted.webhooks.test(BOB, "chat")
    async with asyncio.timeout(10):
        while not any(one.url.host == "hooks.example" for one in heard):
            await asyncio.sleep(0.01)
    free.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_experiment_chooses_its_webhooks(alerted) -> None:
    ours = await hook(alerted, name="ours")
    await hook(alerted, name="others")
    await ended(alerted, integrations={"webhooks": {"webhook_name": ["ours"]}})
    await ended(alerted, integrations={"webhooks": {"exclude": True}})
    assert await alerted.send() == 1
    assert (await alerted.webhooks.get(ALICE, str(ours.id))).delivered == 1


class RealReceiver(RequestHandler):
    """Takes calls over HTTP."""

    def post(self) -> None:
        self.settings["taken"].append(json.loads(self.request.body)["event_data"]["custom_alert"]["title"])


def listen(taken: list[str], port: int = 0) -> tuple[HTTPServer, int]:
    server = HTTPServer(Application([("/hook", RealReceiver)], taken=taken))
    (sock,) = bind_sockets(port, "127.0.0.1")
    server.add_sockets([sock])
    return server, sock.getsockname()[1]


async def test_a_real_receiver_that_is_killed_and_comes_back_misses_nothing_and_gets_nothing_twice(make_world) -> None:
    world = await make_world(deaf(1), outgoing_allowed=("127.0.0.1",))
    await world.add_agent()
    alerted, taken = Alerted(world), []
    server, port = listen(taken)
    alerted.webhooks = world.services[Webhooks]
    sender = WebhookSender(world.services.context)
    await hook(alerted, url=f"http://127.0.0.1:{port}/hook", triggers=["alert"])
    await world.submit(config())
    await world.steps(3)
    await say(world, "x", title="first")
    await sender.step()
    server.stop()
    await server.close_all_connections()
    await say(world, "x", title="second")
    await say(world, "x", title="third")
    await sender.step()
    assert taken == ["first"]
    server, _ = listen(taken, port)
    world.now += 3600.0
    await sender.step()
    assert await sender.step() == 0
    assert taken == ["first", "second", "third"]
    server.stop()
    await server.close_all_connections()


async def test_a_copy_of_a_cluster_calls_nobody(alerted) -> None:
    await hook(alerted)
    await ended(alerted)
    object.__setattr__(alerted.world.services.settings, "is_copy", True)
    assert await alerted.send() == 0
