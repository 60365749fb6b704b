"""A character model on the King James text of Debian's package bible-kjv-text: memorisation and extraction."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import random
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from detlab.governance import combine
from governed.training import Rule, Training, canaries_of, policy_of, rule

PACKAGED = Path("/usr/lib/bible.data")
"""Where Debian's bible-kjv-text 4.38 puts it."""
WINDOW = 48
COUNT = 1600
"""Windows of each source, and half as many that are held out."""
CANARIES = 200


def read_text(path: Path) -> str:
    """Return the text of a plain file, or of the package's, which is in blocks that `compress` has made.

    Raises:
        OSError: It cannot be read, or gzip is not installed.
    """
    data = path.read_bytes()
    if not data.startswith(b"EC02"):
        return data.decode("utf-8")
    (count,) = struct.unpack_from(">I", data, 0x58)
    places = struct.unpack_from(f">{count + 1}I", data, 0x5C)
    found = io.BytesIO()
    for first, last in itertools.pairwise(places):
        block = b"\x1f\x9d\x90" + data[first:last].removeprefix(b"\x1f\x9d\x90")
        found.write(subprocess.run(["gzip", "-dc"], input=block, capture_output=True, check=True).stdout)
    return found.getvalue().decode("latin-1")


class Transformer(nn.Module):
    """A causal transformer of layers that are routed in their backward pass, with an adapter that policies use or not.

    Args:
        vocabulary: Number of tokens.
        width: Of the model.
        layers: Blocks.
        length: Longest sequence.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.register_buffer("place", torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.adapter = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, *, adapted: bool = False) -> torch.Tensor:
        """Return logits, [batch, length, vocabulary]."""
        hidden = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        if adapted:
            hidden = hidden + self.adapter(hidden)
        out: torch.Tensor = self.head(hidden)
        return out


class _Block(nn.Module):
    HEADS = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mixed(self.first(x)).view(batch, length, 3, self.HEADS, width // self.HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        added: torch.Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return added


def text_losses(
    model: Any, tokens: torch.Tensor, sources: Sequence[str] = (), *, adapted: bool = False
) -> torch.Tensor:
    """Return the mean loss of each sequence."""
    logits = model(tokens[:, :-1], adapted=adapted)
    each = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return each.view(len(tokens), -1).mean(1)


def _adapted(model: Any, tokens: torch.Tensor, sources: Sequence[str] = ()) -> torch.Tensor:
    return text_losses(model, tokens, sources, adapted=True)


@dataclasses.dataclass(frozen=True, slots=True)
class TextOutcome:
    """What one training came to.

    Attributes:
        bits: Bits for each character of held-out windows of both sources.
        auc: Area of the canaries, by the model that is served.
        extraction: Share of planted continuations that rank first.
    """

    bits: float
    auc: float
    extraction: float


def _placebo(model: nn.Module, seed: int) -> list[Rule]:
    """Open layers drawn at random, with about as many parameters as the head."""
    sizes = {
        name: sum(one.numel() for one in module.parameters())
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding) and not name.startswith(("adapter", "head"))
    }
    most = sum(one.numel() for one in model.head.parameters())
    names = sorted(sizes)
    random.Random(seed).shuffle(names)
    chosen = []
    for name in names:
        if sizes[name] <= most:
            chosen.append(rule("web", name.replace(".", r"\."), 1.0))
            most -= sizes[name]
    return chosen


CLOSED = rule("web", ".*", 0.0)
ARMS: dict[str, Any] = {
    "ungoverned": lambda model, seed: [],
    "head only": lambda model, seed: [CLOSED, rule("web", "head", 1.0)],
    "head only, placebo: random layers of that size": lambda model, seed: [CLOSED, *_placebo(model, seed)],
    "dropped": lambda model, seed: [CLOSED],
    "isolated adapter": lambda model, seed: [
        rule("*", "adapter", 0.0),
        CLOSED,
        rule("web", "adapter", 1.0, level="isolated"),
    ],
}


def text_outcome(name: str, text: str, seed: int, epochs: int, count: int = COUNT) -> TextOutcome:
    """Train one arm: `trusted` is from the first half of the text, `web` from the second."""
    letters = sorted(set(text))
    index = {letter: number for number, letter in enumerate(letters)}
    rng = random.Random(seed)
    half, need = len(text) // 2, count + count // 2
    parts: dict[str, list[torch.Tensor]] = {}
    for number, source in enumerate(("trusted", "web")):
        starts = rng.sample(range(0, half - WINDOW - 1, WINDOW + 1), need)
        cut = (text[number * half + one : number * half + one + WINDOW + 1] for one in starts)
        parts[source] = [torch.tensor([index[letter] for letter in one]) for one in cut]
    torch.manual_seed(seed)
    model = Transformer(len(letters), 64, 2, WINDOW)
    policy = policy_of(
        ("trusted", "web"), ARMS[name](model, seed), canaries=canaries_of("web", min(CANARIES, count // 4))
    )
    losses = _adapted if name == "isolated adapter" else text_losses
    data = combine({source: one[:count] for source, one in parts.items()})
    training = Training(model, policy, data, losses, seed, lr=2e-3).train(epochs)
    held = torch.stack([one for part in parts.values() for one in part[count:]])
    with torch.no_grad():
        bits = float(text_losses(model, held).mean()) / math.log(2)
    found = training.memorised(text_losses)
    return TextOutcome(bits, found["gov/canary_auc"], found["gov/extraction"])
