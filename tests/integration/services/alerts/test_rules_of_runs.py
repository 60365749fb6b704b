"""Rules about runs that no cluster started: their end, and what becomes of the metric by which they are measured."""

from __future__ import annotations

from typing import Any

import pytest
from alerted_world import Alerted
from services_scripted import ALICE, BOB

from detlab.schemas.wire.grants import GrantTo
from detlab.schemas.wire.runs import BeginRun, RunRecords
from detlab_hub.core.alerts import RuleMark
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.tracking.logging import LoggedBatch, RunLogging
from detlab_hub.services.tracking.removal import RunRemovals
from detlab_hub.services.tracking.reports import SILENT_SECONDS, RunReports
from detlab_hub.services.tracking.runs import NewRun, TrackedRuns
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.tables import AlertMarkRow


class TrackedScript:
    """A script elsewhere that sends records."""

    def __init__(self, alerted: Alerted, key: str, caller: Caller = ALICE) -> None:
        self.alerted, self.key, self.caller, self.seq, self.id = alerted, key, caller, 0, ""
        self.records: list[dict[str, Any]] = []
        self.project = ""

    async def say(self, kind: str, ago: float = 0.0, **more: Any) -> None:
        reports, now = self.alerted.world.services[RunReports], self.alerted.world.now
        if not self.id:
            wanted = BeginRun(key=self.key, writer="w", started=now, project=self.project)
            self.id = (await reports.begin(self.caller, wanted)).run.id
            await self.say("begin", ago)
        self.seq += 1
        self.records = [{"kind": kind, "seq": self.seq, "time": now - ago, **more}]
        await self.again()

    async def again(self) -> None:
        """Send the last records: after a lost answer they come twice."""
        sent = RunRecords.model_validate({"records": self.records})
        await self.alerted.world.services[RunReports].take(self.caller, self.id, "w", sent)

    async def losses(self, *values: float, ago: float = 0.0) -> None:
        for step, value in enumerate(values, 1):
            await self.say("metrics", ago, step=step, values={"val_loss": value, "loss": -value})


@pytest.fixture
async def alerted(make_world: Any) -> Alerted:
    return Alerted(await make_world())


@pytest.fixture
def script(alerted: Alerted) -> TrackedScript:
    return TrackedScript(alerted, "mine")


async def test_the_end_is_told_once(alerted: Alerted, script: TrackedScript) -> None:
    for kind in ("completed", "failed"):
        await alerted.rule(ALICE, kind)
        await alerted.rule(BOB, kind)
    await script.say("exit", status="FINISHED")
    await script.again()
    other = TrackedScript(alerted, "other")
    await other.say("exit", status="FAILED", reason="ValueError: no <b>data</b>")
    killed = TrackedScript(alerted, "killed")
    await killed.say("exit", status="KILLED")
    told = await alerted.told(ALICE)
    assert [(one.kind, one.level, one.title, one.text, one.run_id) for one in told] == [
        ("completed", "info", "run mine has completed", "", script.id),
        ("failed", "error", "run other has failed", "ValueError: no <b>data</b>", other.id),
    ]
    assert await alerted.told(BOB) == []


async def test_a_process_that_is_lost_has_failed(alerted: Alerted, script: TrackedScript) -> None:
    await alerted.rule(ALICE, "failed")
    await script.losses(1.0)
    alerted.world.now += SILENT_SECONDS + 60.0
    await alerted.world.services[RunReports].sweep()
    await alerted.world.services[RunReports].sweep()
    (told,) = await alerted.told(ALICE)
    assert "not heard from" in told.text


async def test_the_metric_that_is_named_improves_and_does_not(alerted: Alerted, script: TrackedScript) -> None:
    await alerted.rule(ALICE, "improved", amount=10.0)
    await alerted.rule(ALICE, "plateau", amount=2)
    await script.losses(5.0, 1.0)
    assert await alerted.told(ALICE) == [], "no metric is named yet"
    await script.say("tags", values={"detlab.metric": "min val_loss"})
    await script.losses(1.0, 0.95, 0.5)
    await script.again()
    await script.losses(0.6, float("nan"), 0.6)
    told = await alerted.told(ALICE)
    assert [one.text for one in told] == [
        "val_loss: 1 before, 0.5 now",
        "val_loss: 2 validations without a better value; the best is 0.5",
    ]


async def test_what_happened_long_ago_is_no_news(alerted: Alerted, script: TrackedScript) -> None:
    for kind in ("completed", "improved"):
        await alerted.rule(ALICE, kind)
    await script.say("tags", 86400.0, values={"detlab.metric": "max val_loss"})
    await script.losses(1.0, 2.0, ago=86400.0)
    await script.say("exit", 86400.0, status="FINISHED")
    assert await alerted.told(ALICE) == []


async def test_clients_of_mlflow_are_told_of_likewise(alerted: Alerted) -> None:
    services, now = alerted.world.services, alerted.world.now
    for kind in ("completed", "improved"):
        await alerted.rule(ALICE, kind)
    made = await services[TrackedRuns].create(
        ALICE, NewRun(place="0", name="theirs", tags={"detlab.metric": "max acc"})
    )
    for value in (0.5, 0.9):
        points = [LoggedPoint("acc", value, round(now * 1000), 1)]
        await services[RunLogging].log(ALICE, made.id, LoggedBatch(points=points))
    for _ in range(2):
        ended = round(now * 1000)
        await services[TrackedRuns].update(ALICE, made.id, status="FINISHED", ended_ms=ended, name=None)
    assert await alerted.kinds(ALICE) == ["improved", "completed"]
    await services[TrackedRuns].set_deleted(ALICE, made.id, True)
    await services[RunRemovals].remove(ALICE, made.id)
    assert await services.context.read(lambda s: s.query(AlertMarkRow).count()) == 0


async def test_members_of_a_workspace_have_rules_about_its_runs_as_long_as_they_are(
    alerted: Alerted, script: TrackedScript
) -> None:
    place = await alerted.world.workspace("vision", "digits", bob="viewer")
    await alerted.rule(BOB, "completed", workspace=str(place.id))
    script.project = "alice/vision/digits"
    await script.say("exit", status="FINISHED")
    assert await alerted.kinds(BOB) == ["completed"]
    to_bob = GrantTo(kind="user", name="bob")
    await alerted.world.services[MembersOfWorkspaces].remove(ALICE, str(place.id), to_bob)
    later = TrackedScript(alerted, "later")
    later.project = script.project
    await later.say("exit", status="FINISHED")
    assert await alerted.kinds(BOB) == []


async def test_a_look_from_elsewhere_leaves_the_evaluation_what_it_knows(alerted: Alerted) -> None:
    """It may be between two reads of a step: what it had read of an experiment must not be gone."""
    evaluation = alerted.evaluation
    await alerted.rule(ALICE, "failed")
    evaluation._marks[1, 2] = kept = RuleMark(value=1.0)
    assert (await evaluation.rules()).kinds == {"failed"}
    evaluation.rules_changed()
    first = await evaluation.rules()
    assert first.kinds == {"failed"}
    assert await evaluation.rules() is first, "it is read once"
    assert evaluation._marks == {(1, 2): kept}
    await alerted.rule(ALICE, "completed")
    assert (await evaluation.rules()).kinds == {"failed", "completed"}
