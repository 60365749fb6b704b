"""What a pool enforces of policies, as operators declare and agents attest it, and which mounts need that."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas.wire.governance.capabilities import CAPABILITIES, ENGINES, LEDGER, LEVELS, required_by

TTL = 900.0
"""Seconds for which an attestation counts."""
SHORTEST, LONGEST = 30.0, 86400.0
NODE_LABELS = "node-restriction.kubernetes.io/"
"""What labels begin with that a kubelet cannot set on its own node."""
_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LABEL = re.compile(rf"{re.escape(NODE_LABELS)}[A-Za-z0-9][A-Za-z0-9_.-]{{0,62}}=[A-Za-z0-9_.-]{{0,63}}")


@dataclass(frozen=True)
class GovernedPool:
    """The declaration of a pool.

    Attributes:
        enforces: What it enforces; None: whatever its agents attest.
        attested: Whether an agent counts only with a fresh attestation.
        ttl: Seconds for which one counts.
        node_label: (name, value) of a label that a node must have, which nodes cannot set themselves; None: none.
        slurm_features: Features that the nodes of a governed job must have.
    """

    enforces: frozenset[str] | None = None
    attested: bool = True
    ttl: float = TTL
    node_label: tuple[str, str] | None = None
    slurm_features: tuple[str, ...] = ()

    def enforced(self, attested: Iterable[str], labels: Mapping[str, str]) -> frozenset[str]:
        """Return what an agent of the pool enforces.

        Args:
            attested: What it attests now; nothing if that is stale.
            labels: Of the agent.
        """
        if self.node_label is not None and labels.get(self.node_label[0]) != self.node_label[1]:
            return frozenset()
        if self.enforces is None:
            return frozenset(attested)
        return self.enforces.intersection(attested) if self.attested else self.enforces

    def lacks(self, requires: Iterable[str]) -> list[str]:
        """Return what none of its agents will ever enforce, whatever they attest."""
        return [] if self.enforces is None else sorted(set(requires) - self.enforces)


@dataclass(frozen=True)
class GovernedMounts:
    """Directories of nodes, and claims of volumes, with data that may be used only where a pool enforces something.

    Attributes:
        by_place: What is needed, by absolute path or `pvc:NAME`.
    """

    by_place: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def required_by(self, config: Mapping[str, Any]) -> frozenset[str]:
        """Return what the pool must enforce in which something of this config runs: by the config, and by its mounts.

        A mount counts if it is such a directory, lies in it, or holds it. Links are not seen from here: agents look
        again, at what `closed_to` names.
        """
        return required_by(config).union(*(self.by_place[place] for place in self.mounted_by(config)))

    def mounted_by(self, config: Mapping[str, Any]) -> list[str]:
        """Return the places that something of this config mounts."""
        mounts = list(_mounted(config)) if self.by_place else []
        return sorted(place for place in self.by_place if any(_meet(place, one) for one in mounts))

    def closed_to(self, requires: Iterable[str]) -> list[str]:
        """Return the directories that something may not have which is placed where no more than this is enforced."""
        given = frozenset(requires)
        return sorted(place for place, needs in self.by_place.items() if place.startswith("/") and not needs <= given)


def _meet(place: str, mount: str) -> bool:
    if not (place.startswith("/") and mount.startswith("/")):
        return place == mount
    longer, shorter = sorted((place.rstrip("/") + "/", mount.rstrip("/") + "/"), key=len, reverse=True)
    return longer.startswith(shorter)


def _mounted(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a config has mounted: `bind_mounts`, devices, volumes of its pods, directories of its storage."""
    storage = _block(config, "checkpoint_storage")
    volumes = _blocks(_block(config, "environment", "pod_spec", "spec"), "volumes")
    hosts = [*_blocks(config, "bind_mounts"), *_blocks(_block(config, "resources"), "devices"), storage]
    paths = [one.get("host_path") for one in hosts]
    paths += [storage.get("storage_path"), *(_block(one, "hostPath").get("path") for one in volumes)]
    for path in paths:
        if isinstance(path, str) and path.startswith("/"):
            yield "/" + posixpath.normpath(path).lstrip("/")
    for one in volumes:
        if claim := _block(one, "persistentVolumeClaim").get("claimName"):
            yield f"pvc:{claim}"


