"""Why no agent suits a task: the first of its demands that no agent meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from detlab_hub.core.scheduling.fit.shapes import AgentNeeds, suits
from detlab_hub.core.scheduling.labels import LabelRule
from detlab_hub.core.scheduling.model import ANYWHERE, Agent, Constraints, SchedulerTask

_NAMED = 5
"""Agents or tasks that are named in a reason; further ones are counted."""
_LONGEST = 80
"""Characters of a label's name or value in a reason."""


class _Demand(NamedTuple):
    """A condition on agents, and the reason if no agent meets it."""

    said: str
    meets: Callable[[Agent], bool]
    label: str = ""
    """The reason, with the agents' values of this label."""


def named(names: Sequence[str], between: str) -> str:
    """Join the first few names; count the others."""
    more = len(names) - _NAMED
    return between.join([*names[:_NAMED], *([f"and {more} more"] if more > 0 else [])])


def unenforced(missing: str) -> str:
    """Return the text for a capability that no agent has."""
    return f"governance: no agent enforces {missing}; `det governance agents` shows what each does"


def _broken(rule: LabelRule) -> str:
    """Return the text for a rule that no agent meets: `no agent has label zone in {a, b}`."""
    values = named([_short(value) for value in sorted(rule.values)], ", ")
    which = f"{_short(rule.label)} in {{{values}}}" if values else _short(rule.label)
    return f"every agent has label {which}" if rule.negated else f"no agent has label {which}"


def _short(text: str) -> str:
    """Shorten a label's name or value to what fits in a reason."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def why_unsuitable(task: SchedulerTask, agents: Sequence[Agent], *, private: bool) -> str:
    """Explain, for people, why no agent suits a task.

    The reason is the first of its demands that no agent meets, among the agents that meet the demands before it.

    Args:
        task: The task that cannot be scheduled.
        agents: The agents of its pool.
        private: Whether no other user may be named (I9): only that user and administrators may learn whom an agent
            serves.
    """
    wanted, blocked = task.constraints, ", ".join(sorted(task.blocked_nodes))
    rules = sorted(wanted.required, key=lambda rule: (not rule.negated, rule.label, sorted(rule.values)))
    demands = [
        _Demand(
            f"no agent runs tasks of user {task.user}: {_owners(agents, private=private)}",
            lambda agent: agent.serves_user in (None, task.user),
        ),
        _Demand(_no_runtime(task.runtime), lambda a: not task.runtime or task.runtime in a.runtimes),
        _Demand(f"no agent has slots of type {wanted.slot_type}", _meets(Constraints(slot_type=wanted.slot_type))),
        _Demand(f"no agent has a GPU of model {wanted.gpu!r}", _meets(Constraints(gpu=wanted.gpu))),
        _Demand(f"no agent has GPUs with {wanted.memory / 2**30:g} GiB", _meets(Constraints(memory=wanted.memory))),
        _Demand(f"no agent has the labels {_labels(wanted)}", _meets(Constraints(labels=wanted.labels))),
        *(_Demand(_broken(rule), _meets(Constraints(required=frozenset({rule}))), rule.label) for rule in rules),
        *(_Demand(unenforced(one), _meets(Constraints(requires=frozenset({one})))) for one in sorted(wanted.requires)),
        _Demand(f"no agent is left: {blocked} blocked for it", lambda agent: agent.id not in task.blocked_nodes),
    ]
    left = list(agents)
    for said, meets, label in demands:
        some, left = left, [agent for agent in left if meets(agent)]
        if not left:
            among = "" if len(some) == len(agents) else " among those that meet its other demands"
            return said + among + _there(label, some)
    return "no agent meets all of its demands"


def _there(label: str, agents: Sequence[Agent]) -> str:
    """Return the values of a label, by the agents that have it."""
    there = named([f"{agent.id} has {label}={agent.labels[label]}" for agent in agents if label in agent.labels], ", ")
    return f"; {there}" if there else ""


def _owners(agents: Sequence[Agent], *, private: bool) -> str:
    if private:
        return "the only agent serves another user" if len(agents) == 1 else f"all {len(agents)} serve other users"
    return named([f"agent {agent.id} serves only user {agent.serves_user}" for agent in agents], ", ")


def _no_runtime(runtime: str) -> str:
    what = "containers (runtime docker)" if runtime == "docker" else f"tasks of runtime {runtime}"
    return f"no agent can run {what}; `det agent list` shows what each can"


def _meets(wanted: Constraints) -> Callable[[Agent], bool]:
    return lambda agent: wanted == ANYWHERE or suits(AgentNeeds(wanted, "", agent.serves_user or ""), agent)


def _labels(wanted: Constraints) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(wanted.labels))
