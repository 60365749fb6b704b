"""Errors of stopping policies.

ValueError
└── StoppingConfigError   the `stopping` list names no policy that can run
"""


class StoppingConfigError(ValueError):
    """An entry of `stopping` from which no policy can be made."""
