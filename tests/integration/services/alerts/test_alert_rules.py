"""Rules of alerts in a whole master: what is told, to whom, once, and never what one may not read."""

from __future__ import annotations

import time

import pytest
from alerted_world import Alerted, failing, losses, say
from pydantic import ValidationError
from services_scripted import ALICE, BOB, ROOT, config, deaf, report
from sqlalchemy import event

from detlab.errors import NotFound
from detlab.schemas.wire.grants import GrantRequest, GrantTo
from detlab.schemas.wire.notify.alerts import ReadAlerts, SetAlertRule
from detlab.schemas.wire.runs import BeginRun, RunRecords
from detlab.schemas.wire.workspaces import MemberRequest
from detlab_hub.services.alerts import evaluation
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.experiments import removal
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.notify.telling import OF_RUN
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.tracking.reports import RunReports
from detlab_hub.store.queries import consumers, events
from detlab_hub.store.tables import AlertRow, AlertRuleRow, EventConsumerRow, ExperimentRow

TO_BOB = GrantTo(kind="user", name="bob")


@pytest.fixture
async def alerted(make_world):
    world = await make_world(losses(1.0, 0.995, 0.5, 0.6))
    await world.add_agent()
    return Alerted(world)


async def test_the_end_and_an_improvement_are_told_once(alerted) -> None:
    world = alerted.world
    await alerted.rule(ALICE, "completed")
    await alerted.rule(ALICE, "improved", amount=1.0)
    await alerted.rule(ALICE, "failed")
    made = await world.submit(config(name="mine"))
    await world.finish(made.id)
    told = await alerted.told(ALICE)
    assert [(one.kind, one.experiment_id) for one in told] == [("improved", made.id), ("completed", made.id)]
    assert told[0].text == "loss: 1 before, 0.5 now", "0.995 is no percent better, and 0.6 is worse"
    assert "mine" in told[1].title
    assert await alerted.kinds(ALICE) == ["improved", "completed"]
    assert await alerted.told(BOB) == []


async def test_a_failure_says_why(alerted) -> None:
    alerted.world.script = failing
    await alerted.rule(ALICE, "failed")
    made = await alerted.world.submit(config(max_restarts=0))
    await alerted.world.finish(made.id)
    (told,) = await alerted.told(ALICE)
    assert (told.kind, told.level) == ("failed", "error")
    assert f"det experiment describe {made.id}" in told.text


async def test_a_plateau_is_told_until_something_is_better(alerted) -> None:
    alerted.world.script = losses(1.0, 1.1, 1.2, 1.3, 0.9, 0.95, 0.95, float("nan"))
    await alerted.rule(ALICE, "plateau", amount=2)
    made = await alerted.world.submit(config())
    await alerted.world.finish(made.id)
    told = await alerted.told(ALICE)
    assert [one.text for one in told] == [
        "loss: 2 validations without a better value; the best is 1",
        "loss: 2 validations without a better value; the best is 0.9",
    ]


async def test_what_breaks_a_constraint_is_no_improvement(alerted) -> None:
    def script(launch):
        for step, (loss, size) in enumerate([(1.0, 1), (0.1, 90), (0.9, 2), (0.2, 91), (0.1, 90)], start=1):
            yield report(step, loss=loss, size=size)
        yield ("exit", 0)

    alerted.world.script = script
    await alerted.rule(ALICE, "improved", amount=1.0)
    await alerted.rule(ALICE, "plateau", amount=2)
    searcher = {"name": "single", "metric": "loss", "constraints": {"size": {"max": 10}}}
    made = await alerted.world.submit(config(searcher))
    await alerted.world.finish(made.id)
    told = await alerted.told(ALICE)
    assert [one.text for one in told] == [
        "loss: 1 before, 0.9 now",
        "loss: 2 validations without a better value; the best is 0.9",
    ]


async def test_a_killed_master_tells_nothing_twice_and_leaves_nothing_out(alerted) -> None:
    world = alerted.world
    await alerted.rule(ALICE, "improved", amount=1.0)
    await alerted.rule(ALICE, "completed")
    made = await world.submit(config())
    for _ in range(40):
        await world.step()
        await alerted.evaluate()
        await world.reboot()
        alerted.renew()
    assert (await world.view(made.id)).state.terminal
    assert await alerted.kinds(ALICE) == ["improved", "completed"]


async def test_what_waits_is_told_once_for_each_wait(make_world) -> None:
    world = await make_world(losses(1.0))
    alerted = Alerted(world)
    await alerted.rule(ALICE, "waiting", amount=3600.0)
    made = await world.submit(config())
    await world.step()
    assert await alerted.told(ALICE) == []
    world.now += 3700.0
    (told,) = await alerted.told(ALICE)
    assert (told.kind, told.experiment_id) == ("waiting", made.id)
    world.now += 3700.0
    assert len(await alerted.told(ALICE)) == 1
    await world.add_agent()
    await world.finish(made.id)
    assert len(await alerted.told(ALICE)) == 1


