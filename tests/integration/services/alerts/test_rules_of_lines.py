"""Rules about lines of output (Determined's TASKLOG): what is found, who is told, and what it may cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alerted_world import Alerted
from pydantic import ValidationError
from services_scripted import ALICE, BOB, config

from detlab.errors import ConfigError
from detlab.schemas.wire.grants import GrantRequest, GrantTo
from detlab.schemas.wire.notify.webhooks import CreateWebhook
from detlab_hub.services.alerts import of_lines
from detlab_hub.services.experiments import removal
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.store.tables import AlertMarkRow, Meta


def printing(*lines: str) -> Callable[[Any], Iterator[Any]]:
    """A script that prints lines, one a batch."""

    def script(launch: Any) -> Iterator[Any]:
        for line in lines:
            yield ("log", 0, line)
        yield ("exit", 0)

    return script


@pytest.fixture
async def alerted(make_world: Any) -> Alerted:
    world = await make_world(printing("fine", "loss is nan", "loss is inf", "CUDA error: 3 <img src=x>"))
    await world.add_agent()
    return Alerted(world)


async def finished(alerted: Alerted, **more: Any) -> Any:
    made = await alerted.world.submit(config(**more))
    await alerted.world.finish(made.id)
    return made


async def test_a_line_is_told_once_of_a_trial_by_bell_and_webhook(alerted: Alerted) -> None:
    hook = await alerted.webhooks.create(ALICE, CreateWebhook(name="ci", url="https://ci.example.com/hook"))
    rule = await alerted.rule(ALICE, "log", pattern=r"loss is (nan|inf)", webhook=hook.id)
    await alerted.rule(ALICE, "log", pattern="no such line")
    await alerted.rule(BOB, "log", pattern="loss")
    made = await finished(alerted, name="mine")
    (told,) = await alerted.told(ALICE)
    assert (told.kind, told.experiment_id) == ("log", made.id)
    assert told.title == f"trial {told.trial_id} of experiment {made.id} (mine) printed"
    assert told.text == "loss is nan\n\nfits loss is (nan|inf)"
    assert await alerted.told(BOB) == []
    assert await alerted.send() == 1
    call = json.loads(alerted.receiver.heard[0].content)
    assert (call["event_type"], call["condition"]) == ("TASKLOG", {"regex": "loss is (nan|inf)"})
    log = call["event_data"]["task_log"]
    assert (log["task_id"], log["triggering_log"]) == (f"trial-{told.trial_id}", "loss is nan")
    assert log["node_name"]
    assert call["event_data"]["experiment"]["id"] == made.id
    assert [one.pattern for one in (await alerted.alerts.rules(ALICE)).items] == ["loss is (nan|inf)", "no such line"]
    await finished(alerted)
    assert len(await alerted.told(ALICE)) == 2, "once of each trial"
    await alerted.alerts.remove_rule(ALICE, rule)
    await finished(alerted)
    assert len(await alerted.told(ALICE)) == 2


async def test_plain_text_is_found_and_stays_text(alerted: Alerted) -> None:
    await alerted.rule(ALICE, "log", pattern="<img src=x>")
    await finished(alerted)
    (told,) = await alerted.told(ALICE)
    assert told.text.startswith("CUDA error: 3 <img src=x>\n")


async def test_a_secret_of_the_config_is_masked(alerted: Alerted) -> None:
    alerted.world.script = printing("token hunter2hunter2 is wrong")
    await alerted.rule(ALICE, "log", pattern="is wrong$")
    await finished(alerted, environment={"environment_variables": ["HF_TOKEN=hunter2hunter2"]})
    (told,) = await alerted.told(ALICE)
    assert "hunter2" not in told.text
    assert "is wrong" in told.text


async def test_a_secret_across_the_end_of_what_is_told_of_a_long_line_is_masked(alerted: Alerted) -> None:
    alerted.world.script = printing("wrong token" + "." * (of_lines.SHOWN_CHARS - 20) + "hunter2hunter2")
    await alerted.rule(ALICE, "log", pattern="wrong")
    await finished(alerted, environment={"environment_variables": ["HF_TOKEN=hunter2hunter2"]})
    (told,) = await alerted.told(ALICE)
    assert "wrong token..." in told.text
    assert "hunter" not in told.text, "cut before it is masked, half a secret is told"


async def test_who_may_not_read_the_experiment_has_nothing_looked_for_in_it(
    alerted: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await finished(alerted)
    await alerted.world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob"))
    await alerted.rule(BOB, "log", pattern="loss is n.n", experiment_id=made.id)
    await alerted.world.services[Grants].remove(ALICE, made.id, GrantTo(kind="user", name="bob"))
    looked = []
    real = of_lines.search_lines
    monkeypatch.setattr(of_lines, "search_lines", lambda *args: looked.append(args) or real(*args))
    await finished(alerted)
    assert looked == []
    assert await alerted.told(BOB) == []


async def test_a_pattern_that_takes_too_long_is_given_up_and_its_owner_told_once(
    alerted: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_lines, "search_lines", lambda pattern, texts, seconds: ([], 0))
    rule = await alerted.rule(ALICE, "log", pattern="(a|b)*c.")
    await finished(alerted)
    await finished(alerted)
    (told,) = await alerted.told(ALICE)
    assert told.title == f"rule {rule} is not looked at any more"
    assert f"det alert remove-rule {rule}" in told.text


async def test_what_is_deleted_leaves_nothing(alerted: Alerted) -> None:
    made = await finished(alerted)
    await alerted.rule(ALICE, "log", pattern="loss", experiment_id=made.id)
    rule = await alerted.rule(ALICE, "log", pattern="loss")
    again = await finished(alerted)
    count = alerted.world.services.context.read
    assert await count(lambda s: s.query(AlertMarkRow).count()) == 1
    for one in (made, again):
        context = alerted.world.services.context
        await context.write(lambda unit, gone=one.id: setattr(unit.experiment(gone), "state", "DELETING"))
        await removal.remove_experiment(context, one.id)
    assert await count(lambda s: s.query(AlertMarkRow).count()) == 0
    kept = await count(lambda s: [one.value for one in s.query(Meta).filter(Meta.key.startswith("pattern of"))])
    assert kept == ["loss"], "the rule of the experiment is gone with it"
    await alerted.alerts.remove_rule(ALICE, rule)
    assert await count(lambda s: s.query(Meta).filter(Meta.key.startswith("pattern of")).count()) == 0


async def test_a_pattern_that_is_none_is_refused(alerted: Alerted) -> None:
    with pytest.raises(ConfigError) as refused:
        await alerted.rule(ALICE, "log", pattern="(?=x)")
    assert [one.path for one in refused.value.problems] == ["pattern"]
    for wrong in ({"kind": "log"}, {"kind": "failed", "pattern": "x"}, {"kind": "log", "pattern": "x" * 501}):
        with pytest.raises(ValidationError):
            await alerted.rule(ALICE, wrong.pop("kind"), **wrong)


async def test_rules_of_others_leave_the_owners_their_time(alerted: Alerted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_lines, "MOST_RULES", 2)
    place = await alerted.world.workspace("vision", "digits", bob="viewer")
    for _ in range(3):
        await alerted.rule(BOB, "log", pattern="no such line", workspace=str(place.id))
    await alerted.rule(ALICE, "log", pattern="loss is n.n")
    await finished(alerted, workspace="vision", project="digits")
    assert await alerted.kinds(ALICE) == ["log"]
