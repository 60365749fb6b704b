"""One stream for all views of a page: the states of everything, and the metrics of what it follows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from detlab.client.transport.streaming import event_feed
from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.queries import events

pytestmark = pytest.mark.hub

CONFIG = {
    "name": "followed",
    "entrypoint": ["true"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "resources": {"slots_per_trial": 0},
}
SECONDS = 20.0


async def create(client: Any) -> int:
    reply = await client.post("experiments", json={"config": CONFIG})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["experiment"]["id"])


async def report(master: Any, experiment: int, trial: int, group: str = "validation", **metrics: float) -> None:
    """Append a metrics event as a report does."""
    data = {"group": group, "steps_completed": 1, "run": 1, "metrics": metrics}
    context = master.services[Stream]._context
    await context.write(lambda unit: events.append(unit.session, "metrics", 1.0, experiment, trial, data))
    context.wakeups.wake("streams")


def metrics(found: list[dict[str, Any]]) -> list[tuple[int, int, dict[str, float]]]:
    return [(e["experiment_id"], e["trial_id"], e["data"]["metrics"]) for e in found if e["kind"] == "metrics"]


async def test_states_of_all_and_metrics_of_what_is_followed_come_in_order(master: Any) -> None:
    async with master.client() as client:
        one, two, three = [await create(client) for _ in range(3)]
        await report(master, one, 11, loss=1.0, other=2.0)
        await report(master, one, 11, "training", loss=3.0)
        await report(master, two, 21, a=4.0, b=5.0)
        await report(master, two, 22, a=6.0)
        await report(master, three, 31, a=7.0)
        await report(master, two, 21, last=8.0)
        follow = [
            {"experiment": one, "group": "validation", "name": "loss"},
            {"experiment": two, "trial": 21},
            {"experiment": two, "group": "validation", "name": "b"},
        ]
        everything = []
        async with asyncio.timeout(SECONDS):
            params = {"after": 0, "follow": json.dumps(follow)}
            async with client.stream("GET", "stream", params=params) as reply:
                async for line in reply.aiter_lines():
                    everything += [json.loads(line)] if line else []
                    if everything and "last" in everything[-1]["data"].get("metrics", {}):
                        break
        expected = [(one, 11, {"loss": 1.0}), (two, 21, {"a": 4.0, "b": 5.0}), (two, 21, {"last": 8.0})]
        assert metrics(everything) == expected
        assert {e["experiment_id"] for e in everything if e["kind"] == "experiment"} == {one, two, three}
        ids = [e["id"] for e in everything]
        assert ids == sorted(set(ids))


@pytest.mark.parametrize("follow", ["", "{", "1", '[{"experiment": "x"}]', "[{}]", "[" + ",".join(["{}"] * 600) + "]"])
async def test_a_malformed_follow_is_refused(master: Any, follow: str) -> None:
    async with master.client() as client:
        reply = await client.get("stream", params={"follow": follow})
        assert reply.status_code == 422, reply.text


async def test_names_with_a_comma_are_told_apart(master: Any) -> None:
    feed = event_feed(1, 0, names=("a,b", "c"), groups=("validation",))
    async with master.client() as client:
        made = await create(client)
        await report(master, made, 11, **{"a,b": 1.0, "a": 2.0, "b": 3.0, "c": 4.0})
        params = {"after": 0, "names": json.dumps(["a,b", "c"])}
        assert params["names"] in str(feed.__dict__)
        async with asyncio.timeout(SECONDS), client.stream("GET", f"experiments/{made}/stream", params=params) as reply:
            async for line in reply.aiter_lines():
                if line and (event := json.loads(line))["kind"] == "metrics":
                    assert event["data"]["metrics"] == {"a,b": 1.0, "c": 4.0}
                    break
            else:
                pytest.fail("the stream ended without what it was to follow")
        for text in ("[0]", '["', '[1, "a"]', '["a"'):  # these are names themselves
            reply = await client.get("trials/1/metrics", params={"name": text})
            assert reply.status_code == 200, f"{text} is no mistake: {reply.text}"
