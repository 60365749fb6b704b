"""Which canaries are trained on: drawn from a secret, and what their losses show.

    drawn = draw(secret, "web", indices_of_web, count=200)   # places in the data, one half to be trained on
    commitment(secret)                                       # what may be told before anything is measured

Pure. What is put into those places, and how losses are computed, is `detlab.pytorch.governance`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detlab.governance.refusals import GovernanceError, Refusal
from detlab.schemas.expconf.blocks.governance import CanariesConfig
from detlab.schemas.expconf.canary_bounds import (
    area,
    area_lower_bound,
    at_least,
    confidence_of_one,
    share_lower_bound,
)

SECRET_BYTES = 32
LEAKED = 1e-6
"""Refused as leaked if held-out canaries were extracted as often by chance with a smaller probability."""


def commitment(secret: bytes) -> str:
    """Return what commits to a secret without telling it, as `sha256:…`."""
    return "sha256:" + hashlib.sha256(b"detlab canaries 1\0" + secret).hexdigest()


def generator(secret: bytes, *purpose: str) -> random.Random:
    """Return random numbers that follow from a secret and a purpose alone.

    Only `random()` is used of it: its numbers are the same in every version of Python.
    """
    text = b"\0".join([secret, *(one.encode() for one in purpose)])
    return random.Random(int.from_bytes(hashlib.sha256(text).digest(), "big"))  # noqa: S311  # seeded by a secret


def pick(rng: random.Random, count: int) -> int:
    """Return a number below `count`."""
    return min(count - 1, int(rng.random() * count))


@dataclasses.dataclass(frozen=True, slots=True)
class CanaryDraw:
    """The places of one source's canaries.

    Attributes:
        source: Its name.
        planted: Indices of samples in whose place a canary is trained on.
        held_out: Indices of samples that a canary is made from, which is not trained on.
        fillers: For each of these, the index of another sample of the source that is trained on in its place.
    """

    source: str
    planted: tuple[int, ...]
    held_out: tuple[int, ...]
    fillers: tuple[int, ...]


def draw(secret: bytes, source: str, indices: Sequence[int], config: CanariesConfig) -> CanaryDraw:
    """Draw the canaries of a source: which samples they are made from, and which half is trained on.

    Args:
        secret: Of the trial.
        source: Name of the source.
        indices: Of its samples in the data set, ascending.
        config: How many, and of how many samples at most.

    Raises:
        GovernanceError: CANARY: the source has no sample, or too few for so many canaries.
    """
    count, have = config.count - config.count % 2, len(indices)
    if have == 0:
        raise GovernanceError.of("CANARY", f"the data set has no sample of {source!r} that a canary could be made from")
    if count > config.budget * have or count >= have:
        most = int(config.budget * have)
        wanted = f"{count} canaries take {count / have:.1%} of the {have} samples of {source!r}"
        allowed = f"governance.canaries.budget is {config.budget:g}, which are {most}"
        raise GovernanceError.of("CANARY", f"{wanted}, and {allowed}: set a smaller count or a larger budget")
    rng = generator(secret, "places", source)
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        chosen[indices[pick(rng, have)]] = None
    places = list(chosen)
    planted, held_out = places[: count // 2], places[count // 2 :]
    fillers: list[int] = []
    while len(fillers) < len(held_out):
        if (other := indices[pick(rng, have)]) not in chosen:
            fillers.append(other)
    return CanaryDraw(source, tuple(planted), tuple(held_out), tuple(fillers))


@dataclasses.dataclass(frozen=True, slots=True)
class CanaryLosses:
    """What a model makes of one source's canaries.

    Attributes:
        source: Its name.
        planted: Losses of those that were trained on.
        held_out: Losses of the others.
        ranks: For each planted one, its rank by loss among its variants, from 1; equal losses count against it.
        held_out_ranks: Likewise of the others.
        variants: How many are ranked each, itself included; 1 if none are.
        sequences: Whether variants are continuations of one beginning.
    """

    source: str
    planted: Sequence[float]
    held_out: Sequence[float]
    ranks: Sequence[int] = ()
    held_out_ranks: Sequence[int] = ()
    variants: int = 1
    sequences: bool = False


def rank(own: float, others: Iterable[float]) -> int:
    """Return the place of a loss among those of its variants, from 1; what is not a number is last."""
    if math.isnan(own):
        own = math.inf
    return 1 + sum((math.inf if math.isnan(one) else one) <= own for one in others)


def leaks(found: Sequence[CanaryLosses]) -> list[Refusal]:
    """Return CANARY for sources whose held-out canaries the model knows: it was trained on them after all."""
    refused = []
    for one in found:
        hits, of = sum(place == 1 for place in one.held_out_ranks), len(one.held_out_ranks)
        if one.variants > 1 and hits and at_least(hits, of, 1 / one.variants) < LEAKED:
            known = f"{hits} of {of} canaries of {one.source!r} that were held out rank first among {one.variants}"
            refused.append(Refusal("CANARY", f"{known}: they leaked into the training, so nothing can be measured"))
    return refused


def canary_report(found: Sequence[CanaryLosses], config: CanariesConfig, committed: str) -> dict[str, Any]:
    """Return the metrics: of several sources the worst, and each in `gov/canaries`.

    Args:
        found: By source.
        config: Confidence and looks.
        committed: Commitment to the secret.
    """
    confidence = confidence_of_one(config.confidence, config.looks * len(found))
    each = {one.source: _of_source(one, confidence) for one in found}
    report = {
        "gov/canary_auc": max(one["auc"] for one in each.values()),
        "gov/canary_auc_lcb": max(one["auc_lcb"] for one in each.values()),
    }
    if all("extraction" in one for one in each.values()):
        report["gov/extraction"] = max(one["extraction"] for one in each.values())
        report["gov/extraction_lcb"] = max(one["extraction_lcb"] for one in each.values())
    return {**report, "gov/canaries": {"commitment": committed, "confidence_each": confidence, "sources": each}}


def _of_source(one: CanaryLosses, confidence: float) -> dict[str, float]:
    size = len(one.planted), len(one.held_out)
    auc = area(one.planted, one.held_out)
    told: dict[str, float] = {"planted": size[0], "held_out": size[1], "auc": auc}
    told["auc_lcb"] = area_lower_bound(auc, *size, confidence)
    if one.ranks and one.sequences:
        hits = sum(place == 1 for place in one.ranks)
        told["extraction"] = hits / len(one.ranks)
        told["extraction_lcb"] = share_lower_bound(hits, len(one.ranks), confidence)
        bits = [math.log2(one.variants) - math.log2(place) for place in one.ranks]
        told["exposure"] = math.fsum(bits) / len(bits)
        told["candidates"] = one.variants
    return told


def needs(constraints: Mapping[str, Any], found: Sequence[CanaryLosses]) -> list[Refusal]:
    """Return CANARY for a bound of extraction where canaries are no sequences."""
    odd = [one.source for one in found if not (one.ranks and one.sequences)]
    if "extraction_lcb" not in constraints or not odd:
        return []
    return [Refusal("CANARY", f"extraction_lcb is a bound for sequences, and canaries of {odd[0]!r} are none")]
