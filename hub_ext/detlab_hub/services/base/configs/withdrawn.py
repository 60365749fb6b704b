"""Withdrawn sources: what holds where, and the check that every start of training and every promotion goes through."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem
from detlab.governance.evidence import unchecked_predicate
from detlab.governance.ledger import TRANSITION, MatrixRecord, sources_that_reached
from detlab.governance.refusals import REFUSALS, Refusal
from detlab.governance.withdrawals import Withdrawal, declared_in, matches, refusals_of
from detlab_hub.services.base.warm_start import source_of
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.queries.registry import withdrawn
from detlab_hub.store.tables import CLUSTER, EvidenceRow, ExperimentRow, Meta

CODE = "governance.revoked"
PAUSED = "paused: a source was withdrawn: "
"""How the warning begins of an experiment that a withdrawal has paused."""
_MOST_ANCESTORS = 20
"""Trials before a checkpoint's own whose declarations are looked at."""


def key_of(place: int, source: str, manifest: str) -> str:
    """Return the key under which a withdrawal is kept."""
    return f"{withdrawn.PREFIX}{place} {hashlib.sha256(json.dumps([source, manifest]).encode()).hexdigest()}"


def keep(s: Session, place: int, one: Withdrawal) -> None:
    """Keep a withdrawal in a workspace, or in the cluster (`CLUSTER`)."""
    s.merge(Meta(key=key_of(place, one.source, one.manifest), value=json.dumps(dataclasses.asdict(one))))


class WithdrawnSources:
    """All withdrawals, by the workspace in which they hold; read once."""

    def __init__(self, s: Session) -> None:
        self.by_place: dict[int, list[Withdrawal]] = {}
        for place, value in withdrawn.kept(s):
            self.by_place.setdefault(place, []).append(Withdrawal(**json.loads(value)))

    def at(self, *places: int | None) -> list[Withdrawal]:
        """Return what is withdrawn in any of these workspaces; None is one of nobody, where the cluster's hold."""
        wanted = {CLUSTER, *(place for place in places if place is not None)}
        return [one for place in sorted(wanted) for one in self.by_place.get(place, [])]

    def in_config(self, config: Mapping[str, Any], place: int | None) -> list[Refusal]:
        """Return REVOKED for each source that a config declares, and that is withdrawn where it lies."""
        declared = declared_in(config.get("governance"))
        return refusals_of(matches(declared, declared, self.at(place)), "this policy declares it")

    def in_checkpoint(self, s: Session, uuid: str, *places: int | None) -> list[Refusal]:
        """Return REVOKED for each source that has trained a checkpoint, by its evidence, and that is withdrawn in one
        of these workspaces or where the checkpoint lies; none if it has no evidence."""
        return refusals_of(self.behind(s, uuid, *places), f"checkpoint {uuid} was trained on it")

    def behind(self, s: Session, uuid: str, *places: int | None) -> list[tuple[str, Withdrawal]]:
        """Return the sources of `in_checkpoint`, each with all that was withdrawn of it."""
        if not self.by_place or (row := governance.evidence(s, uuid)) is None:
            return []
        held = self.at(*places, _place_of(s, row))
        taint = unchecked_predicate(row.envelope).get("taint") or {}
        manifests = manifests_of(s, row) if any(one.manifest for one in held) else {}
        found = matches(taint, manifests, held)
        if not found:
            return []
        rows = governance.matrices(s, {one for listed in taint.values() for one in listed})
        reached = sources_that_reached(taint, {one.s_hash: MatrixRecord.of(one.body) for one in rows})
        return [pair for pair in found if pair[0] in reached]

    def of_training(self, s: Session, config: Mapping[str, Any], place: int | None) -> list[tuple[str, Refusal]]:
        """Return why an experiment may not train in a workspace, with the keys of its config: by the sources that it
        declares, and by those of the checkpoint that it starts from."""
        if not self.by_place:
            return []
        found = [("governance.sources", one) for one in self.in_config(config, place)]
        start = source_of(s, dict(config))
        if start is not None:
            found += [("searcher.source_checkpoint_uuid", one) for one in self.in_checkpoint(s, start.uuid, place)]
        return found


def _place_of(s: Session, row: EvidenceRow) -> int | None:
    experiment = s.get(ExperimentRow, row.experiment_id)
    return None if experiment is None else experiment.workspace_id


def manifests_of(s: Session, row: EvidenceRow) -> dict[str, set[str | None]]:
    """Return the manifests that were declared of sources by all trials that led to a checkpoint.

    Where one of these trials is not known, None is among the manifests of each source.
    """
    found: dict[str, set[str | None]] = {}
    whole = True
    for one in _ancestors(s, row):
        if one is None:
            whole = False
            break
        for name, listed in declared_in(unchecked_predicate(one.envelope)).items():
            found.setdefault(name, set()).update(listed)
    return found if whole else {name: {*known, None} for name, known in found.items()}


def _ancestors(s: Session, row: EvidenceRow) -> Iterator[EvidenceRow | None]:
    """Yield the evidence of a checkpoint, and of those of other trials that came before it; None: that is not known."""
    waiting, seen = [row.checkpoint_uuid], set[int]()
    while waiting:
        found = governance.evidence(s, waiting.pop())
        if found is None or len(seen) > _MOST_ANCESTORS:
            yield None
            return
        yield found
        if found.trial_id not in seen:
            seen.add(found.trial_id)
            waiting += [one.checkpoint_uuid for one in governance.ledger(s, found.trial_id) if one.kind == TRANSITION]


def check(s: Session, config: Mapping[str, Any], place: int | None) -> None:
    """Check that an experiment may train in a workspace: nothing that it trains on, or starts from, is withdrawn.

    Raises:
        ConfigError: Something is (code `governance.revoked`); each problem says by whom and why.
    """
    found = WithdrawnSources(s).of_training(s, config, place)
    if found:
        problems = [Problem(path, f"{one.code}: {one.message}", REFUSALS[one.code]) for path, one in found]
        raise ConfigError(problems, "a source is withdrawn, and may not be trained on", code=CODE)


def without_pause(warnings: list[str]) -> list[str]:
    """Return the warnings of an experiment that goes on: without that of a withdrawal that has paused it."""
    return [said for said in warnings if not said.startswith(PAUSED)]
