"""Whether a submission could ever run here: refused, or warned about, at submission, instead of pending for ever.

Checked with the scheduler's code: the task alone on its pool's agents, all of them idle. Counted are connected agents,
those whose connection is lost, and those that were connected within a day: a restart of an agent must not cause a
refusal. An engine comes and goes while its agent stays, so that a runtime which no agent has now is a warning only; a
name that no agent of the pool reports, and that does not come with detlab, is refused. An elastic pool has, beside
those, as many empty instances as its limit: what they could not run either would wait for ever, as it launches none.
Where only observed instances speak against a task, not the operator's description of them,
it is a warning: one of them may have been broken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem, ResourcesError
from detlab.schemas.runtimes import ANY, KNOWN, takes_image
from detlab_hub.backends.base import BatchSystem
from detlab_hub.backends.instances.configuration import largest_growth, like_of
from detlab_hub.core.scheduling import Agent, Job, PoolConfig, Reason, ReasonCode, SchedulerTask, Snapshot, schedule
from detlab_hub.core.scheduling.governing import GovernedMounts
from detlab_hub.core.scheduling.limits import count_slots
from detlab_hub.services.admission import instance_records, quotas
from detlab_hub.services.base.agent_kinds import Present
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.offers import agent_of, constraints_of, kind_of_slots, known_node
from detlab_hub.services.lifecycle.queue_fields import WHERE, demands, pool_for, request_fields
from detlab_hub.services.lifecycle.rows import slots_per_trial
from detlab_hub.services.placement.snapshots import is_single_node
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import AgentRow

AWAY_SECONDS = 86400.0
"""Seconds for which a disconnected agent is expected to return."""
_DEMANDS = {"cpus": "millicpus", "memory": "memory"}
_LATELY = PreparedStatement(
    select(AgentRow.id).where(AgentRow.pool == bindparam("pool"), AgentRow.last_seen > bindparam("since"))
)


@dataclass(frozen=True)
class Requirements:
    """The requirements of a submission.

    Attributes:
        user: Whose it will be.
        slots: Slots of one agent, or of several.
        runtime: The name of the runtime that it runs with.
        image: Of containers: a name, or a name for each kind of slot.
        resources: The block of the config.
        groups: Of the user.
        what: In words: `a trial of this experiment`, `this notebook`.
        where: The config key that sets the slots.
        single_node: Whether all slots must be on one agent.
        fixed: Whether it was submitted already, so that its slots can no longer be lowered.
        slots_per_node: Slots of each node of a batch system, if it says so.
        workspace_id: Where it is to lie, for its quota.
        requires: What the pool must enforce of a policy, and for what is mounted.
        mounted: Governed mounts of the cluster that it has.
    """

    user: str
    slots: int
    runtime: str
    image: Any = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    what: str = "this task"
    where: str = "resources.slots"
    single_node: bool = True
    fixed: bool = False
    slots_per_node: int | None = None
    workspace_id: int | None = None
    requires: frozenset[str] = frozenset()
    mounted: tuple[str, ...] = ()


def of_trial(
    user: str,
    groups: Collection[str],
    config: Mapping[str, Any],
    what: str,
    workspace_id: int | None = None,
    *,
    mounts: GovernedMounts,
) -> Requirements:
    """Return the requirements of each trial of an experiment."""
    found = _of(user, groups, config, what, workspace_id, mounts, user_task=False)
    return replace(found, slots=slots_per_trial(config), where="resources.slots_per_trial")


def of_task(
    user: str,
    groups: Collection[str],
    config: Mapping[str, Any],
    what: str,
    workspace_id: int | None = None,
    *,
    mounts: GovernedMounts,
) -> Requirements:
    """Return the requirements of a user task."""
    return _of(user, groups, config, what, workspace_id, mounts, user_task=True)


def _of(
    user: str,
    groups: Collection[str],
    config: Mapping[str, Any],
    what: str,
    workspace_id: int | None,
    mounts: GovernedMounts,
    *,
    user_task: bool,
) -> Requirements:
    resources = config.get("resources") or {}
    return Requirements(
        user=user,
        slots=int(resources.get("slots") or 0),
        runtime=config["runtime"],
        image=(config.get("environment") or {}).get("image"),
        resources=resources,
        groups=frozenset(groups),
        what=what,
        single_node=is_single_node(user_task, request_fields(config, mounts)["constraints"]),
        slots_per_node=(config.get("slurm") or {}).get("slots_per_node"),
        workspace_id=workspace_id,
        requires=mounts.required_by(config),
        mounted=tuple(mounts.mounted_by(config)),
    )


@dataclass(frozen=True)
class Candidates:
    """The agents of a check, and the few of them that are enough to show that a task could start."""

    agents: Sequence[Agent]
    few: Sequence[Agent]

    def of_any_runtime(self, runtime: str) -> Candidates:
        """Return these agents as if each could run tasks with this runtime."""
        return Candidates(_with_runtime(self.agents, runtime), _with_runtime(self.few, runtime))


def _with_runtime(agents: Sequence[Agent], runtime: str) -> Sequence[Agent]:
    if all(runtime in agent.runtimes for agent in agents):
        return agents
    return tuple(replace(agent, runtimes=frozenset({runtime})) for agent in agents)


async def check(context: ServiceContext, required: Requirements) -> list[Problem]:
    """Return warnings about a submission that has to wait for more than its turn.

    Raises:
        ResourcesError: No agent could ever run it, with the reason and the largest that could; or a quota is too low.
        ConfigError: There is no such pool; or it runs in a container, and no agent that could run it has a kind of
            slots that it names an image for.
    """
    pool = pool_for(context.settings, required.resources, required.slots)
    return [*_unenforced(required, pool), *await _room_for(context, required, pool)]


def _unenforced(required: Requirements, pool: PoolConfig) -> list[Problem]:
    """Warn about a policy that the pool does not enforce: an administrator may declare more, or move it."""
    missing = pool.governance.lacks(required.requires)
    if not missing:
        return []
    said = f"pool {pool.name} does not enforce {', '.join(missing)}: {required.what} waits there"
    if required.mounted:
        said += f"; {', '.join(required.mounted)}, which it mounts, may be used only where pools enforce more"
    return [Problem(WHERE, said, "choose another pool: det pool list shows what each enforces", "warning")]


async def _room_for(context: ServiceContext, required: Requirements, pool: PoolConfig) -> list[Problem]:
    now = context.clock()
    there = context.present.of(pool.name, (node for node in context.backend.nodes(now) if node.pool == pool.name))
    bound = required.user, required.groups, required.slots, required.workspace_id
    over = await context.read(lambda s: quotas.never(s, *bound))
    if over is not None:
        lower = "" if required.fixed else f"lower {required.where}; "
        raise ResourcesError(f"{required.what} could never start: {over}", hint=f"{lower}see `det quota list`")
    queue = context.backend.queues.get(pool.name)
    if queue is not None:
        taker = next((node for node in there.nodes if node.id == queue), None)
        if taker is not None and taker.serves_user not in {None, required.user}:
            raise ResourcesError(
                f"{required.what} could never start: agent {queue}, which takes the tasks of pool {pool.name!r}, serves"
                " another user",
                hint="choose another pool (det pool list), or have its agent run by root, which serves all",
            )
        _check_queue(required, None if taker is None else taker.queue)
        return []  # the pool's own queue places it, and judges it
    if _starts_on(there, required, pool):
        return []  # further agents change nothing
    return await _against_all_agents(context, required, pool, there, now)


def _check_queue(required: Requirements, queue: BatchSystem | None) -> None:
    """Refuse what is larger than a batch system: it would refuse it too, or have it wait for ever.

    Raises:
        ResourcesError: It has no such node, or not so many slots at all.
    """
    if queue is None or not queue.slots_per_node:
        return
    most, asked, each = queue.slots_per_node, required.slots, required.slots_per_node
    several = queue.gangs and not required.single_node
    one_node = (each or 0) if several else max(asked, each or 0)
    if one_node > most:
        said = f"needs {one_node} slots of one node; the largest node of {queue.name} has {most}"
    elif several and asked > queue.slots:
        said = f"needs {count_slots(asked)}; all nodes of {queue.name} have {queue.slots}"
    elif each is not None and asked > each and not several:
        said = f"needs several nodes (slurm.slots_per_node: {each}), and is to have one"
    elif each is not None and asked > each and asked % each:
        said = f"needs {asked} slots, which cannot be divided into nodes of {each} (slurm.slots_per_node)"
    else:
        return
    raise ResourcesError(f"{required.what} could never start: it {said}", hint=f"lower {required.where}")


async def _against_all_agents(
    context: ServiceContext, required: Requirements, pool: PoolConfig, there: Present, now: float
) -> list[Problem]:
    """Check against the connected agents, those that are away, and those that a pool may start; see `check`."""
    away, kinds = await context.read(lambda s: _beside(s, there, required, pool.name, now))
    growth, to_come = await _growth(context, pool, now)
    known, few = (*there.agents, *away), there.few(required.slots)
    _check_runtime(required, pool, (*known, *growth))
    candidates = Candidates((*known, *growth), (*few, *away, *growth)).of_any_runtime(required.runtime)
    never = _impossible(candidates, required, pool)
    if never is not None:
        most = f"; the pool starts {len(to_come)} instances at most, of {to_come[0].slots} slots" if to_come else ""
        raise ResourcesError(
            f"no agent could ever run {required.what}: {never.detail}{most}",
            hint=_what_helps(never, required),
        )
    every = Candidates((*known, *to_come), (*few, *away, *to_come))
    unlike = None if to_come == growth else _impossible(every.of_any_runtime(required.runtime), required, pool)
    if unlike is not None:
        return [
            _waits(required, _demanded(required), f"{unlike.detail}, as far as instances of pool {pool.name} were seen")
        ]
    unready = _impossible(every, required, pool)
    if unready is not None:
        where = "runtime" if unready.code is ReasonCode.NO_SUITABLE_AGENT else required.where
        return [_waits(required, where, unready.detail)]
    _check_image(required, known, kinds)
    now_there = Candidates((*there.agents, *to_come), (*few, *to_come))
    missing = _impossible(now_there, required, pool) if there.agents else None
    if missing is None:
        return _none_yet(pool, known, len(context.settings.pools.by_name))
    names = sorted(agent.id for agent in away if _could_run(agent, required))
    return [_waits(required, required.where, f"{missing.detail}; {', '.join(names)} could run it and is away")]


async def _growth(context: ServiceContext, pool: PoolConfig, now: float) -> tuple[tuple[Agent, ...], tuple[Agent, ...]]:
    """Return the agents of all instances that a pool may have: as the operator describes them, and as observed."""
    if pool.provider is None:
        return (), ()
    growth, like = largest_growth(pool), like_of(pool.provider)
    known = await context.read(partial(instance_records.learned, pool=pool.name, like=like, now=now))
    return growth, growth if known is None else largest_growth(pool, known.shape)


def _starts_on(there: Present, required: Requirements, pool: PoolConfig) -> bool:
    """Whether it could start on the connected agents if they were idle, as nearly every submission can."""
    if not there.agents or _names_images(required):
        return False
    few = there.few(required.slots)
    return _alone_on(few, required, pool) is None


def _demanded(required: Requirements) -> str:
    """Return the config key of the resources requested besides slots; if there are none, the key of the slots."""
    asked = demands(required.resources)
    return next((f"resources.{key}" for key, held in _DEMANDS.items() if asked[held]), required.where)


def _none_yet(pool: PoolConfig, known: Sequence[Agent], pools: int) -> list[Problem]:
    """Warn about a pool that never had an agent, if it is one of several: its name may be a mistake."""
    if known or pools < 2 or pool.provider is not None:
        return []
    return [Problem(WHERE, f"pool {pool.name} has no agent yet", "it waits until one comes", "warning")]


def _impossible(candidates: Candidates, required: Requirements, pool: PoolConfig) -> Reason | None:
    """Return why it could not start if no other task were there; None if it could, or if there is no agent at all."""
    if _alone_on(candidates.few, required, pool) is None:
        return None
    return _alone_on(candidates.agents, required, pool)  # with the numbers of all of them


def _alone_on(agents: Sequence[Agent], required: Requirements, pool: PoolConfig) -> Reason | None:
    asked = request_fields({"resources": required.resources}, GovernedMounts())
    task = SchedulerTask(
        "it",
        required.what,
        required.slots,
        single_node=required.single_node,
        user=required.user,
        groups=required.groups,
        constraints=constraints_of(asked["constraints"])._replace(requires=frozenset()),  # attested any time
        runtime=required.runtime,
        millicpus=asked["millicpus"],
        memory=asked["memory"],
    )
    job = Job(required.what, max_slots=required.resources.get("max_slots"))
    reason = schedule(Snapshot(pool.rules, tuple(agents), {job.id: job}, (task,), private=True)).waiting.get(task.id)
    return None if reason is None or reason.code is ReasonCode.NO_AGENT else reason


def _could_run(agent: Agent, required: Requirements) -> bool:
    least, asked = required.slots if required.single_node else min(required.slots, 1), demands(required.resources)
    enough = agent.millicpus >= asked["millicpus"] and agent.host_memory >= asked["memory"]
    return agent.serves_user in (None, required.user) and agent.slots >= least and enough


def _what_helps(never: Reason, required: Requirements) -> str:
    """Return a hint of what to change: where no agent is suitable a smaller request does not help."""
    if required.fixed or never.code is ReasonCode.NO_SUITABLE_AGENT:
        return "see `det agent list`"
    asked = demands(required.resources)
    named = [required.where, *(f"resources.{key}" for key, held in _DEMANDS.items() if asked[held])]
    return f"lower {' or '.join(named)}, or see `det agent list`"


def _waits(required: Requirements, path: str, why: str) -> Problem:
    return Problem(path, f"{required.what} waits until an agent can run it: {why}", "see `det agent list`", "warning")


def _beside(
    s: Session, there: Present, required: Requirements, pool: str, now: float
) -> tuple[tuple[Agent, ...], Mapping[str, str]]:
    """Return the agents of a pool that count although they are away, and the kind of slots of each agent by its id.

    The kinds are needed only for containers with several images.
    """
    here = {node.id for node in there.nodes}
    lately = _LATELY.all(s, {"pool": pool, "since": now - AWAY_SECONDS})
    missed = [row.id for row in lately if row.id not in here]
    rows = s.scalars(select(AgentRow).where(AgentRow.id.in_(missed))).all() if missed else ()
    away = tuple(agent_of(replace(known_node(row), suspect=False)) for row in rows if row.slots)
    if not _names_images(required):
        return away, {}
    return away, {row.id: kind_of_slots(row) for row in s.scalars(select(AgentRow).where(AgentRow.pool == pool))}


def _check_runtime(required: Requirements, pool: PoolConfig, agents: Sequence[Agent]) -> None:
    """Refuse a runtime that no agent of the pool offers and that does not come with detlab: its name is a mistake.

    Raises:
        ConfigError: The pool has no such runtime.
    """
    offered = {runtime for agent in agents for runtime in agent.runtimes}
    if required.runtime in (ANY, *offered, *KNOWN):
        return
    if agents:
        names = ", ".join(sorted(offered))
        said = f"no agent of pool {pool.name} has the runtime {required.runtime!r}; they offer {names}"
    else:
        said = f"pool {pool.name} has no agent yet, and {required.runtime!r} is not one of {', '.join(KNOWN)}"
    raise ConfigError([Problem("runtime", said, "name one of these, or see `det agent list`")])


def _names_images(required: Requirements) -> bool:
    named = isinstance(required.image, dict) and any(required.image.values())
    return named and takes_image(required.runtime)


def _check_image(required: Requirements, known: Sequence[Agent], kinds: Mapping[str, str]) -> None:
    if not _names_images(required):
        return
    able = [agent for agent in known if _could_run(agent, required) and required.runtime in agent.runtimes]
    there = sorted({kinds.get(agent.id, "cpu") for agent in able})
    if able and not any(required.image.get(kind) for kind in there):
        named = ", ".join(sorted(kind for kind, image in required.image.items() if image)) or "none"
        raise ConfigError(
            [
                Problem(
                    "environment.image",
                    f"names an image for slots of kind {named}; every agent that could run it has {', '.join(there)}",
                    f"name one: environment.image.{there[0]}",
                )
            ]
        )