async def test_a_budget_is_told_of_before_it_is_used_up(make_world) -> None:
    world = await make_world(deaf(3))
    await world.add_agent()
    alerted = Alerted(world)
    await alerted.rule(ALICE, "budget", amount=80.0)
    searcher = {"name": "random", "metric": "loss", "max_trials": 1, "budget": {"slot_hours": 1}}
    made = await world.submit(config(searcher))
    await world.steps(3)
    world.now += 0.5 * 3600.0
    assert await alerted.told(ALICE) == []
    world.now += 0.35 * 3600.0
    told = await alerted.told(ALICE)
    assert [(one.kind, one.experiment_id) for one in told] == [("budget", made.id)]
    assert len(await alerted.told(ALICE)) == 1


async def test_a_rule_about_what_one_may_no_longer_read_tells_nothing(alerted) -> None:
    """And what was told before is gone from the list, too."""
    world = alerted.world
    made = await world.submit(config())
    with pytest.raises(NotFound):
        await alerted.rule(BOB, "completed", experiment_id=made.id)
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob"))
    await alerted.rule(BOB, "completed", experiment_id=made.id)
    await alerted.rule(BOB, "improved", experiment_id=made.id)
    while not await alerted.kinds(BOB):
        await world.step()
    assert await alerted.kinds(BOB) == ["improved"]
    await world.services[Grants].remove(ALICE, made.id, TO_BOB)
    await world.finish(made.id)
    assert await alerted.told(BOB) == []
    assert (await alerted.alerts.list(BOB)).unread == 0
    kept = await world.services.context.read(lambda s: [row.kind for row in s.query(AlertRow).all()])
    assert kept == ["improved"], "the end was not told at all"


async def test_a_rule_of_a_project_tells_its_members(alerted) -> None:
    world = alerted.world
    place = await world.workspace("vision", "digits", bob="viewer")
    await alerted.rule(BOB, "completed", workspace=str(place.id), project="digits")
    await alerted.rule(BOB, "alert", workspace=str(place.id))
    stranger = Caller("mallory")
    with pytest.raises(NotFound):
        await alerted.rule(stranger, "completed", workspace=str(place.id))
    made = await world.submit(config(workspace="vision", project="digits"))
    await world.submit(config())
    await world.finish(made.id)
    assert [one.experiment_id for one in await alerted.told(BOB)] == [made.id]
    rules = (await alerted.alerts.rules(BOB)).items
    assert [one.scope_name for one in rules] == ["alice/vision/digits", "alice/vision"]
    await world.services[MembersOfWorkspaces].remove(ALICE, str(place.id), TO_BOB)
    again = await world.submit(config(workspace="vision", project="digits"))
    await world.finish(again.id)
    assert await alerted.told(BOB) == []
    assert [one.scope_name for one in (await alerted.alerts.rules(BOB)).items] == ["", ""]
    await world.services[MembersOfWorkspaces].put(
        ALICE, str(place.id), MemberRequest(kind="user", name="bob", role="viewer")
    )
    assert [one.experiment_id for one in await alerted.told(BOB)] == [made.id], "with the right they are back"


async def test_what_code_says_is_for_its_owner_and_for_rules(make_world) -> None:
    world = await make_world(deaf(1))
    await world.add_agent()
    alerted = Alerted(world)
    place = await world.workspace("vision", bob="viewer")
    await alerted.rule(BOB, "alert", workspace=str(place.id))
    made = await world.submit(config(workspace="vision"))
    await world.steps(3)
    hostile = "<img src=x onerror=alert(1)>\x1b[31m\u202e & <b>"
    await say(world, hostile, title="<script>", level="WARNING")
    for caller in (ALICE, BOB):
        (told,) = await alerted.told(caller)
        assert (told.title, told.text, told.level) == ("<script>", hostile, "warn")
        assert (told.kind, told.experiment_id) == ("alert", made.id)
    assert await alerted.told(ROOT) == [], "an administrator is told of what they have rules for"


