"""What an agent needs to start a task."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas import expconf
from detlab.schemas.wire import ClusterInfoWire, Launch
from detlab_hub.services.turn import Turn
from detlab_hub.store.queries import checkpoints, tokens
from detlab_hub.store.tables import AgentRow, AllocationRow, CheckpointRow, ExperimentRow, TrialRow


def build_launch(turn: Turn, row: AllocationRow) -> Launch:
    """The launch message of an assigned allocation, with a fresh task token.

    Sent again it is the same but for the token: the agent goes by allocation and run.
    """
    trial, experiment = turn.trial(row.trial_id), turn.experiment(row.experiment_id)
    checkpoint = resume_point(turn.session, experiment, trial)
    own = checkpoint is not None and checkpoint.trial_id == trial.id
    row.resume_step = checkpoint.steps_completed if checkpoint is not None and own else None
    expires_at = turn.now + turn.settings.task_token_ttl
    token = tokens.issue(turn.session, "task", row.id, expires_at=expires_at, now=turn.now)
    config = experiment.config
    agent = turn.session.get(AgentRow, row.agent_id)
    info = ClusterInfoWire(
        master_url=turn.settings.service_url,
        cluster_id=turn.settings.cluster_id,
        agent_id=row.agent_id or "",
        slot_ids=list(range(len(row.slots))),
        gpu_uuids=_gpu_uuids(agent, row.slots),
        task_id=row.id.rpartition(".")[0],
        allocation_id=row.id,
        run=row.run,
        latest_checkpoint=None if checkpoint is None else checkpoint.uuid,
        trial_id=trial.id,
        trial_index=trial.idx,
        experiment_id=experiment.id,
        trial_seed=trial.seed,
        hparams=trial.hparams,
        config=config,
        container_slot_counts=[len(row.slots)],
        owner=experiment.owner,
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
        reach=_operators_directories(config, turn.settings.default_checkpoint_storage),
    )


def resume_point(s: Session, experiment: ExperimentRow, trial: TrialRow) -> CheckpointRow | None:
    """The checkpoint a new attempt starts from: the trial's newest by steps, else the warm-start source."""
    own = checkpoints.latest(s, trial.id)
    if own is not None:
        return own
    searcher = experiment.config.get("searcher") or {}
    uuid, source = searcher.get("source_checkpoint_uuid"), searcher.get("source_trial_id")
    if uuid:
        found = s.get(CheckpointRow, str(uuid))
        return found if found is not None and found.state == "COMPLETED" else None
    return None if source is None else checkpoints.latest(s, int(source))


def _operators_directories(config: dict[str, Any], default: dict[str, Any]) -> list[str]:
    """The directories of the cluster's default checkpoint storage, if the experiment stores there."""
    storage = config.get("checkpoint_storage") or {}
    chosen = (default.get(key) for key in ("host_path", "container_path") if storage.get(key) == default.get(key))
    return [path for path in chosen if isinstance(path, str)]


def _gpu_uuids(agent: AgentRow | None, slots: list[str]) -> list[str]:
    known = {} if agent is None else {slot["id"]: slot.get("uuid") for slot in agent.slots}
    return [uuid for slot in slots if (uuid := known.get(slot))]


def _environment(config: dict[str, Any], agent: AgentRow | None) -> dict[str, str]:
    """`environment.environment_variables` for the kind of slots the agent has."""
    variables = (config.get("environment") or {}).get("environment_variables") or []
    if isinstance(variables, dict):
        kinds = set() if agent is None else {slot.get("kind", "cpu") for slot in agent.slots}
        kind = next((kind for kind in ("cuda", "rocm") if kind in kinds), "cpu")
        variables = variables.get(kind) or []
    pairs = (str(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs if name}
