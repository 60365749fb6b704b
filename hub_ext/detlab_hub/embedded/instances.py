"""The agents that elastic pools started on this machine: `det down` ends them with everything else.

They are found by their folders, independent of the master that launched them, running or not.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from detlab_hub.backends.instances import ProviderError
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.embedded.state import StateFolder

_AT_ONCE = 8


def end_instances(folder: StateFolder) -> tuple[int, list[str]]:
    """End every local instance of every pool, and the rest of its tasks. A second call is harmless.

    Call this only when no master runs that could launch more.

    Returns:
        The number of instances, and what went wrong.
    """
    found, troubles = [], []
    for root in _pools(folder.root / "instances"):
        provider = LocalProvider(root, master="")
        try:
            found += [(provider, instance.id) for instance in provider.list()]
        except ProviderError as error:
            troubles.append(str(error))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        troubles += [trouble for trouble in threads.map(_end, found) if trouble]
    return len(found), troubles


def _pools(place: Path) -> list[Path]:
    return sorted(one for one in place.iterdir() if one.is_dir()) if place.is_dir() else []


def _end(one: tuple[LocalProvider, str]) -> str:
    provider, name = one
    try:
        provider.terminate([name])
    except ProviderError as error:
        return str(error)
    return ""
