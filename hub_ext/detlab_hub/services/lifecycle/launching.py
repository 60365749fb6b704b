"""The data that an agent needs to start a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas import expconf
from detlab.schemas.runtimes import ADDRESS_LATER, takes_image
from detlab.schemas.shares import devices_of, fractions
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import ClusterInfoWire, ContainerSpec, DeviceMount, Launch, Mount, ServiceSpec
from detlab_hub.services.base.offers import kind_of_slots
from detlab_hub.services.base.unit_of_work import LaunchSeat, UnitOfWork
from detlab_hub.services.base.warm_start import as_asked, lost_source, source_of
from detlab_hub.services.lifecycle import uids
from detlab_hub.store.queries import checkpoints, parts, tokens
from detlab_hub.store.tables import (
    AgentRow,
    AllocationRow,
    CheckpointRow,
    ExperimentRow,
    PartRow,
    TaskNote,
    TaskRow,
    TrialRow,
)

LOCALHOST = "127.0.0.1"
HUB_SERVER = ("python3", "-m", "detlab.launch.hub_server")


def build_launches(unit: UnitOfWork, row: AllocationRow, only: str | None = None) -> list[tuple[str, Launch]]:
    """Make the launch messages of an assigned allocation, each with a fresh task token.

    When repeated, they differ in the token only: agents go by allocation and run. A server of the Hub whose environment
    this master does not have (it was restarted) gets no message: it is launched when the Hub's spawner sends the
    environment again.

    Args:
        unit: The transaction.
        row: The allocation.
        only: The one agent that is to get its message; by default all of the allocation's.

    Returns:
        (agent id, message) of each agent.
    """
    everywhere = parts.of_allocation(unit.session, row)
    agents = [unit.session.get(AgentRow, part.agent_id) for part in everywhere]
    addresses = [LOCALHOST if agent is None or not agent.address else agent.address for agent in agents]
    if len(everywhere) == 1:
        addresses = [LOCALHOST]  # its ranks meet on the node itself
    counts = [len(devices_of(part.slots)) for part in everywhere]
    holder = unit.holder(row)
    launches = [
        (first.agent_id, holder.launch(unit, row, LaunchSeat(agent, slots, first.rank, addresses, counts)))
        for first, agent, slots in _by_agent(everywhere, agents)
        if first.end is None and only in (None, first.agent_id)
    ]
    return [(agent_id, launch) for agent_id, launch in launches if launch is not None]


def _by_agent(
    everywhere: Sequence[PartRow], agents: Sequence[AgentRow | None]
) -> Iterator[tuple[PartRow, AgentRow | None, list[str]]]:
    """Yield the first part of each agent, and all slots that it has: a batch system gets the nodes as one job."""
    told = set()
    for part, agent in zip(everywhere, agents, strict=True):
        if part.agent_id not in told:
            told.add(part.agent_id)
            yield part, agent, [slot for one in everywhere if one.agent_id == part.agent_id for slot in one.slots]


def launch_of_trial(unit: UnitOfWork, row: AllocationRow, trial: TrialRow, seat: LaunchSeat) -> Launch:
    """Make the message for one of the nodes of a trial."""
    experiment = unit.experiment(trial.experiment_id)
    checkpoint = resume_point(unit.session, experiment, trial)
    lost = _lost_parent(trial, checkpoint) or (None if checkpoint else lost_source(unit.session, experiment.config))
    if lost:
        warning = f"checkpoint {lost}, which it was to start from, was deleted: it started from nothing"
        trial.warnings = [*(said for said in trial.warnings if said != warning), warning]
    own = checkpoint is not None and checkpoint.trial_id == trial.id
    row.resume_step = checkpoint.steps_completed if checkpoint is not None and own else None
    earlier = checkpoints.before(unit.session, checkpoint) if checkpoint is not None and own else []
    config, agent = _extended(as_asked(experiment.config), experiment.max_time), seat.agent
    uid = uids.assign(unit, experiment.owner)
    token, expires_at = _token(unit, row)
    info = _info(unit, row, seat, config).model_copy(
        update={
            "latest_checkpoint": None if checkpoint is None else checkpoint.uuid,
            "earlier_checkpoints": earlier,
            "resume_step": row.resume_step,
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
        owner_groups=list(experiment.owner_groups),
        uid=uid.uid,
        account=uids.is_account(unit, uid),
        slots=seat.slots,
        entrypoint=expconf.command_of(config["entrypoint"], sum(seat.counts)),
        environment=_environment(config, agent),
        bundle=experiment.bundle,
        info=info,
        task_token=token,
        token_expires_at=expires_at,
        token_life=unit.settings.task_token_ttl,
        runtime=row.runtime,
        container=_container(config, agent, _closed(unit, row), seat.addresses) if takes_image(row.runtime) else None,
        slurm_features=_features(unit, row, experiment.resource_pool),
        reach=_operators_directories(config, unit.settings.default_checkpoint_storage),
        point_due=trial.point_due,
    )


def is_launched(unit: UnitOfWork, row: AllocationRow) -> bool:
    """Whether a launch of the allocation was made: each has a token."""
    return tokens.exists(unit.session, "task", row.id)


def launch_of_task(unit: UnitOfWork, row: AllocationRow, task: TaskRow, seat: LaunchSeat) -> Launch | None:
    """Make the message for one of the nodes of a user task; None for a server whose environment is not known here."""
    kind, config = TaskKind(task.kind), task.config
    secrets = unit.spawn_secrets.get(task.id) if kind.served_by_hub else {}
    if secrets is None:
        return None
    agent, uid = seat.agent, uids.assign(unit, task.owner)
    token, expires_at = _token(unit, row)
    run_token = None
    if kind is TaskKind.NOTEBOOK_RUN and TaskNote.BY_RUN not in task.source:
        run_token = tokens.issue(unit.session, "run", row.id, expires_at, unit.now)
    holds = bool(task.source.get(TaskNote.HOLD))
    runs = "hold" if holds else kind.value
    entrypoint = [*HUB_SERVER, "--kind", runs] if kind.served_by_hub else config["entrypoint"]
    info = _info(unit, row, seat, config).model_copy(update={"task_type": kind.value.upper()})
    return Launch(
        allocation_id=row.id,
        run=row.run,
        owner=task.owner,
        owner_groups=list(task.owner_groups),
        uid=uid.uid,
        account=uids.is_account(unit, uid),
        slots=seat.slots,
        entrypoint=entrypoint,
        environment={**_environment(config, agent), **secrets},
        bundle=task.bundle,
        info=info,
        task_token=token,
        run_token=run_token,
        token_expires_at=expires_at,
        token_life=unit.settings.task_token_ttl,
        kind=kind.value,
        runtime=row.runtime,
        container=_container(config, agent, _closed(unit, row), seat.addresses) if takes_image(row.runtime) else None,
        service=_service(unit, row, task, agent) if kind.served_by_hub else None,
        user_home=kind in {TaskKind.NOTEBOOK, TaskKind.SHELL},
        holds=holds and kind.served_by_hub,
        slurm_features=_features(unit, row, task.resource_pool),
        reach=_operators_directories(config, unit.settings.default_checkpoint_storage),
    )


def _features(unit: UnitOfWork, row: AllocationRow, pool: str) -> list[str]:
    """Return features that a Slurm job's nodes must have, if its pool is to enforce something of a policy."""
    requires = (row.constraints or {}).get("requires")
    return list(unit.settings.pools.governance_in(pool).slurm_features) if requires else []


