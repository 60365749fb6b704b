"""What can go wrong in a search.

ValueError
├── SearcherConfigError   the configuration names no search that can run
└── SearcherInputError    an event that the search cannot use; the search is unchanged
"""


class SearcherConfigError(ValueError):
    """A searcher or hyperparameter block from which no search can be made."""


class SearcherInputError(ValueError):
    """An event that the search cannot use.

    The state of the search is what it was before the event: the caller decides whether the trial or the
    experiment fails.
    """
