"""Secrets of configs, data and registries in nothing that anybody is shown: every view, every stream, dry runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel
from services_scripted import ALICE, ROOT, World, config

from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.streams.stream import Stream
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.usertasks import UserTasks

DATA, REGISTRY = "the-datas-secret", "the-registrys-secret"
ENVIRONMENT = {"registry_auth": {"username": "puller", "password": REGISTRY}}


def printed(value: Any) -> str:
    """All that a view or a list of views says."""
    return json.dumps(
        value, default=lambda one: one.model_dump(mode="json") if isinstance(one, BaseModel) else str(one)
    )


def task(kind: TaskKind = TaskKind.COMMAND, **more: Any) -> CreateTask:
    entry = {"entrypoint": "true"} if kind is TaskKind.COMMAND else {}
    return CreateTask(kind=kind, config={**entry, "environment": ENVIRONMENT}, **more)


async def views(world: World, experiment_id: int, task_id: str) -> dict[str, Any]:
    """What each use case that shows experiments or tasks answers their owner and an administrator."""
    services, found = world.services, {}
    for who in (ALICE, ROOT):
        experiments, stream = services[Experiments], services[Stream].events(who, None, after=0)
        found |= {
            f"experiment {who.name}": await experiments.get(who, experiment_id),
            f"experiments {who.name}": await experiments.list(who),
            f"trials {who.name}": await experiments.trials(who, experiment_id),
            f"curves {who.name}": await experiments.curves(who, experiment_id),
            f"checkpoints {who.name}": await experiments.checkpoints(who, experiment_id),
            f"overview {who.name}": await services[Overview].view(who),
            f"timeline {who.name}": await services[Timeline].view(who, experiment_id),
            f"task {who.name}": await services[UserTasks].get(who, task_id),
            f"tasks {who.name}": await services[UserTasks].list(who),
            f"stream {who.name}": list(await anext(stream)),
        }
        await stream.aclose()
    trial = found["trials alice"][0][0].id
    found["trial"] = await services[Trials].get(ALICE, trial)
    found["checkpoint"] = await services[Checkpoints].get(ALICE, found["checkpoints alice"][0].uuid)
    found["audit"] = await services[Audit].page(ROOT, limit=100)
    return found


async def test_no_view_and_no_stream_shows_a_secret(make_world):
    world = await make_world()
    await world.add_agent()
    asked = config(name="quiet", data={"secrets": {"key": DATA}}, environment=ENVIRONMENT)
    made = await world.services[Experiments].create(ALICE, CreateExperiment(config=asked))
    dry = await world.services[Experiments].create(ALICE, CreateExperiment(config=asked, dry_run=True))
    await world.finish(made.experiment.id)
    started = await world.services[UserTasks].create(ALICE, task())
    shown = await views(world, made.experiment.id, started.task.id)
    shown |= {"created": made, "dry": dry, "task created": started}
    told = {name: [secret for secret in (DATA, REGISTRY) if secret in printed(view)] for name, view in shown.items()}
    assert not {name: secrets for name, secrets in told.items() if secrets}
    for name in ("experiment alice", "created", "dry", "task alice", "task created"):
        assert MASK in printed(shown[name]), name


@pytest.mark.parametrize("secrets", [DATA, [DATA], [{"key": DATA}], {"key": [DATA]}, {"outer": {"key": DATA}}])
async def test_data_secrets_of_every_shape_are_masked(make_world, secrets):
    """Only those of a mapping were masked: `data.secrets` that is a text or a list was shown as it is."""
    world = await make_world()
    await world.add_agent()
    asked = config(name="quiet", data={"other": "plain", "secrets": secrets}, environment=ENVIRONMENT)
    dry = await world.services[Experiments].create(ALICE, CreateExperiment(config=asked, dry_run=True))
    made = await world.services[Experiments].create(ALICE, CreateExperiment(config=asked))
    await world.finish(made.experiment.id)
    started = await world.services[UserTasks].create(ALICE, task())
    shown = await views(world, made.experiment.id, started.task.id) | {"created": made, "dry": dry}
    assert [name for name, view in shown.items() if DATA in printed(view)] == []
    masked = dict.fromkeys(secrets, MASK) if isinstance(secrets, dict) else MASK
    for reply in (dry, made):
        assert reply.config["data"] == {"other": "plain", "secrets": masked}


@pytest.mark.parametrize("kind", [TaskKind.COMMAND, TaskKind.NOTEBOOK])
async def test_the_reply_to_a_new_task_masks_the_registrys_password(make_world, kind):
    """`POST tasks` answered the config as it was sent, and a dry run likewise."""
    world = await make_world()
    await world.add_agent()
    services = world.services
    create = services[UserTasks].create if kind is TaskKind.COMMAND else services[Servers].start
    dry = await create(ALICE, task(kind, dry_run=True))
    assert dry.config["environment"]["registry_auth"] == {"username": "puller", "password": MASK}
    if kind is TaskKind.COMMAND:
        made = await create(ALICE, task(kind))
        assert made.config == made.task.config
