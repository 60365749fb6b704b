"""Which versions of a framework an integration was tested with."""

from __future__ import annotations

import re
from importlib import metadata

from detlab.frameworks.errors import FrameworkVersionError


def require(package: str, *, extra: str, at_least: str, below: str) -> str:
    """Return the version of an installed package.

    Args:
        package: Its name on PyPI.
        extra: The extra of detlab that installs it, and the name of the integration.
        at_least: The oldest version that was tested.
        below: The first version that was not.

    Raises:
        FrameworkVersionError: The package is missing, or older or newer than what was tested.
    """
    install = f"pip install 'detlab[{extra}]'"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise FrameworkVersionError(f"detlab.{extra} needs {package}, which is not installed", hint=install) from None
    tested = f"{package} from {at_least} to below {below}"
    if _numbers(found) < _numbers(at_least):
        raise FrameworkVersionError(
            f"{package} {found} is older than detlab.{extra} was tested with: {tested}", hint=install
        )
    if _numbers(found) >= _numbers(below):
        raise FrameworkVersionError(
            f"{package} {found} is newer than detlab.{extra} was tested with: {tested}",
            hint=f"{install}, or a newer detlab",
        )
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version before what marks a pre-release, a build or a local one; 5.0.0 is 5."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