def _service(unit: UnitOfWork, row: AllocationRow, task: TaskRow, agent: AgentRow | None) -> ServiceSpec:
    """Return the service of a server; one that is reached over a network gets its certificate.

    Raises:
        NoCertificate: None can be made.
    """
    authority = unit.settings.server_authority
    if row.runtime in ADDRESS_LATER:
        note_certificate(task, None)
        return ServiceSpec(certificate_later=authority is not None)
    if authority is None or agent is None or task.source.get(TaskNote.HOLD) or not authority.covers(agent.address):
        note_certificate(task, None)
        return ServiceSpec()
    certificate, key = authority.issue(agent.address)
    note_certificate(task, row.run)
    return ServiceSpec(certificate=certificate, key=key)


def note_certificate(task: TaskRow, run: int | None) -> None:
    """Record which attempt had a certificate: how it is reached is settled by its launch, not by later settings."""
    if task.source.get(TaskNote.CERTIFIED_RUN) != run:
        rest = {name: value for name, value in task.source.items() if name != TaskNote.CERTIFIED_RUN}
        task.source = rest if run is None else {**rest, TaskNote.CERTIFIED_RUN.value: run}


def has_certificate(task: TaskRow, row: AllocationRow) -> bool:
    """Whether this attempt of a server was launched with a certificate, and so speaks TLS."""
    return task.source.get(TaskNote.CERTIFIED_RUN) == row.run


