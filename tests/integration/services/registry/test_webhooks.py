"""Webhooks: every move of a label is told, signed, until it was taken; what is not committed is never told."""

from __future__ import annotations

import hashlib
import hmac
import json

import httpx
import pytest
from services_scripted import ALICE

from detlab.errors import Conflict
from detlab.schemas.wire.registry import MoveLabel, RemoveLabel
from detlab_hub.services.base.outgoing import Allowed, Outgoing
from detlab_hub.services.base.settings import Webhook
from detlab_hub.services.notify import sending
from detlab_hub.services.notify.outbox import WebhookSender
from detlab_hub.services.registry.labels import Labels
from detlab_hub.store.tables import WebhookRow

HOOK = Webhook("https://ops.example/hook", ("model.*",), "s3cret")
DEAF = Webhook("https://other.example/", ("model.something",))


class Receiver:
    def __init__(self) -> None:
        self.heard: list[httpx.Request] = []
        self.answers = [200]
        self.away: set[str] = set()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host=request.headers["Host"])  # it is called at an address
        self.heard.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == 0 or request.url.host in self.away:
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(answer, headers={"Location": "https://evil.example/"})


async def resolve(host: str, port: int) -> list[str]:
    return ["93.184.216.34"]


def calling(receiver: Receiver) -> Outgoing:
    return Outgoing(Allowed(), resolve=resolve, transport=httpx.MockTransport(receiver))


@pytest.fixture
async def told(place, monkeypatch):
    settings = place.services.settings
    object.__setattr__(settings, "webhooks", (HOOK, DEAF))
    await place.register(0)
    await place.register(1)
    receiver = Receiver()
    return place, receiver, WebhookSender(place.services.context, calling(receiver))


async def pending(place) -> int:
    return await place.services.context.read(lambda s: s.query(WebhookRow).count())


async def test_each_move_is_told_once_and_signed(told) -> None:
    place, receiver, hooks = told
    labels = place.services[Labels]
    await labels.move(ALICE, "digits", "production", MoveLabel(version=1, reason="first"))
    await labels.move(ALICE, "digits", "production", MoveLabel(version=1))
    with pytest.raises(Conflict):
        await labels.move(ALICE, "digits", "production", MoveLabel(version=2, expected=7))
    await labels.move(ALICE, "digits", "production", MoveLabel(version=2))
    await labels.remove(ALICE, "digits", "production", RemoveLabel())
    assert await pending(place) == 3
    assert await hooks.step() == 3
    assert await hooks.step() == 0
    bodies = [json.loads(request.content) for request in receiver.heard]
    assert [(one["data"]["from_version"], one["data"]["to_version"]) for one in bodies] == [
        (None, 1),
        (1, 2),
        (2, None),
    ]
    first = receiver.heard[0]
    assert str(first.url) == HOOK.url
    assert first.headers["X-Detlab-Event"] == bodies[0]["event"] == "model.label"
    wanted = hmac.new(b"s3cret", first.content, hashlib.sha256).hexdigest()
    assert first.headers["X-Detlab-Signature"] == f"sha256={wanted}"
    told = bodies[0]["data"]
    assert (told["model"]["name"], told["label"], told["by"], told["reason"]) == (
        "digits",
        "production",
        "alice",
        "first",
    )
    assert told["checkpoint"] == place.checkpoints[0]
    assert b"s3cret" not in first.content


@pytest.mark.parametrize("answer", [500, 404, 301, 0])
async def test_what_is_not_taken_is_told_again_later_and_later(told, answer) -> None:
    place, receiver, hooks = told
    receiver.answers = [answer]
    await place.services[Labels].move(ALICE, "digits", "production", MoveLabel(version=1))
    await place.services[Labels].move(ALICE, "digits", "production", MoveLabel(version=2))
    await hooks.step()
    assert len(receiver.heard) == 1, "the second would fail, too"
    assert all(request.url.host == "ops.example" for request in receiver.heard), "no redirect is followed"
    waits = []
    while len(waits) < 4:
        begun = place.world.now
        while len(receiver.heard) == len(waits) + 1:
            place.world.now += 1.0
            await place.services.context.write(_only_the_first_is_due)
            await hooks.step()
        waits.append(place.world.now - begun)
    assert waits == [5.0, 10.0, 20.0, 40.0]
    receiver.answers = [204]
    place.world.now += 3600.0
    await hooks.step()
    assert await pending(place) == 0


def _only_the_first_is_due(unit) -> None:
    first, *rest = unit.session.query(WebhookRow).order_by(WebhookRow.id)
    for row in rest:
        row.due_at = first.due_at + 1.0


async def test_moves_are_told_in_their_order_also_after_one_was_not_taken(told) -> None:
    place, receiver, hooks = told
    labels = place.services[Labels]
    receiver.answers = [500, 200]
    await labels.move(ALICE, "digits", "production", MoveLabel(version=1))
    await labels.move(ALICE, "digits", "production", MoveLabel(version=2))
    while await hooks.step():
        pass
    assert len(receiver.heard) == 1, "the second waits for the first"
    place.world.now += 6.0
    while await hooks.step():
        pass
    moved = [json.loads(request.content)["data"]["to_version"] for request in receiver.heard]
    assert moved == [1, 1, 2]
    assert await pending(place) == 0


async def test_a_receiver_that_is_away_holds_up_no_other(told, monkeypatch) -> None:
    place, receiver, _ = told
    monkeypatch.setattr(sending, "BATCH", 2)
    other = Webhook("https://fine.example/", ("model.*",))
    object.__setattr__(place.services.settings, "webhooks", (HOOK, other))
    receiver.away = {"ops.example"}
    hooks = WebhookSender(place.services.context, calling(receiver))
    for version in (1, 2, 1, 2):
        await place.services[Labels].move(ALICE, "digits", "production", MoveLabel(version=version))
    while await hooks.step():
        pass
    fine = [json.loads(one.content)["data"]["to_version"] for one in receiver.heard if one.url.host == "fine.example"]
    assert fine == [1, 2, 1, 2]
    assert await pending(place) == 4


async def test_a_receiver_that_is_gone_for_days_is_given_up(told) -> None:
    place, receiver, hooks = told
    receiver.answers = [0]
    await place.services[Labels].move(ALICE, "digits", "production", MoveLabel(version=1))
    await hooks.step()
    place.world.now += sending.GIVEN_UP_AFTER + 1.0
    await hooks.step()
    assert await pending(place) == 0


async def test_what_is_no_longer_configured_is_dropped(told) -> None:
    place, receiver, _ = told
    await place.services[Labels].move(ALICE, "digits", "production", MoveLabel(version=1))
    object.__setattr__(place.services.settings, "webhooks", ())
    hooks = WebhookSender(place.services.context, calling(receiver))
    await hooks.step()
    assert receiver.heard == []
    assert await pending(place) == 0
