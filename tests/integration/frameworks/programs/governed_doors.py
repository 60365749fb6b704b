"""Policies in Lightning and Hugging Face's Trainer, as the docs show it; `test_frameworks_private.py` runs this."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from governed_models import plan_for, rule
from torch import nn
from torch.nn import functional
from transformers import Trainer, TrainerCallback, TrainingArguments

from detlab.governance import GovernanceError
from detlab.pytorch.governance import Governed

NAMES = ("trusted", "web", "web", "trusted", "web", "trusted", "trusted", "web")
CLOSED = rule("web", "0", 0.0)
RATE = 0.1


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def samples() -> list[dict[str, Any]]:
    x = torch.randn(len(NAMES), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return [{"x": x[at], "y": at % 3, "source": int(name == "web")} for at, name in enumerate(NAMES)]


def by_hand() -> list[torch.Tensor]:
    """Return the weights after one epoch in batches of four, sample by sample."""
    model = network()
    parameters, data = list(model.parameters()), samples()
    for start in range(0, len(data), 4):
        total = [torch.zeros_like(one) for one in parameters]
        for one in data[start : start + 4]:
            loss = functional.cross_entropy(model(one["x"][None]), torch.tensor([one["y"]]))
            factors = (0.0, 0.0, 1.0, 1.0) if one["source"] else (1.0,) * 4
            for place, gradient in enumerate(torch.autograd.grad(loss, parameters)):
                total[place] += factors[place] * gradient / 4
        with torch.no_grad():
            for parameter, gradient in zip(parameters, total, strict=True):
                parameter.sub_(RATE * gradient)
    return parameters


def same(model: Any) -> bool:
    return all((a - b).abs().max() <= 1e-12 for a, b in zip(model.parameters(), by_hand(), strict=True))


class Module(lightning.LightningModule):
    def __init__(self, *, around: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = network()
        self.around = around

    def on_fit_start(self) -> None:
        self.governed = Governed(plan_for(self.net, CLOSED, sources=("trusted", "web")), [self.net])

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        with self.governed.batch(batch["source"]):
            losses = functional.cross_entropy(self.net(batch["x"]), batch["y"], reduction="none")
            if self.around:
                losses = losses + functional.linear(batch["x"], self.net[0].weight).sum(1)
            self.governed.backward(losses, by=self.differentiate)
        self.governed.step(optimizer)

    def differentiate(self, losses: Any, gradient: Any, retain_graph: bool) -> None:
        self.manual_backward(losses, gradient=gradient, retain_graph=retain_graph)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), lr=RATE)


def fit(module: Module, folder: Path) -> None:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **quiet)
        trainer.fit(module, torch.utils.data.DataLoader(samples(), batch_size=4))


def test_lightning_trains_what_the_policy_says_and_a_leak_ends_it(tmp_path: Path) -> None:
    module = Module()
    fit(module, tmp_path)
    assert module.governed.metrics()["gov/share"] == {"trusted": 0.5, "web": 0.5}
    assert same(module.net)
    with pytest.raises(GovernanceError, match=r"LEAK: 0\.weight"):
        fit(Module(around=True), tmp_path)


class Steps(TrainerCallback):
    """Tells the policy of each step of the optimizer."""

    def __init__(self, governed: Governed) -> None:
        self.governed = governed

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.governed.before_step(more["optimizer"])
        self.governed.reduce(more["model"].parameters())

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.governed.after_step([more["optimizer"]])


class GovernedTrainer(Trainer):
    def __init__(self, governed: Governed, **more: Any) -> None:
        super().__init__(callbacks=[Steps(governed)], **more)
        self.governed = governed

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.governed.batch(inputs.pop("source")):
            losses = functional.cross_entropy(model(inputs["x"]), inputs["y"], reduction="none")
            self.governed.backward(losses, by=self.differentiate)
        return losses.detach().mean()

    def differentiate(self, losses: Any, gradient: Any, retain_graph: bool) -> None:
        self.accelerator.backward(losses, gradient=gradient, retain_graph=retain_graph)


def test_hugging_faces_trainer_trains_what_the_policy_says(tmp_path: Path) -> None:
    model = network()
    governed = Governed(plan_for(model, CLOSED, sources=("trusted", "web")), [model])
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=4,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = GovernedTrainer(governed, model=model, args=arguments, train_dataset=samples())
        trainer.train()
    assert governed.metrics()["gov/share"] == {"trusted": 0.5, "web": 0.5}
    assert same(copy.deepcopy(model))
