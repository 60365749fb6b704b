"""Errors of a search.

ValueError
├── SearcherConfigError   the configuration names no search that can run
│   └── SearcherNotInstalled   its method is a plug-in that is not installed
└── SearcherInputError    an event that the search cannot use; the search is unchanged
    └── SteeringRefused      a user's act that the search, or its method, does not allow
"""

from collections.abc import Sequence


class SearcherConfigError(ValueError):
    """A searcher or hyperparameter block from which no search can be made."""


class SearcherNotInstalled(SearcherConfigError):
    """No method of that name is installed, or it cannot be imported; its experiments wait until it is."""


class SearcherInputError(ValueError):
    """An event that the search cannot use.

    The state of the search is what it was before the event: the caller decides whether the trial or the
    experiment fails.
    """


class SteeringRefused(SearcherInputError):
    """A user's act that this search does not allow; nothing has changed."""


class OperationsRefused(SearcherInputError):
    """The class of a custom search asks for what is impossible; nothing has changed.

    Attributes:
        mistakes: One sentence for each.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = list(mistakes)


class ReplayMismatch(Exception):
    """The search now decides otherwise than its journal records: its algorithm or its config has changed.

    Attributes:
        place: Which event of the journal, from 1.
    """

    def __init__(self, place: int, event: object, recorded: Sequence[object], decided: Sequence[object]) -> None:
        self.place = place
        then, now = (", ".join(map(repr, said)) or "nothing" for said in (recorded, decided))
        super().__init__(f"event {place} of its journal, {event!r:.200}: decided then {then:.400}, now {now:.400}")