def _block(config: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        found = config.get(key)
        config = found if isinstance(found, Mapping) else {}
    return config


def _blocks(config: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = config.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def read_governed_mounts(said: Mapping[str, Any]) -> tuple[GovernedMounts, list[str]]:
    """Read `c.DetHub.governed_mounts`; return what is in it, and its errors."""
    found, errors = dict[str, frozenset[str]](), list[str]()
    for place, needed in said.items():
        if place.startswith("/") and ".." not in place.split("/"):
            name = "/" + posixpath.normpath(place).lstrip("/")
        elif re.fullmatch(r"pvc:[a-z0-9][a-z0-9.-]{0,252}", place):
            name = place
        else:
            errors.append(f"{place[:200]!r} is neither an absolute path nor pvc:NAME")
            continue
        names = needed if isinstance(needed, list | tuple) else ()
        if not names or not all(one in CAPABILITIES for one in names):
            errors.append(f"{place[:200]!r} needs a list of what pools must enforce: {', '.join(CAPABILITIES)}")
            continue
        found[name] = found.get(name, frozenset()) | frozenset(names)
    return GovernedMounts(found), errors


def read_governance(said: Any) -> GovernedPool:
    """Read the key `governance` of a pool.

    Raises:
        ValueError: Something is wrong; the message says what must be there.
    """
    if said is None:
        return GovernedPool(enforces=frozenset(), attested=False)
    known = {"levels", "engines", "signing", "attestation", "ttl", "node_label", "slurm_features"}
    if not isinstance(said, Mapping) or not known.issuperset(said):
        raise ValueError(f"must be a mapping with keys of {', '.join(sorted(known))}, or None for a pool without")
    label, ttl, flags = said.get("node_label"), said.get("ttl", TTL), ("signing", "attestation")
    if label is not None and (not isinstance(label, str) or _LABEL.fullmatch(label) is None):
        raise ValueError(f"node_label must be {NODE_LABELS}NAME=VALUE, as kubelets cannot set others of their nodes")
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not SHORTEST <= ttl <= LONGEST:
        raise ValueError(f"ttl must be {SHORTEST:g} to {LONGEST:g} seconds")
    if bad := [key for key in flags if not isinstance(said.get(key, True), bool)]:
        raise ValueError(f"{bad[0]} must be True or False")
    attested, declared = said.get("attestation", True), _declared(said)
    if not attested and declared is None:
        raise ValueError("attestation False needs levels, engines or signing: nothing else says what is enforced")
    name, _, value = (label or "").partition("=")
    features = tuple(_listed(said, "slurm_features", None))
    return GovernedPool(declared, attested, float(ttl), (name, value) if label else None, features)


def _declared(said: Mapping[str, Any]) -> frozenset[str] | None:
    """Return what is declared; None if nothing is said of it."""
    if not {"levels", "engines", "signing"} & said.keys():
        return None
    levels = [LEVELS[one] for one in _listed(said, "levels", LEVELS)]
    engines = [ENGINES[one] for one in _listed(said, "engines", ENGINES)]
    return frozenset([*levels, *engines, *([LEDGER] if said.get("signing", True) else [])])


def _listed(said: Mapping[str, Any], key: str, known: Mapping[str, str] | None) -> list[str]:
    given = said.get(key, [])
    names = given if isinstance(given, list | tuple) else None
    fits = known.__contains__ if known is not None else lambda one: _FEATURE.fullmatch(one) is not None
    if names is None or not all(isinstance(one, str) and fits(one) for one in names):
        what = ", ".join(known) if known is not None else "letters, digits, `_`, `.` and `-`"
        raise ValueError(f"{key} must be a list of names: {what}")
    return [str(one) for one in names]
