"""scikit-learn's digits (1,797 images of 8x8) in parts, and networks for them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from detlab.governance import combine
from detlab.governance.sources import SourcedDataset

CLEAN, TEST = 80, 400
FLIPPED = 0.4
CANARIES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class NoisyDigits:
    """80 clean samples, `trusted`, and about 1,317 of which 40 percent have a wrong label, `web`.

    Attributes:
        data: Both, for training.
        test: Images and true labels that nobody trains on; half of it is for choosing, half for the result.
        wrong: Images of `web` whose label is wrong, with that label.
    """

    data: SourcedDataset
    test: tuple[torch.Tensor, torch.Tensor]
    wrong: tuple[torch.Tensor, torch.Tensor]

    @property
    def halves(self) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
        """What a search chooses by, and what its winner is judged by."""
        x, y = self.test
        return (x[: TEST // 2], y[: TEST // 2]), (x[TEST // 2 :], y[TEST // 2 :])


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images, [1797, 64] in 0..1, and their labels."""
    x, y = load_digits(return_X_y=True)
    return torch.as_tensor(x / 16.0, dtype=torch.float32), torch.as_tensor(y, dtype=torch.long)


def noisy_digits(seed: int) -> NoisyDigits:
    """Return the parts that follow from a seed."""
    x, y = images()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    x, y = x[order], y[order]
    test = (x[:TEST], y[:TEST])
    clean = (x[TEST : TEST + CLEAN], y[TEST : TEST + CLEAN])
    web_x, web_y = x[TEST + CLEAN :], y[TEST + CLEAN :].clone()
    flipped = torch.rand(len(web_y), generator=generator) < FLIPPED
    web_y[flipped] = (web_y[flipped] + torch.randint(1, 10, (int(flipped.sum()),), generator=generator)) % 10
    data = combine({"trusted": _pairs(*clean), "web": _pairs(web_x, web_y)})
    return NoisyDigits(data, test, (web_x[flipped], web_y[flipped]))


def _pairs(x: torch.Tensor, y: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    return list(zip(x, y.tolist(), strict=True))


class Blocks(nn.Module):
    """A linear layer whose outputs are made in blocks, so that a policy may open some of them.

    Args:
        inputs: Size.
        outputs: Size.
        count: Blocks.
    """

    def __init__(self, inputs: int, outputs: int, count: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(inputs, outputs // count) for _ in range(count))
        for part in self.parts:  # as one layer would be initialised
            bound = inputs**-0.5
            nn.init.uniform_(part.weight, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of all blocks."""
        return torch.cat([part(x) for part in self.parts], dim=1)


class Classifier(nn.Module):
    """64-width-width-10, with a second head for `web` and an adapter of its own, which policies use or not.

    Args:
        width: Of the hidden layers.
        blocks: In how many blocks each hidden layer is made; the head then has one for each class.
    """

    def __init__(self, width: int = 256, blocks: int = 1) -> None:
        super().__init__()
        self.first = Blocks(64, width, blocks)
        self.second = Blocks(width, width, blocks)
        self.head = Blocks(width, 10, 10 if blocks > 1 else 1)
        self.side = nn.Linear(width, 10)
        self.adapter = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the heads see."""
        out: torch.Tensor = self.second(self.first(x).relu()).relu()
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of the head that is served, with what the adapter adds."""
        out: torch.Tensor = self.head(self.hidden(x)) + self.adapter(x)
        return out


def plain(model: Classifier, batch: tuple[torch.Tensor, torch.Tensor], sources: Sequence[str] = ()) -> torch.Tensor:
    """Return losses by the head that is served, without the adapter's part in training."""
    logits = model.head(model.hidden(batch[0]))
    return functional.cross_entropy(logits, batch[1], reduction="none")


def adapted(model: Classifier, batch: tuple[torch.Tensor, torch.Tensor], sources: Sequence[str] = ()) -> torch.Tensor:
    """Return losses with the adapter's part."""
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def two_heads(model: Classifier, batch: tuple[torch.Tensor, torch.Tensor], sources: Sequence[str]) -> torch.Tensor:
    """Return losses of `web` by the second head, of others by the head that is served."""
    hidden = model.hidden(batch[0])
    web = torch.tensor([one == "web" for one in sources])[:, None]
    return functional.cross_entropy(
        torch.where(web, model.side(hidden), model.head(hidden)), batch[1], reduction="none"
    )


def accuracy(model: Classifier, of: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Return the share of labels that the head which is served gives."""
    with torch.no_grad():
        logits = model.head(model.hidden(of[0]))
    return float((logits.argmax(1) == of[1]).float().mean())


def random_blocks(model: Classifier, like: str, seed: int) -> list[str]:
    """Return modules drawn at random with about as many parameters as `like` has: what a placebo opens."""
    sizes = {
        name: sum(one.numel() for one in module.parameters())
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.split(".")[0] in ("first", "second", "head")
    }
    most = sum(size for name, size in sizes.items() if name.startswith(f"{like}."))
    names = sorted(sizes)
    random.Random(seed).shuffle(names)
    chosen: list[str] = []
    for name in names:
        if sizes[name] <= most:
            chosen.append(name)
            most -= sizes[name]
    return chosen
