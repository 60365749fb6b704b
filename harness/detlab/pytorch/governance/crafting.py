"""Canaries out of samples: a label that is not the sample's own, or last tokens that no text has.

Both have *variants*, which are drawn as the canary itself was: without training on it, each is as likely as the others.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from detlab.governance import GovernanceError
from detlab.governance.canaries import pick

MOST_TOKENS = 8
"""Of a made-up continuation; of short sequences it is the half."""


class Craft(Protocol):
    """Makes canaries out of samples."""

    sequences: bool
    """Whether variants are continuations of one beginning."""

    def make(self, sample: Any, rng: random.Random) -> Any:
        """Return a canary made from a sample."""

    def variants(self, canary: Any, sample: Any, rng: random.Random, most: int) -> list[Any]:
        """Return other canaries that might have been made from the sample, `most` at most."""


def craft_for(samples: Sequence[Any], kind: str, own: Any, source: str) -> Craft:
    """Return what makes canaries of samples like these.

    Args:
        samples: Of one source.
        kind: `label`, `tokens` or `auto`.
        own: The data set's own `craft_canary`; None if it has none.
        source: Name of the source, for messages.

    Raises:
        GovernanceError: CANARY: no label and no sequence is found in them.
    """
    if callable(own):
        return OwnCraft(own)
    if kind in ("auto", "tokens") and all(_tokens(one) is not None for one in samples):
        return TokenCraft([_tokens(one) or [] for one in samples], source)
    if kind in ("auto", "label") and all(_label(one) is not None for one in samples):
        return LabelCraft([_label(one) for one in samples], source)
    wanted = {"auto": "a label or tokens", "label": "a label", "tokens": "tokens"}[kind]
    how = "(inputs, label), a sequence of integers, (tokens, targets) or input_ids and labels"
    raise GovernanceError.of(
        "CANARY",
        f"{wanted} cannot be made up in samples of {source!r}, which are {_named(samples[0])} and not {how}:"
        " give the data set a method craft_canary(sample, random)",
    )


def _named(sample: Any) -> str:
    if isinstance(sample, (list, tuple)):
        return f"{type(sample).__name__} of {', '.join(type(one).__name__ for one in sample[:4])}"
    return type(sample).__name__


class OwnCraft:
    """The data set's own canaries, which have no variants."""

    sequences = False

    def __init__(self, own: Callable[[Any, random.Random], Any]) -> None:
        self._own = own

    def make(self, sample: Any, rng: random.Random) -> Any:
        """Ask the data set."""
        return self._own(sample, rng)

    def variants(self, canary: Any, sample: Any, rng: random.Random, most: int) -> list[Any]:
        """Return none."""
        return []


# --- labels


def _label(sample: Any) -> int | None:
    """Return the label of a sample `(inputs, label)`; None if its last part is no single integer."""
    if not isinstance(sample, (list, tuple)) or len(sample) < 2:
        return None
    last = sample[-1]
    if isinstance(last, (torch.Tensor, np.ndarray)) and (last.ndim != 0 or "int" not in str(last.dtype)):
        return None
    try:
        return None if isinstance(last, bool) else operator.index(last)
    except TypeError:
        return None


class LabelCraft:
    """Gives samples a label that is not theirs, each of the others as likely."""

    sequences = False

    def __init__(self, labels: Sequence[int | None], source: str) -> None:
        self._labels = sorted({one for one in labels if one is not None})
        if len(self._labels) < 2:
            raise GovernanceError.of("CANARY", f"all samples of {source!r} that were looked at have one label")

    def make(self, sample: Any, rng: random.Random) -> Any:
        """Return the sample with another label."""
        others = self._others(sample)
        return _with_label(sample, others[pick(rng, len(others))])

    def variants(self, canary: Any, sample: Any, rng: random.Random, most: int) -> list[Any]:
        """Return it with the other labels that it might have got."""
        mine = _label(canary)
        others = [one for one in self._others(sample) if one != mine]
        while len(others) > most:
            others.pop(pick(rng, len(others)))
        return [_with_label(sample, one) for one in others]

    def _others(self, sample: Any) -> list[int]:
        own = _label(sample)
        return [one for one in self._labels if one != own]