async def test_a_storm_of_alerts_is_limited_and_says_so(make_world) -> None:
    world = await make_world(deaf(1))
    await world.add_agent()
    alerted = Alerted(world)
    made = await world.submit(config())
    await world.steps(3)
    await alerted.rule(ALICE, "alert")
    asked: list[str] = []
    event.listen(world.store._write_engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    await say(world, *(str(number) for number in range(500)))
    assert len(asked) < 40, "what is too much costs the writer no statement"
    told = await alerted.told(ALICE)
    assert [one.text for one in told] == [str(number) for number in range(OF_RUN)]
    assert told[-1].held_back == 490
    (trial,) = await world.trials(made.id)
    assert [one for one in trial.warnings if one.startswith("too many alerts")]
    world.now += 61.0
    await say(world, "later")
    assert len(await alerted.told(ALICE)) == OF_RUN + 1


async def test_alerts_are_read_by_their_owner_alone(alerted) -> None:
    await alerted.rule(ALICE, "completed")
    made = await alerted.world.submit(config())
    await alerted.world.finish(made.id)
    (told,) = await alerted.told(ALICE)
    assert (await alerted.alerts.list(ALICE)).unread == 1
    await alerted.alerts.read(BOB, ReadAlerts(ids=[told.id], upto=told.id))
    assert (await alerted.alerts.list(ALICE)).unread == 1
    assert (await alerted.alerts.read(ALICE, ReadAlerts(ids=[told.id]))).unread == 0
    assert [one.read for one in (await alerted.alerts.list(ALICE)).items] == [True]
    assert (await alerted.alerts.list(ALICE, unread=True)).items == []


async def test_rules_are_their_owners(alerted) -> None:
    rule = await alerted.rule(ALICE, "completed")
    with pytest.raises(NotFound):
        await alerted.alerts.remove_rule(BOB, rule)
    assert (await alerted.alerts.rules(BOB)).items == []
    assert (await alerted.alerts.remove_rule(ALICE, rule)).id == rule
    await alerted.evaluate()
    left = await alerted.world.services.context.read(lambda s: s.get(EventConsumerRow, "alerts"))
    assert left is None, "without rules no event is kept for them"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "completed", "amount": 1},
        {"kind": "improved", "amount": 0},
        {"kind": "improved", "amount": float("nan")},
        {"kind": "budget", "amount": 101},
        {"kind": "completed", "bell": False},
        {"kind": "completed", "experiment_id": 1, "project": "x"},
        {"kind": "often"},
        {"kind": "completed", "owner": "bob"},
    ],
)
def test_a_rule_that_means_nothing_is_refused(wrong) -> None:
    with pytest.raises(ValidationError):
        SetAlertRule.model_validate(wrong)


async def test_a_deleted_experiment_leaves_no_alert(alerted) -> None:
    await alerted.rule(ALICE, "completed")
    made = await alerted.world.submit(config())
    await alerted.world.finish(made.id)
    assert len(await alerted.told(ALICE)) == 1
    await alerted.world.services.context.write(lambda unit: setattr(unit.experiment(made.id), "state", "DELETING"))
    await removal.remove_experiment(alerted.world.services.context, made.id)
    await alerted.world.steps(3)
    assert await alerted.world.services.context.read(lambda s: s.query(AlertRow).count()) == 0


@pytest.mark.alone
async def test_a_thousand_rules_take_a_fraction_of_a_core(alerted) -> None:
    """Five percent of a core at 10,000 events a minute, of which these are a fifth."""

    def fill(unit) -> None:
        for number in range(100):
            unit.session.add(ExperimentRow(name="e", owner=f"u{number % 50}", state="ACTIVE", metric="loss", config={}))
        for number in range(1000):
            kind = ("completed", "failed", "improved", "plateau")[number % 4]
            unit.session.add(AlertRuleRow(owner=f"u{number // 4 % 250}", kind=kind, amount=20.0))
        consumers.register(unit.session, "alerts", unit.now)
        unit.session.flush()
        rows = []
        for number in range(2000):
            data = {"group": "validation", "steps_completed": number, "run": 1, "metrics": {"loss": number % 97 / 97}}
            rows.append(events.new("metrics", unit.now, number % 100 + 1, 1, data))
        events.append_all(unit.session, rows)

    await alerted.world.services.context.write(fill)
    begun, steps = time.process_time(), 0
    while await alerted.evaluation.step():
        steps += 1
    assert steps >= 3
    assert time.process_time() - begun < 0.6
    count = await alerted.world.services.context.read(lambda s: s.query(AlertRow).count())
    assert count >= 20


async def test_a_run_from_anywhere_tells_its_owner(alerted) -> None:
    reports = alerted.world.services[RunReports]
    begun = await reports.begin(ALICE, BeginRun(key="mine", writer="w", started=1.0))
    said = [
        {"kind": "begin", "seq": 1, "time": 1.0},
        *({"kind": "alert", "seq": 2 + number, "time": 1.0, "title": f"t{number}"} for number in range(12)),
    ]
    for _ in range(2):  # sent again after a lost answer
        await reports.take(ALICE, begun.run.id, "w", RunRecords.model_validate({"records": said}))
    told = await alerted.told(ALICE)
    assert [one.title for one in told] == [f"t{number}" for number in range(OF_RUN)]
    assert {one.run_id for one in told} == {begun.run.id}
    assert told[-1].held_back == 2
    with pytest.raises(NotFound):
        await reports.take(BOB, begun.run.id, "w", RunRecords.model_validate({"records": said}))


async def test_many_rules_of_one_user_write_no_more_at_once_than_few(alerted, monkeypatch) -> None:
    """Two hundred rules, told of five hundred experiments in one transaction, would stop the writer for minutes."""
    monkeypatch.setattr(evaluation, "MOST_OF_OWNER", 4)
    world = alerted.world
    for _ in range(2):
        await alerted.rule(ALICE, "completed")
    made = [await world.submit(config()) for _ in range(5)]
    for one in made:
        await world.finish(one.id)
    told = await alerted.told(ALICE)
    assert len(told) == 4, "each rule tells of two"
    assert sum(one.held_back for one in told) == 6, "and counts the three others"
