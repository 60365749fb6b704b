"""What an agent needs to start a task."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas import expconf
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import ClusterInfoWire, ContainerSpec, DeviceMount, Launch, Mount, ServiceSpec
from detlab_hub.services.sources import as_asked, lost_source, source_of
from detlab_hub.services.turn import Turn
from detlab_hub.store.queries import checkpoints, tokens
from detlab_hub.store.tables import AgentRow, AllocationRow, CheckpointRow, ExperimentRow, TrialRow

HUB_SERVER = ("python3", "-m", "detlab.launch.hub_server")


def build_launch(turn: Turn, row: AllocationRow) -> Launch | None:
    """The launch message of an assigned allocation, with a fresh task token.

    Sent again it is the same but for the token: the agent goes by allocation and run. None: a server of the Hub whose
    environment this master does not have (it was restarted); it is launched when the Hub's spawner sends it again.
    """
    if row.trial_id is None or row.experiment_id is None:
        return _user_task(turn, row)
    return _trial(turn, row, turn.trial(row.trial_id), turn.experiment(row.experiment_id))


def _trial(turn: Turn, row: AllocationRow, trial: TrialRow, experiment: ExperimentRow) -> Launch:
    checkpoint = resume_point(turn.session, experiment, trial)
    if checkpoint is None and (lost := lost_source(turn.session, experiment.config)):
        warning = f"checkpoint {lost}, which it was to start from, was deleted: it started from nothing"
        trial.warnings = [*(said for said in trial.warnings if said != warning), warning]
    own = checkpoint is not None and checkpoint.trial_id == trial.id
    row.resume_step = checkpoint.steps_completed if checkpoint is not None and own else None
    config = as_asked(experiment.config)
    agent = turn.session.get(AgentRow, row.agent_id)
    token, expires_at = _token(turn, row)
    info = _info(turn, row, agent, config).model_copy(
        update={
            "latest_checkpoint": None if checkpoint is None else checkpoint.uuid,
            "trial_id": trial.id,
            "trial_index": trial.idx,
            "experiment_id": experiment.id,
            "trial_seed": trial.seed,
            "hparams": trial.hparams,
        }
    )
    return Launch(
        allocation_id=row.id,
        run=row.run,
        owner=experiment.owner,
        slots=row.slots,
        entrypoint=expconf.command_of(config["entrypoint"], len(row.slots)),
        environment=_environment(config, agent),
        bundle=experiment.bundle,
        info=info,
        task_token=token,
        token_expires_at=expires_at,
        runtime="docker" if row.runtime == "docker" else "process",
        container=_container(config, agent) if row.runtime == "docker" else None,
        reach=_operators_directories(config, turn.settings.default_checkpoint_storage),
    )


def _user_task(turn: Turn, row: AllocationRow) -> Launch | None:
    task = turn.task(row.task_id or "")
    kind, config = TaskKind(task.kind), task.config
    secrets = turn.spawn_secrets.get(task.id) if kind.served_by_hub else {}
    if secrets is None:
        return None
    agent = turn.session.get(AgentRow, row.agent_id)
    token, expires_at = _token(turn, row)
    runs = "hold" if task.source.get("hold") else kind.value
    entrypoint = [*HUB_SERVER, "--kind", runs] if kind.served_by_hub else config["entrypoint"]
    info = _info(turn, row, agent, config).model_copy(update={"task_type": kind.value.upper()})
    return Launch(
        allocation_id=row.id,
        run=row.run,
        owner=task.owner,
        slots=row.slots,
        entrypoint=entrypoint,
        environment={**_environment(config, agent), **secrets},
        bundle=task.bundle,
        info=info,
        task_token=token,
        token_expires_at=expires_at,
        kind=kind.value,
        runtime="docker" if row.runtime == "docker" else "process",
        container=_container(config, agent) if row.runtime == "docker" else None,
        service=ServiceSpec() if kind.served_by_hub else None,
        user_home=kind in {TaskKind.NOTEBOOK, TaskKind.SHELL},
        reach=_operators_directories(config, turn.settings.default_checkpoint_storage),
    )


def _token(turn: Turn, row: AllocationRow) -> tuple[str, float]:
    expires_at = turn.now + turn.settings.task_token_ttl
    return tokens.issue(turn.session, "task", row.id, expires_at=expires_at, now=turn.now), expires_at


def _info(turn: Turn, row: AllocationRow, agent: AgentRow | None, config: dict[str, Any]) -> ClusterInfoWire:
    return ClusterInfoWire(
        master_url=turn.settings.service_url,
        cluster_id=turn.settings.cluster_id,
        agent_id=row.agent_id or "",
        slot_ids=list(range(len(row.slots))),
        gpu_uuids=_gpu_uuids(agent, row.slots),
        task_id=row.id.rpartition(".")[0],
        allocation_id=row.id,
        run=row.run,
        config=config,
        container_slot_counts=[len(row.slots)],
        owner=row.owner,
    )


def resume_point(s: Session, experiment: ExperimentRow, trial: TrialRow) -> CheckpointRow | None:
    """The checkpoint a new attempt starts from: the trial's newest by steps, else the warm-start source."""
    own = checkpoints.latest(s, trial.id)
    if own is not None:
        return own
    return source_of(s, experiment.config)


def _operators_directories(config: dict[str, Any], default: dict[str, Any]) -> list[str]:
    """The directories of the cluster's default checkpoint storage, if the experiment stores there."""
    storage = config.get("checkpoint_storage") or {}
    chosen = (default.get(key) for key in ("host_path", "container_path") if storage.get(key) == default.get(key))
    return [path for path in chosen if isinstance(path, str)]


def _gpu_uuids(agent: AgentRow | None, slots: list[str]) -> list[str]:
    known = {} if agent is None else {slot["id"]: slot.get("uuid") for slot in agent.slots}
    return [uuid for slot in slots if (uuid := known.get(slot))]


def kind_of_slots(agent: AgentRow | None) -> str:
    """What the slots of an agent are, for what a config says by kind: cuda, rocm or cpu."""
    kinds = set() if agent is None else {slot.get("kind", "cpu") for slot in agent.slots}
    return next((kind for kind in ("cuda", "rocm") if kind in kinds), "cpu")


def _environment(config: dict[str, Any], agent: AgentRow | None) -> dict[str, str]:
    """`environment.environment_variables` for the kind of slots the agent has."""
    variables = (config.get("environment") or {}).get("environment_variables") or []
    if isinstance(variables, dict):
        variables = variables.get(kind_of_slots(agent)) or []
    pairs = (str(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs if name}


def _container(config: dict[str, Any], agent: AgentRow | None) -> ContainerSpec:
    """The container that a resolved config (of an experiment or a user task) asks for."""
    environment, resources = config.get("environment") or {}, config.get("resources") or {}
    image = environment.get("image") or ""
    auth = {key: str(value) for key, value in (environment.get("registry_auth") or {}).items() if value}
    return ContainerSpec(
        image=image.get(kind_of_slots(agent)) or "" if isinstance(image, dict) else str(image),
        force_pull=bool(environment.get("force_pull_image")),
        registry_auth=auth or None,
        mounts=[Mount.model_validate(mount) for mount in config.get("bind_mounts") or []],
        devices=[DeviceMount.model_validate(device) for device in resources.get("devices") or []],
        add_capabilities=list(environment.get("add_capabilities") or []),
        drop_capabilities=list(environment.get("drop_capabilities") or []),
        shm_size=resources.get("shm_size"),
        memory=resources.get("memory"),
        cpus=resources.get("cpus"),
    )
