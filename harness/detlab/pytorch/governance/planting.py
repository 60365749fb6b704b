"""Canaries in the data, and what a model makes of them.

    canaries = Canaries(policy)                     # of all ranks: give them one secret
    data = canaries.plant(data)                     # made by detlab.governance.label or combine
    report = canaries.measure(losses_of_samples)    # after each validation: the gov/ metrics

`PyTorchTrial` does that by itself when its policy has `canaries`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from detlab.governance import GovernanceError, Policy, source_lookup
from detlab.governance.canaries import (
    SECRET_BYTES,
    CanaryDraw,
    CanaryLosses,
    canary_report,
    commitment,
    draw,
    generator,
    leaks,
    needs,
    rank,
)
from detlab.pytorch.data.epoch import forked_rng
from detlab.pytorch.governance.crafting import Craft, craft_for

LOOKED_AT = 1000
"""Samples of a source from which labels and tokens are taken."""

SampleLosses = Callable[[Sequence[Any]], Sequence[float]]
"""Returns the loss of each sample, which are as the data set gives them, with the model in evaluation mode."""


class PlantedDataset:
    """A data set in which canaries have the places of some samples; all else is the data set's own.

    Args:
        dataset: The data set.
        canaries: By index, what is trained on in a sample's place.
        fillers: By index of a sample that is held out, the index of what is trained on in its place.
    """

    def __init__(self, dataset: Any, canaries: Mapping[int, Any], fillers: Mapping[int, int]) -> None:
        self.dataset = dataset
        self._canaries = dict(canaries)
        self._fillers = dict(fillers)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return the samples of these indices."""
        own = [self._fillers.get(one, one) for one in indices]
        wanted = [one for one in own if one not in self._canaries]
        many = getattr(self.dataset, "__getitems__", None)
        found = iter(many(wanted) if many and wanted else [self.dataset[one] for one in wanted])
        return [self._canaries[one] if one in self._canaries else next(found) for one in own]

    def source_of(self, index: int) -> str | None:
        """Return the source of a sample, which is that of the canary in its place."""
        lookup = source_lookup(self.dataset)
        return None if lookup is None else lookup(index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


class Canaries:
    """The canaries of one trial.

    Args:
        policy: Has `canaries`.
        secret: Decides which are trained on; None to draw it. All ranks need the same one, and a resumed trial that
            with which it began. It is not to be derived from the config or a seed: training code could then know it.

    Attributes:
        secret: 32 bytes; who knows it knows which canaries are trained on.
        measuring: The source whose canaries are looked at now; None: those of no source alone.

    Raises:
        GovernanceError: CANARY: the policy has no canaries, or the secret is too short.
    """

    def __init__(self, policy: Policy, secret: bytes | None = None) -> None:
        if policy.canaries is None:
            raise GovernanceError.of("CANARY", "the policy has no canaries: add them to the block governance")
        self.secret = secrets.token_bytes(SECRET_BYTES) if secret is None else secret
        if len(self.secret) < SECRET_BYTES:
            raise GovernanceError.of(
                "CANARY", f"a secret has {SECRET_BYTES} bytes or more, not {len(self.secret)}: it can be guessed"
            )
        self._policy = policy
        self._config = policy.canaries
        self._sets: list[_SourceCanaries] = []
        self.measuring: str | None = None

    @property
    def commitment(self) -> str:
        """What may be told of the secret before anything is measured."""
        return commitment(self.secret)

    @property
    def samples(self) -> list[Any]:
        """All canaries, planted and held out: a fixed set of the trial on which a model may be looked at."""
        return [made for one in self._sets for made in one.made]

    def plant(self, dataset: Any) -> PlantedDataset:
        """Return a data set with the canaries in it.

        Args:
            dataset: Tells the source of each sample (`detlab.governance.label` or `combine`), and has a length.

        Raises:
            GovernanceError: CANARY: it does not, a source has too few samples, or they have neither labels nor tokens.
        """
        lookup, size = source_lookup(dataset), getattr(type(dataset), "__len__", None)
        if lookup is None or not callable(size):
            message = "canaries are planted by source, and this data set does not tell the source of its samples"
            raise GovernanceError.of("CANARY", f"{message}: make it with detlab.governance.label or combine")
        indices: dict[str | None, list[int]] = {name: [] for name in self._config.sources}
        for index in range(len(dataset)):
            if (found := indices.get(lookup(index))) is not None:
                found.append(index)
        with forked_rng(int.from_bytes(self.secret[:7], "big")):  # data sets may draw: alike on all ranks
            return self._plant(dataset, indices)

    def _plant(self, dataset: Any, indices: Mapping[str | None, Sequence[int]]) -> PlantedDataset:
        drawn = [draw(self.secret, name, indices[name], self._config) for name in self._config.sources]
        self._sets = [_SourceCanaries(self, dataset, one, indices[one.source]) for one in drawn]
        canaries = {index: made for one in self._sets for index, made in one.planted.items()}
        fillers = {at: to for one in drawn for at, to in zip(one.held_out, one.fillers, strict=True)}
        return PlantedDataset(dataset, canaries, fillers)

    def measure(self, losses: SampleLosses, *, batch_size: int = 64) -> dict[str, Any]:
        """Return the `gov/` metrics of memorisation and extraction, by the model as it is now.

        Args:
            losses: Computes the loss of each of some samples.
            batch_size: Samples at a time.

        Raises:
            GovernanceError: CANARY: nothing was planted, canaries leaked, or a bound cannot be measured by them.
        """
        if not self._sets:
            raise GovernanceError.of("CANARY", "no canaries are planted: plant(dataset) comes before training")
        found = []
        try:
            for one in self._sets:
                self.measuring = one.source
                found.append(one.losses(losses, batch_size, self._config.candidates))
        finally:
            self.measuring = None
        if refused := [*leaks(found), *needs(self._policy.constraints, found)]:
            raise GovernanceError(refused, "memorisation cannot be measured:")
        return canary_report(found, self._config, self.commitment)


class _SourceCanaries:
    """The canaries of one source, with the samples that they were made from."""

    def __init__(self, of: Canaries, dataset: Any, drawn: CanaryDraw, indices: Sequence[int]) -> None:
        step = max(1, len(indices) // LOOKED_AT)
        places = [*drawn.planted, *drawn.held_out]
        bases = [dataset[index] for index in places]
        seen = [*bases, *(dataset[index] for index in indices[::step][:LOOKED_AT])]
        self._craft: Craft = craft_for(seen, of._config.kind, _own_craft(dataset), drawn.source)
        rng = generator(of.secret, "content", drawn.source)
        self.source = drawn.source
        self._bases = bases
        self.made = [self._craft.make(base, rng) for base in bases]
        self._secret = of.secret
        self._count = len(drawn.planted)
        self.planted = dict(zip(drawn.planted, self.made, strict=False))

    def losses(self, losses: SampleLosses, batch_size: int, candidates: int) -> CanaryLosses:
        """Return the losses of all canaries, and the rank of each among its variants."""
        rng = generator(self._secret, "variants", self.source)
        others = [
            self._craft.variants(made, base, rng, candidates - 1)
            for made, base in zip(self.made, self._bases, strict=True)
        ]
        fewest = min(map(len, others))
        others = [one[:fewest] for one in others]
        flat = [*self.made, *(variant for one in others for variant in one)]
        found: list[float] = []
        for start in range(0, len(flat), batch_size):
            part = flat[start : start + batch_size]
            told = [float(one) for one in losses(part)]
            if len(told) != len(part):
                raise GovernanceError.of("SCALAR", f"{len(told)} losses were given for {len(part)} canaries")
            found += told
        own, rest = found[: len(self.made)], found[len(self.made) :]
        ranks = [rank(one, rest[at * fewest : (at + 1) * fewest]) for at, one in enumerate(own)] if fewest else []
        half = self._count
        return CanaryLosses(
            self.source,
            own[:half],
            own[half:],
            ranks[:half],
            ranks[half:],
            variants=fewest + 1,
            sequences=self._craft.sequences,
        )


def _own_craft(dataset: Any) -> Any:
    """Return `craft_canary` of a data set, or of the one that it is made of; None if there is none."""
    while dataset is not None:
        if callable(own := getattr(dataset, "craft_canary", None)):
            return own
        dataset = getattr(dataset, "dataset", None)
    return None


class LossesRead(BaseException):
    """Leaves `train_batch` once it has given its losses: nothing behind is to happen, whatever the trial catches."""

    def __init__(self, losses: Any) -> None:
        super().__init__()
        self.losses = losses


def numbers_of(losses: Any, count: int) -> list[float]:
    """Return losses as numbers; one that is not a number is infinite.

    Raises:
        GovernanceError: SCALAR: they are not one per sample.
    """
    if not isinstance(losses, torch.Tensor) or losses.shape != (count,):
        what = f"a tensor of shape {list(losses.shape)}" if isinstance(losses, torch.Tensor) else repr(losses)
        raise GovernanceError.of("SCALAR", f"canaries need one loss per sample, of shape [{count}], not {what}")
    found: list[float] = losses.detach().double().cpu().tolist()
    return [math.inf if math.isnan(one) else one for one in found]
