"""What a policy keeps: the best of the experiment, the best and the latest of each trial; all else may go."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

NO_RULE = "no rule of the policy keeps it"
NO_METRIC = "nothing was validated at its step, so that it is never among the best"
OUTDATED = "its trial has begun anew since"


@dataclass(frozen=True, slots=True)
class CheckpointRetention:
    """How many checkpoints are kept, with the names and the defaults of `checkpoint_storage`.

    Raises:
        ValueError: A number is negative.
    """

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1

    def __post_init__(self) -> None:
        for name in ("save_experiment_best", "save_trial_best", "save_trial_latest"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 0")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint whose files exist.

    Attributes:
        uuid: The checkpoint.
        trial_id: The trial that saved it.
        steps: Its `steps_completed`.
        metric: The searcher's metric at that step; None: it was not validated there.
        created_at: When it was committed.
        current: Whether its trial can resume from it: False of those from before the trial began anew.
    """

    uuid: str
    trial_id: int
    steps: int
    metric: float | None = None
    created_at: float = 0.0
    current: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointDecision:
    """What becomes of one checkpoint.

    Attributes:
        uuid: The checkpoint.
        keep: Whether it stays, by a rule or by a pin.
        why: The rules that keep it, for people; or that none does.
        pinned: Whether a pin is all that keeps it.
    """

    uuid: str
    keep: bool
    why: tuple[str, ...]
    pinned: bool = False


def decide(
    policy: CheckpointRetention, saved: Sequence[Saved], pins: Collection[str] = (), *, smaller_is_better: bool = True
) -> list[CheckpointDecision]:
    """Decide about the checkpoints of one experiment, in the order in which they are given.

    Those without a metric, or with one that is not a number or better than any number, which have diverged, are never
    among the best. Equal metrics rank by
    trial, then by steps, the earliest first, as for the best trial of a search; equal steps by commit, the last first,
    as for the checkpoint that a trial resumes from.

    Args:
        policy: How many are kept.
        saved: All checkpoints whose files exist.
        pins: uuids that stay whatever the policy says. They take no place of another.
        smaller_is_better: Which metrics are the best.
    """
    sign = 1.0 if smaller_is_better else -1.0
    measured = [(sign * one.metric, one) for one in saved if one.metric is not None]
    ranked = [one for _, one in sorted((pair for pair in measured if pair[0] > -math.inf), key=_goodness)]
    newest = sorted(saved, key=lambda one: (one.current, one.steps, one.created_at, one.uuid), reverse=True)
    why: defaultdict[str, list[str]] = defaultdict(list)
    _name(why, ranked[: policy.save_experiment_best], "best of the experiment", policy.save_experiment_best)
    _name_each(why, ranked, "best of its trial", policy.save_trial_best)
    _name_each(why, newest, "latest of its trial", policy.save_trial_latest)
    pinned = set(pins)
    by_metric = policy.save_experiment_best > 0 or policy.save_trial_best > 0
    return [_decision(one, why.get(one.uuid, []), pinned, by_metric=by_metric) for one in saved]


def _goodness(measured: tuple[float, Saved]) -> tuple[float, int, int, str]:
    value, one = measured
    return value, one.trial_id, one.steps, one.uuid


def _name_each(why: defaultdict[str, list[str]], order: Iterable[Saved], rule: str, most: int) -> None:
    """Note the first `most` of each trial."""
    if most == 0:
        return
    of_trial: defaultdict[int, list[Saved]] = defaultdict(list)
    for one in order:
        if len(found := of_trial[one.trial_id]) < most:
            found.append(one)
    for found in of_trial.values():
        _name(why, found, rule, most)


def _name(why: defaultdict[str, list[str]], chosen: Sequence[Saved], rule: str, most: int) -> None:
    for place, one in enumerate(chosen, 1):
        why[one.uuid].append(f"{rule} ({place} of {most})")


def _decision(one: Saved, rules: Sequence[str], pinned: Collection[str], *, by_metric: bool) -> CheckpointDecision:
    if rules:
        return CheckpointDecision(one.uuid, keep=True, why=tuple(rules))
    why = [NO_RULE]
    if by_metric and not one.current:
        why.append(OUTDATED)
    elif by_metric and one.metric is None:
        why.append(NO_METRIC)
    return CheckpointDecision(one.uuid, keep=one.uuid in pinned, why=tuple(why), pinned=one.uuid in pinned)
