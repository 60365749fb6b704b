"""Names and numbers that nobody means well with: refused in words, or kept as the text that they are."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT, config, training

from detlab.errors import ConfigError, Conflict
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import CreateExperiment, EnrolRequest
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import EnrolCaller, HubCaller
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import MOST_SHOWN, UserTasks
from detlab_hub.store.idempotency import KEY_CHARS

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m ${7*7} {{7*7}} ' or 1=1 -- =cmd|'/c calc'!A1"
HUB = HubCaller()


@pytest.fixture
async def world(make_world):
    made = await make_world(training(1))
    await made.add_agent()
    return made


@pytest.mark.parametrize(
    "name", ["", ".", "..", "enrol", "enrolments", "connect", "records", "../x", "a/b", "a\\b", "a\nb", "\0", "x" * 129]
)
async def test_an_agent_has_a_name_by_which_it_can_be_steered(world, name):
    made = await world.services[Agents].create_enrolment(ROOT, 60)
    caller = await world.services[Tokens].resolve(made.token)
    assert isinstance(caller, EnrolCaller)
    with pytest.raises(Conflict):
        await world.services[Agents].enrol(caller, EnrolRequest(agent_id=name))


async def test_an_agent_of_a_hostile_name_is_shown_and_sent_away(world):
    name = "<img src=x onerror=alert(1)> ${7*7}"
    made = await world.services[Agents].create_enrolment(ROOT, 60)
    await world.services[Agents].enrol(await world.services[Tokens].resolve(made.token), EnrolRequest(agent_id=name))
    assert name in [agent.id for agent in await world.services[Agents].list(ROOT)]
    assert name in [token.subject for token in (await world.services[Credentials].list(ROOT)).items]
    await world.services[Nodes].disable(ROOT, name)
    assert (await world.services[Nodes].remove(ROOT, name)).id == name
    assert name not in [agent.id for agent in await world.services[Agents].list(ROOT)]


def board(**more):
    return CreateTask(kind=TaskKind.TENSORBOARD, dry_run=True, **more)


@pytest.mark.parametrize("number", [-1, 0, 2**63, 10**30])
@pytest.mark.parametrize("which", ["experiment_ids", "trial_ids"])
async def test_a_number_that_no_database_holds_is_unknown_not_an_error(world, which, number):
    word = which.removesuffix("_ids")
    with pytest.raises(ConfigError, match=f"there is no {word} {number}"):
        await world.services[Servers].start(ALICE, board(**{which: [number]}))
    spawn = SpawnRequest(
        owner=ALICE.name, server_name="tb", key="k" * 16, kind=TaskKind.TENSORBOARD, **{which: [number]}
    )
    with pytest.raises(ConfigError, match=f"there is no {word}"):
        await world.services[Spawns].post(HUB, spawn)


async def test_more_than_can_be_looked_up_is_refused_before_it_is(world):
    made = await world.submit(config())
    with pytest.raises(ConfigError) as caught:
        await world.services[Servers].start(
            ALICE, board(experiment_ids=[made.id] * (MOST_SHOWN + 1), trial_ids=[1] * 500_000)
        )
    assert [problem.path for problem in caught.value.problems] == ["experiment_ids", "trial_ids"]
    command = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}, idempotency_key="k" * (KEY_CHARS + 1))
    with pytest.raises(ConfigError, match="idempotency_key"):
        await world.services[UserTasks].create(ALICE, command)
    submit = CreateExperiment(config=config(), idempotency_key="k" * (KEY_CHARS + 1))
    with pytest.raises(ConfigError, match="idempotency_key"):
        await world.services[Experiments].create(ALICE, submit)
    assert (await world.services[UserTasks].list(ALICE)).items == []


async def test_hostile_names_of_tasks_and_experiments_come_back_as_text(world):
    """What shows them must not have to guess what somebody else has escaped already."""
    shown = HOSTILE.strip()
    raw = {"entrypoint": ["true"], "description": shown}
    task = (
        await world.services[UserTasks].create(
            ALICE, CreateTask(kind=TaskKind.COMMAND, name=HOSTILE, config=raw, idempotency_key=HOSTILE)
        )
    ).task
    again = await world.services[UserTasks].create(
        ALICE, CreateTask(kind=TaskKind.COMMAND, name=HOSTILE, config=raw, idempotency_key=HOSTILE)
    )
    assert again.task.id == task.id
    made = await world.submit(config(name=shown, description=shown, labels=[shown], hyperparameters={"h": shown}))
    await world.finish(made.id)
    overview = await world.services[Overview].view(ALICE, everybody=False)
    assert HOSTILE in [one.name for one in overview.tasks]
    assert shown in [one.name for one in overview.experiments]
    page = await world.services[Audit].page(ROOT, before=None, limit=100, actor=None, action=None)
    assert HOSTILE in [action.detail for action in page.items]
    assert shown in [action.detail for action in page.items]
    (trial,) = (await world.services[Experiments].trials(ALICE, made.id, limit=10, after=None))[0]
    assert trial.hparams == {"h": shown}
