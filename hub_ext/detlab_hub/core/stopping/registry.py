"""The stopping policies that are installed: entry points of the group `detlab.stopping`, by `stopping[].name`."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from detlab.plugins import PluginError
from detlab.schemas.expconf.blocks.stopping import POLICIES
from detlab_hub.core.stopping.errors import StoppingConfigError
from detlab_hub.core.stopping.policy import StopPolicy


@cache
def policy_class(name: str) -> type[StopPolicy]:
    """Return the class of a policy.

    Raises:
        StoppingConfigError: No policy of that name is installed, or it cannot be imported.
    """
    try:
        found = POLICIES.load(name)
    except PluginError as error:
        raise StoppingConfigError(f"stopping: {error.message}; {error.hint}") from error
    if not (isinstance(found, type) and issubclass(found, StopPolicy)):
        raise StoppingConfigError(f"stopping: {name!r} ({POLICIES.origin(name)}) is not a StopPolicy")
    return found


def make_policy(entry: Mapping[str, Any]) -> StopPolicy:
    """Make the policy that an entry of the `stopping` list names.

    Raises:
        StoppingConfigError: No such policy is installed.
    """
    policy = policy_class(str(entry.get("name"))).from_config(entry)
    policy.dry_run = bool(entry.get("dry_run", False))
    return policy


def wants_elapsed(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a policy of the `stopping` list has to know how long a trial has run; True if it is not installed."""
    for entry in entries:
        try:
            if policy_class(str(entry.get("name"))).wants_elapsed:
                return True
        except StoppingConfigError:  # it may want to, once it is there again
            return True
    return False