def _with_label(sample: Any, label: int) -> Any:
    last = sample[-1]
    made: Any = label
    if isinstance(last, torch.Tensor):
        made = torch.full_like(last, label)
    elif isinstance(last, (np.ndarray, np.generic)):
        made = np.asarray(label, dtype=last.dtype)[()]
    parts = [*sample[:-1], made]
    return type(sample)(*parts) if hasattr(sample, "_fields") else type(sample)(parts)


# --- sequences


def _plain(part: Any) -> list[int] | None:
    """Return the integers of a sequence; None if it is none."""
    if isinstance(part, (torch.Tensor, np.ndarray)):
        return [int(one) for one in part.tolist()] if part.ndim == 1 and "int" in str(part.dtype) else None
    if isinstance(part, (list, tuple)) and part and all(type(one) is int for one in part):
        return list(part)
    return None


def _parts(sample: Any) -> tuple[Any, Any]:
    """Return inputs and targets of a sample; targets are None if it is one sequence."""
    if isinstance(sample, Mapping):
        return sample.get("input_ids"), sample.get("labels")
    if isinstance(sample, (list, tuple)) and len(sample) == 2 and _plain(sample) is None:
        return sample[0], sample[1]
    return sample, None


def _tokens(sample: Any) -> list[int] | None:
    """Return the whole sequence of a sample, targets that are shifted by one included; None if it is none."""
    inputs, targets = _parts(sample)
    first = _plain(inputs)
    if first is None or len(first) < 2:
        return None
    if isinstance(sample, Mapping) and not _whole(sample.get("attention_mask")):
        return None
    if targets is None:
        return first
    second = _plain(targets)
    if second == first:
        return first
    if second is not None and len(second) == len(first) and second[:-1] == first[1:]:
        return [*first, second[-1]]
    return None


def _whole(mask: Any) -> bool:
    values = None if mask is None else _plain(mask)
    return mask is None or (values is not None and all(values))


class TokenCraft:
    """Gives sequences last tokens that are drawn at random from those of all of them."""

    sequences = True

    def __init__(self, sequences: Sequence[Sequence[int]], source: str) -> None:
        self._pool = [one for sequence in sequences for one in sequence]
        if len(set(self._pool)) < 2:
            raise GovernanceError.of("CANARY", f"all sequences of {source!r} that were looked at have one token")

    def make(self, sample: Any, rng: random.Random) -> Any:
        """Return the sample with another end."""
        tokens = _tokens(sample)
        assert tokens is not None  # `craft_for` has looked
        count = max(1, min(MOST_TOKENS, len(tokens) // 2))
        drawn = [self._pool[pick(rng, len(self._pool))] for _ in range(count)]
        return _with_tokens(sample, [*tokens[:-count], *drawn])

    def variants(self, canary: Any, sample: Any, rng: random.Random, most: int) -> list[Any]:
        """Return it with other ends."""
        return [self.make(sample, rng) for _ in range(most)]


def _with_tokens(sample: Any, tokens: list[int]) -> Any:
    inputs, targets = _parts(sample)
    length = len(_plain(inputs) or ())
    first = _like(inputs, tokens[:length])
    second = None if targets is None else _like(targets, tokens[-length:])
    if isinstance(sample, Mapping):
        made = {**sample, "input_ids": first}
        return made if second is None else {**made, "labels": second}
    if second is None:
        return first
    return type(sample)(first, second) if hasattr(sample, "_fields") else type(sample)([first, second])


def _like(part: Any, tokens: list[int]) -> Any:
    if isinstance(part, torch.Tensor):
        return torch.tensor(tokens, dtype=part.dtype)
    if isinstance(part, np.ndarray):
        return np.array(tokens, dtype=part.dtype)
    return type(part)(tokens)
