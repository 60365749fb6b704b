"""Spans of time of the command line: seconds, or a text such as `30m`."""

from __future__ import annotations

import click

from detlab.cli.output.printing import clean
from detlab.errors import ConfigError


def span(text: str, option: str) -> float:
    """Return a span in seconds.

    Args:
        text: Seconds, or such as `30m`, `2h`, `3d`.
        option: Whose value it is.

    Raises:
        click.BadParameter: It is none, or not more than nothing.
    """
    from detlab.schemas.expconf.blocks.scalars import as_seconds

    try:
        seconds = as_seconds(text)
    except (ConfigError, ValueError):
        seconds = None
    if not isinstance(seconds, float) or seconds <= 0:
        raise click.BadParameter(f'{clean(text)!r} is not a duration: write 1800, "30m" or "2h"', param_hint=option)
    return seconds