def _token(unit: UnitOfWork, row: AllocationRow) -> tuple[str, float]:
    expires_at = unit.now + unit.settings.task_token_ttl
    return tokens.issue(unit.session, "task", row.id, expires_at=expires_at, now=unit.now), expires_at


def _info(unit: UnitOfWork, row: AllocationRow, seat: LaunchSeat, config: dict[str, Any]) -> ClusterInfoWire:
    return ClusterInfoWire(
        master_url=unit.settings.service_url,
        cluster_id=unit.settings.cluster_id,
        agent_id=(row.agent_id or "") if seat.agent is None else seat.agent.id,
        slot_ids=list(range(seat.counts[seat.rank])),
        gpu_uuids=_gpu_uuids(seat.agent, seat.slots),
        task_id=row.id.rpartition(".")[0],
        allocation_id=row.id,
        run=row.run,
        config=_for_code(config),
        container_addrs=seat.addresses,
        container_rank=seat.rank,
        container_slot_counts=seat.counts,
        device_shares=_device_shares(seat.agent, seat.slots),
        owner=row.owner,
        storage_instance="" if unit.settings.holder is None else unit.settings.holder.instance,
        storage_epoch=0 if unit.settings.holder is None else unit.settings.holder.epoch,
    )


def _for_code(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config as the task's code sees it: without the credentials of a registry, perhaps the operator's."""
    environment = config.get("environment") or {}
    if not environment.get("registry_auth"):
        return config
    return {**config, "environment": {key: value for key, value in environment.items() if key != "registry_auth"}}


def _extended(config: dict[str, Any], longest: int | None) -> dict[str, Any]:
    """Return a config whose `searcher.max_time` is what users have extended it to: code reads its length there."""
    return config if longest is None else {**config, "searcher": {**config["searcher"], "max_time": longest}}


def _lost_parent(trial: TrialRow, checkpoint: CheckpointRow | None) -> str | None:
    """Return the parent's checkpoint, if the trial is to start from it and it no longer exists."""
    parent = trial.parent_checkpoint
    starts_elsewhere = checkpoint is not None and (checkpoint.trial_id == trial.id or checkpoint.uuid == parent)
    return None if parent is None or starts_elsewhere else parent


def resume_point(s: Session, experiment: ExperimentRow, trial: TrialRow) -> CheckpointRow | None:
    """Load the checkpoint a new attempt starts from: the trial's newest by steps, its parent's, or its warm start's."""
    own = checkpoints.latest(s, trial.id)
    if own is not None:
        return own
    if trial.parent_checkpoint is not None:
        parent = s.get(CheckpointRow, trial.parent_checkpoint)
        if parent is not None and parent.state == "COMPLETED":
            return parent
    return source_of(s, experiment.config)


def _operators_directories(config: dict[str, Any], default: dict[str, Any]) -> list[str]:
    """Return the directories of the cluster's default checkpoint storage, if the experiment stores there."""
    storage = config.get("checkpoint_storage") or {}
    chosen = (default.get(key) for key in ("host_path", "container_path") if storage.get(key) == default.get(key))
    return [path for path in chosen if isinstance(path, str)]


def _gpu_uuids(agent: AgentRow | None, slots: list[str]) -> list[str]:
    known = {} if agent is None else {slot["id"]: slot.get("uuid") for slot in agent.slots}
    return list(dict.fromkeys(uuid for slot in slots if (uuid := known.get(slot))))


def _device_shares(agent: AgentRow | None, slots: list[str]) -> list[float]:
    known = {} if agent is None else {slot["id"]: slot.get("shares", 1) for slot in agent.slots}
    return fractions(slots, [known.get(slot, 1) for slot in slots])


def _environment(config: dict[str, Any], agent: AgentRow | None) -> dict[str, str]:
    """Return `environment.environment_variables` for the kind of slots the agent has."""
    variables = (config.get("environment") or {}).get("environment_variables") or []
    if isinstance(variables, dict):
        variables = variables.get(kind_of_slots(agent)) or []
    pairs = (str(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs if name}


def _closed(unit: UnitOfWork, row: AllocationRow) -> list[str]:
    """Return directories with governed data that the allocation is not placed for."""
    return unit.settings.governed_mounts.closed_to((row.constraints or {}).get("requires") or ())


def _container(
    config: dict[str, Any], agent: AgentRow | None, closed: list[str], nodes: Sequence[str] = ()
) -> ContainerSpec:
    """Return the container that a resolved config (of an experiment or a user task) asks for."""
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
        closed=closed,
        network="host" if len(nodes) > 1 else None,  # nodes reach each other at their agents' addresses
    )
