"""Errors of a search.

ValueError
├── SearcherConfigError   no search can run with this configuration
│   └── SearcherNotInstalled   its method is a plug-in that is not installed
└── SearcherInputError    an event that the search cannot use; the search is unchanged
    └── SteeringRefused      an act that the search or its method does not allow
"""

from collections.abc import Sequence


class SearcherConfigError(ValueError):
    """A searcher or hyperparameter block with which no search can run."""


class SearcherNotInstalled(SearcherConfigError):
    """No method of that name is installed, or it cannot be imported; its experiments wait for it."""


class SearcherInputError(ValueError):
    """An event that the search cannot use.

    The state of the search is unchanged: the caller decides whether the trial or the
    experiment fails.
    """


class SteeringRefused(SearcherInputError):
    """A user's act that this search does not allow; nothing has changed."""


class OperationsRefused(SearcherInputError):
    """The class of a custom search returned an impossible operation; nothing has changed.

    Attributes:
        mistakes: One sentence for each.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = list(mistakes)


class ReplayMismatch(Exception):
    """The search now decides differently from its journal: its algorithm or its config has changed.

    Attributes:
        place: Number of the event in the journal, from 1.
    """

    def __init__(self, place: int, event: object, recorded: Sequence[object], decided: Sequence[object]) -> None:
        self.place = place
        then, now = (", ".join(map(repr, said)) or "nothing" for said in (recorded, decided))
        super().__init__(f"event {place} of its journal, {event!r:.200}: decided then {then:.400}, now {now:.400}")
