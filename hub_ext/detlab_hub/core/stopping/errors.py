"""Errors of stopping policies.

ValueError
└── StoppingConfigError   no policy can run with this `stopping` list
"""


class StoppingConfigError(ValueError):
    """An entry of `stopping` with which no policy can run."""
