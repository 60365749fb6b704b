"""Small real models, many at a time: their learning curves are what rungs and stopping rules are measured on.

Each task is real data that needs no download beyond its package: digits and breast cancer of scikit-learn (a network
with one hidden layer), Japanese vowels of `aeon` (speakers by their recordings; a gated recurrent network). All
networks of a `Batch` see the same samples in the same order, so one batched product trains them all; they differ in the
hyperparameters of `curves.SIZES`. Units beyond a network's width are masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

TASKS = ("digits", "breast_cancer", "speech")
EPOCHS = 27
MOMENTA = (0.0, 0.5, 0.9, 0.98)
BATCH = 32
WORST = 20.0
"""Log loss of a network that has diverged."""


def values(at: Mapping[str, float]) -> dict[str, float]:
    """Return what the indices of a point stand for."""
    return {
        "lr": 10 ** (-3.5 + 4.0 * at["lr"] / 11),
        "momentum": MOMENTA[int(at["momentum"])],
        "weight_decay": 10 ** (-6.0 + 1.25 * at["weight_decay"]),
        "width": 4 * 2 ** at["width"],
    }


@dataclass(frozen=True)
class Data:
    """Samples, standardised: inputs of n×features, or n×time×features with the lengths of the sequences."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    train_lengths: Tensor | None = None
    test_lengths: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.train_labels.max()) + 1


def load(task: str, speech: Path | None = None) -> Data:
    """Load a task; `speech` is the folder of JapaneseVowels_TRAIN.ts."""
    if task == "speech":
        if speech is None:
            raise SystemExit("speech needs the folder of JapaneseVowels_TRAIN.ts (in the package aeon)")
        return _speech(speech)
    from sklearn.datasets import load_breast_cancer, load_digits

    found = {"digits": load_digits, "breast_cancer": load_breast_cancer}[task]()
    order = np.random.RandomState(0).permutation(len(found.target))
    inputs, labels = found.data[order].astype(np.float32), found.target[order]
    cut = len(labels) * 2 // 3
    inputs = (inputs - inputs[:cut].mean(0)) / (inputs[:cut].std(0) + 1e-3)
    x, y = torch.tensor(inputs), torch.tensor(labels)
    return Data(x[:cut], y[:cut], x[cut:], y[cut:])


def _speech(folder: Path) -> Data:
    train, train_labels, train_lengths = _recordings(folder / "JapaneseVowels_TRAIN.ts")
    test, test_labels, test_lengths = _recordings(folder / "JapaneseVowels_TEST.ts")
    return Data(train, train_labels, test, test_labels, train_lengths, test_lengths)


