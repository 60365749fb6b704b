"""Lightning and Hugging Face's Trainer under a policy, as docs/how-to/use-your-framework.md prints it.

`test_frameworks_private.py` runs this.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import transformers
from docs_snippets import DOCS, blocks
from torch import nn
from torch.utils.data import DataLoader

from detlab.governance import GovernanceError

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning advises on loaders, machines and loggers
NAMES = ("trusted", "web")
POLICY = {
    "sources": [{"name": name} for name in NAMES],
    "rules": [
        {"source": "*", "layers": ".*", "scale": 1.0},
        {"source": "web", "layers": r"net\.body", "scale": 0.0},
        {"source": "web", "layers": r"net\.head", "scale": 0.5},
    ],
}
FACTORS = {"trusted": (1.0, 1.0), "web": (0.0, 0.5)}
RATE = 0.1


def printed(name: str) -> Any:
    """Return a class that the page has the reader write."""
    for block in blocks(DOCS / "how-to" / "use-your-framework.md", "python"):
        if f"class {name}(" in block.text:
            found: dict[str, Any] = {}
            exec(compile(block.text, str(block), "exec"), found)
            return found[name]
    raise AssertionError(f"the page has no {name}")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).tanh())


class Around(Net):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.linear(images, self.body.weight, self.body.bias).tanh())


class Answering(nn.Module):
    """What a Trainer takes."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.net(images)}


def samples() -> list[tuple[torch.Tensor, int, str]]:
    draw = torch.Generator().manual_seed(5)
    return [
        (torch.randn(4, dtype=torch.float64, generator=draw), index % 3, NAMES[index * index % 5 % 2])
        for index in range(22)  # in batches of four, the last of two
    ]


def by_hand(net: nn.Module, size: int, most: float | None) -> list[torch.Tensor]:
    """Return the weights after an epoch in steps of so many samples, each differentiated by itself."""
    net = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    listed, parameters = samples(), list(net.parameters())
    for start in range(0, len(listed), size):
        step = listed[start : start + size]
        total = [torch.zeros_like(one) for one in parameters]
        for image, label, name in step:
            loss = nn.functional.cross_entropy(net(image[None]), torch.tensor([label]))
            for place, gradient in enumerate(torch.autograd.grad(loss, parameters)):
                total[place] += FACTORS[name][place // 2] * gradient / len(step)
        for one, gradient in zip(parameters, total, strict=True):
            one.grad = gradient
        for same in (parameters[:2], parameters[2:]) if most else ():
            nn.utils.clip_grad_norm_(same, most)
        optimizer.step()
    return parameters


def assert_near(net: nn.Module, expected: Sequence[torch.Tensor]) -> None:
    for found, one in zip(net.parameters(), expected, strict=True):
        assert (found - one).abs().max().item() <= 1e-12


def fit_lightning(net: nn.Module) -> Any:
    module = printed("GovernedModule")(net, POLICY)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(samples(), batch_size=4))
    assert trainer.global_step == 6
    return module.governed


def test_lightning_trains_under_a_policy() -> None:
    net = Net().double()
    expected = by_hand(net, 4, None)
    metrics = fit_lightning(net).metrics()
    assert_near(net, expected)
    assert metrics["gov/leak_mass"] == 0.0
    assert metrics["gov/depth"]["mass"][1] == [0.0, 1.0]


def test_the_guard_looks_on_in_lightning() -> None:
    with pytest.raises(GovernanceError, match=r"LEAK: net\.body"):
        fit_lightning(Around().double())


def fit_trainer(net: nn.Module, folder: Path, accumulation: int) -> Any:
    listed = [{"images": image, "labels": label, "sources": NAMES.index(name)} for image, label, name in samples()]
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulation,
        train_sampling_strategy="sequential",
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        remove_unused_columns=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = printed("GovernedTrainer")(
        model=Answering(net),
        args=args,
        train_dataset=listed,
        optimizers=(torch.optim.SGD(net.parameters(), lr=RATE), None),
        policy=POLICY,
    )
    trainer.train()
    return trainer.governed


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_trainer_trains_under_a_policy(tmp_path: Path, accumulation: int) -> None:
    net = Net().double()
    expected = by_hand(net, 4 * accumulation, 1.0)
    metrics = fit_trainer(net, tmp_path, accumulation).metrics()
    assert_near(net, expected)
    assert metrics["gov/leak_mass"] == 0.0
    assert metrics["gov/depth"]["mass"][1] == [0.0, 1.0]


def test_the_guard_looks_on_in_the_trainer(tmp_path: Path) -> None:
    with pytest.raises(GovernanceError, match=r"LEAK: net\.body"):
        fit_trainer(Around().double(), tmp_path, 1)
