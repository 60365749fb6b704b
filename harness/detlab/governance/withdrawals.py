"""Sources that may not be trained on any more, whatever a policy says: withdrawn by name, perhaps with a manifest."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from detlab.governance.refusals import Refusal


@dataclasses.dataclass(frozen=True, slots=True)
class Withdrawal:
    """A source that was withdrawn.

    Attributes:
        source: Its name.
        manifest: Only what has this manifest, `sha256:…`; empty: whatever is called so.
        workspace: In which workspace, `OWNER/NAME`; empty: in the whole cluster.
        reason: Why.
        by: Who has withdrawn it.
        at: When, in seconds since the epoch.
    """

    source: str
    manifest: str = ""
    workspace: str = ""
    reason: str = ""
    by: str = ""
    at: float = 0.0

    def covers(self, name: str, manifests: Collection[str | None] = ()) -> bool:
        """Return whether this is about a source.

        Args:
            name: What it is called.
            manifests: Those that were declared of it; None among them, or none at all: it is not known.
        """
        if not self.manifest:
            return name == self.source
        unknown = not manifests or None in manifests
        return self.manifest in manifests or (name == self.source and unknown)

    @property
    def said(self) -> str:
        """What happened, in words."""
        day = datetime.datetime.fromtimestamp(self.at, datetime.UTC).date()
        where = "its workspace" if self.workspace else "the cluster"  # whoever is shown it may not know which
        return f"was withdrawn in {where} on {day} by {self.by}" + (f": {self.reason}" if self.reason else "")


Manifests = Mapping[str, Collection[str | None]]
"""Source -> the manifests that were declared of it."""


def declared_in(block: Any) -> dict[str, list[str | None]]:
    """Return the sources of a block `governance`, or of a signed statement, with the manifest of each."""
    listed = block.get("sources") if isinstance(block, Mapping) else None
    found: dict[str, list[str | None]] = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("name"), str):
            found.setdefault(one["name"], []).append(one.get("manifest"))
    return found


def matches(
    names: Iterable[str], manifests: Manifests, withdrawals: Sequence[Withdrawal]
) -> list[tuple[str, Withdrawal]]:
    """Return sources that are withdrawn, each with all that say so.

    Args:
        names: The sources.
        manifests: What is known of them.
        withdrawals: What was withdrawn where this is asked.
    """
    return [(name, one) for name in names for one in withdrawals if one.covers(name, manifests.get(name, ()))]


def refusals_of(found: Iterable[tuple[str, Withdrawal]], what: str) -> list[Refusal]:
    """Return REVOKED once for each source.

    Args:
        found: From `matches`.
        what: What has to do with the source, as in `the weights were trained on it`.
    """
    first: dict[str, Withdrawal] = {}
    for name, one in found:
        first.setdefault(name, one)
    return [Refusal("REVOKED", f"the source {name!r} {one.said}; {what}") for name, one in first.items()]