def _recordings(file: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Read recordings of 12 coefficients over at most 29 frames, zeros after their ends."""
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = lines[lines.index("@data") + 1 :]
    inputs, labels, lengths = torch.zeros(len(rows), 29, 12), [], []
    for number, row in enumerate(rows):
        *channels, label = row.split(":")
        frames = np.array([[float(value) for value in channel.split(",") if value != "?"] for channel in channels])
        inputs[number, : frames.shape[1]] = torch.tensor(frames.T, dtype=torch.float32) * 2
        labels.append(int(label) - 1)
        lengths.append(frames.shape[1])
    return inputs, torch.tensor(labels), torch.tensor(lengths)


class Batch:
    """Networks that train side by side; the first dimension of every tensor counts them.

    Args:
        data: Of the task.
        points: A network for each: `values` of it.
        seed: Of the weights and of the order of samples.
    """

    def __init__(self, data: Data, points: Sequence[Mapping[str, float]], seed: int) -> None:
        self._data = data
        self._rng = torch.Generator().manual_seed(seed)
        self._most = int(max(point["width"] for point in points))
        self.tune(points)
        features, out = data.train.shape[-1], data.classes
        gates = 3 if data.train_lengths is not None else 1
        shapes = {"in": (features, gates * self._most), "in_bias": (1, gates * self._most)}
        if gates == 3:
            shapes |= {"own": (self._most, gates * self._most), "own_bias": (1, gates * self._most)}
        shapes |= {"out": (self._most, out), "out_bias": (1, out)}
        self.weights = {name: self._draw(len(points), shape, name) for name, shape in shapes.items()}
        self.momenta = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}

    def tune(self, points: Sequence[Mapping[str, float]]) -> None:
        """Set the hyperparameters, at first or while they train."""
        named = {
            name: torch.tensor([[[point[name]]] for point in points]) for name in ("lr", "momentum", "weight_decay")
        }
        self._lr, self._momentum, self._decay = named["lr"], named["momentum"], named["weight_decay"]
        self._mask = torch.zeros(len(points), 1, self._most)
        for number, point in enumerate(points):
            self._mask[number, 0, : int(point["width"])] = 1.0
        self._widths = torch.tensor([[[point["width"]]] for point in points])

    def _draw(self, count: int, shape: tuple[int, int], name: str) -> Tensor:
        if name.endswith("bias"):
            return torch.zeros(count, *shape)
        scale = 1 / math.sqrt(shape[0]) if name == "in" else 1 / torch.sqrt(self._widths)
        return torch.randn(1, *shape, generator=self._rng).repeat(count, 1, 1) * scale

    def epoch(self) -> None:
        """Train all networks for an epoch."""
        count = len(self._data.train_labels)
        for chosen in torch.randperm(count, generator=self._rng).split(BATCH):
            weights = {name: weight.requires_grad_() for name, weight in self.weights.items()}
            lengths = self._data.train_lengths
            losses = self._losses(
                weights,
                self._data.train[chosen],
                self._data.train_labels[chosen],
                None if lengths is None else lengths[chosen],
            )
            gradients = torch.autograd.grad(losses.sum(), list(weights.values()))
            with torch.no_grad():
                for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
                    momentum = self._momentum * self.momenta[name] + gradient + self._decay * weight
                    self.momenta[name] = momentum
                    self.weights[name] = (weight - self._lr * momentum).detach()

    @torch.no_grad()
    def validate(self) -> np.ndarray:
        """Return the log loss of each network on the test samples; `WORST` where it has diverged."""
        losses = self._losses(self.weights, self._data.test, self._data.test_labels, self._data.test_lengths)
        return np.minimum(np.nan_to_num(losses.numpy(), nan=WORST, posinf=WORST), WORST)

    def _losses(self, weights: Mapping[str, Tensor], x: Tensor, y: Tensor, lengths: Tensor | None) -> Tensor:
        hidden = self._feed(weights, x) if lengths is None else self._recur(weights, x, lengths)
        logits = torch.baddbmm(weights["out_bias"], hidden, weights["out"])
        labels = y.expand(len(logits), -1).reshape(-1)
        each = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels, reduction="none")
        return each.view(len(logits), -1).mean(1)

    def _feed(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        inputs = x.expand(len(self._mask), -1, -1)
        return torch.relu(torch.baddbmm(weights["in_bias"], inputs, weights["in"])) * self._mask

    def _recur(self, weights: Mapping[str, Tensor], x: Tensor, lengths: Tensor) -> Tensor:
        """A gated recurrent unit (Cho et al., EMNLP 2014); the state stays as it is after a recording's end."""
        count, size = len(self._mask), self._most
        state = torch.zeros(count, x.shape[0], size)
        flat = x.reshape(1, -1, x.shape[-1]).expand(count, -1, -1)
        given = torch.baddbmm(weights["in_bias"], flat, weights["in"]).view(count, x.shape[0], x.shape[1], -1)
        for at, now in enumerate(given.unbind(2)):
            own = torch.baddbmm(weights["own_bias"], state, weights["own"])
            reset, update, new = now.chunk(3, -1)
            own_reset, own_update, own_new = own.chunk(3, -1)
            new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new) * self._mask
            moved = torch.lerp(new, state, torch.sigmoid(update + own_update))
            state = torch.where((lengths > at).view(1, -1, 1), moved, state)
        return state
