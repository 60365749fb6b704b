"""The actions on lines that match a log policy: a label, a node that is not used again, no more restarts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import FailureView, PolicyMatch, TrialState
from detlab_hub.services.base.masking import masked_text, secrets_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.tables import TrialRow

MOST_MATCHES = 100
"""Most labels of one trial; a match whose policy has an action is never left out."""
LINE_CHARS = 300
"""Characters of a line that is shown with a match."""
_SPECIAL = set(".^$*+?{}[]\\|()")


@dataclass(frozen=True)
class LogRule:
    """One log policy of an experiment."""

    name: str | None
    pattern: str
    action: str | None
    literal: str | None
    """The text that the pattern stands for, where it stands for one: finding it takes no regular expression."""


@dataclass(frozen=True)
class Finding:
    """A line that a policy matches."""

    policy: LogRule
    text: str
    time: float
    given_up: str = ""
    """Why the policy is not checked any more; then there is no line."""


def policies_of(config: Mapping[str, Any]) -> tuple[LogRule, ...]:
    """Return the policies of an experiment's config that have a pattern."""
    return tuple(
        LogRule(one.get("name"), one["pattern"], one.get("action"), literal_of(one["pattern"]))
        for one in config.get("log_policies") or ()
        if one.get("pattern")
    )


def literal_of(pattern: str) -> str | None:
    """Return the one text that a pattern matches, None if it is not plain text."""
    text = pattern
    while text.startswith(".*"):
        text = text[2:]
    while text.endswith(".*") and not text.endswith("\\.*"):
        text = text[:-2]
    return None if not text or _SPECIAL.intersection(text) else text


def note(unit: UnitOfWork, trial: TrialRow, run: int, agent_id: str | None, findings: Sequence[Finding]) -> None:
    """Store the matches of policies in a trial's lines; once for each policy and agent."""
    known = {(one["pattern"], one["action"], one["agent_id"]) for one in trial.policy_matches}
    secrets = secrets_of(unit.experiment(trial.experiment_id).config) if findings else ()
    fresh = []
    for finding in findings:
        policy = finding.policy
        if finding.given_up:
            warning = f"log policy {policy.name or policy.pattern[:50]!r} is not checked any more: "
            if not any(one.startswith(warning) for one in trial.warnings):
                trial.warnings = [*trial.warnings, warning + finding.given_up]
                unit.changed_trial(trial)
            continue
        if (policy.pattern, policy.action, agent_id) in known:
            continue
        if policy.action is None and len(known) >= MOST_MATCHES:
            continue
        known.add((policy.pattern, policy.action, agent_id))
        match = PolicyMatch(
            name=policy.name,
            pattern=policy.pattern,
            action=policy.action,
            agent_id=agent_id,
            run=run,
            time=finding.time if math.isfinite(finding.time) else unit.now,
            line=masked_text(finding.text.strip(), secrets)[:LINE_CHARS],
        )
        fresh.append(match.model_dump())
        if policy.action == "exclude_node" and agent_id is not None:
            unit.outbox.blocked.append((trial.id, agent_id))
    if fresh:
        trial.policy_matches = [*trial.policy_matches, *fresh]
        unit.changed_trial(trial)


def excluded(matches: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the agents that policies have excluded for a trial."""
    return {one["agent_id"] for one in matches if one["action"] == "exclude_node" and one["agent_id"]}


def all_excluded(s: Session) -> list[tuple[int, str]]:
    """Return the trials that may run again, each with an agent where they must not: for a master that starts."""
    ended = [state.value for state in TrialState if state.terminal]
    query = select(TrialRow.id, TrialRow.policy_matches).where(TrialRow.state.not_in(ended))
    return [(trial_id, agent) for trial_id, matches in s.execute(query) for agent in sorted(excluded(matches))]


def canceled_retries(trial: TrialRow) -> str | None:
    """Say which policy wants no more restarts of a trial, and for which line; None if none does."""
    for one in trial.policy_matches:
        if one["action"] == "cancel_retries":
            return f"log policy {one['name'] or one['pattern'][:50]!r} found: {one['line'][:100]}"
    return None


def without_retries(card: FailureView, why: str) -> FailureView:
    """Return the card of a failure after which a policy forbids further restarts."""
    return card.model_copy(update={"hint": f"{card.hint} (not restarted: {why})"})
