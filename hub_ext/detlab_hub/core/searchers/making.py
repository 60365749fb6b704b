"""Make the search that a config describes, and restore one from its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detlab_hub.core.searchers.errors import ReplayMismatch, SearcherConfigError
from detlab_hub.core.searchers.events import RULES, Decision, Event, Started
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.hyperparameters import make_space
from detlab_hub.core.searchers.objectives import Objectives
from detlab_hub.core.searchers.registry import make_method
from detlab_hub.core.searchers.searcher import Searcher
from detlab_hub.core.stopping import SearchEnd, StoppingConfigError, make_policy


def make_searcher(
    searcher: Mapping[str, Any],
    hyperparameters: Mapping[str, Any],
    seed: int,
    *,
    stopping: Sequence[Mapping[str, Any]] = (),
    rules: int = RULES,
) -> Searcher:
    """Make the search that an experiment's config describes.

    Args:
        searcher: The `searcher` block, as plain values; missing fields get their defaults.
        hyperparameters: The `hyperparameters` block, as plain values.
        seed: The experiment's seed, 0 to 2**32 - 1.
        stopping: The `stopping` list, as plain values.
        rules: The rules by which it decides; those of its journal if it has one (`rules_of`).

    Raises:
        SearcherConfigError: If no search can be made from it.
    """
    method = make_method(searcher, hyperparameters, rules)
    fields = Fields(searcher)
    try:
        policies = [make_policy(entry) for entry in stopping]
    except StoppingConfigError as error:
        raise SearcherConfigError(str(error)) from error
    return Searcher(
        method,
        make_space(hyperparameters, fields.require),
        seed,
        policies,
        objectives=Objectives.from_config(searcher, rules),
        starting=fields.starting_points,
        time_metric=searcher.get("time_metric"),
        rules=rules,
        end=SearchEnd.from_config(searcher, Objectives.from_config(searcher).sign),
        distinct=not fields.repeats,
        wanted=fields.optional_count("max_trials"),
        confirm=bool(searcher.get("confirm")),
    )


def rules_of(journal: Iterable[Event]) -> int:
    """Return the rules that decided a journal; those of new searches if nothing has started."""
    return next((event.rules for event in journal if isinstance(event, Started)), RULES)


def replay(
    searcher: Mapping[str, Any],
    hyperparameters: Mapping[str, Any],
    seed: int,
    journal: Iterable[Event],
    recorded: Sequence[Sequence[Decision]] | None = None,
    *,
    stopping: Sequence[Mapping[str, Any]] = (),
) -> tuple[Searcher, list[list[Decision]]]:
    """Make a search and give it the journaled events; the decisions on each must be as recorded.

    Args:
        searcher: The `searcher` block, as plain values.
        hyperparameters: The `hyperparameters` block, as plain values.
        seed: The experiment's seed.
        journal: The events, in order.
        recorded: The decisions on each; None where they are not known.
        stopping: The `stopping` list, as plain values.

    Returns:
        The search, and the decisions after each event.

    Raises:
        SearcherConfigError: If no search can be made from it.
        SearcherInputError: The search cannot use an event.
        ReplayMismatch: The search decides differently from the record.
    """
    journal = list(journal)
    search = make_searcher(searcher, hyperparameters, seed, stopping=stopping, rules=rules_of(journal))
    decided = []
    for place, event in enumerate(journal):
        decisions = search.step(event)
        if recorded is not None and decisions != list(recorded[place]):
            raise ReplayMismatch(place + 1, event, recorded[place], decisions)
        decided.append(decisions)
    return search, decided
