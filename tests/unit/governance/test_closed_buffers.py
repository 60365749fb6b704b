"""A closed source leaves no trace in a buffer: engines with one pass for all refuse what `microbatch` puts back."""

from __future__ import annotations

import pytest
import torch
from governed_models import rule
from torch import nn

from detlab.governance import GovernanceError, Policy, compile_policy
from detlab.pytorch.governance import Governed, parameters_of_models

ALL = rule("*", ".*", 1.0)
CLOSED = rule("web", "body", 0.0)
ENGINES = ("fused", "dual", "auto")


class Codebook(nn.Module):
    """Vector quantisation whose codes are a moving mean of what came near them, as in VQ-VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(x.detach(), self.codes).argmin(1)
        if self.training:
            self.codes.data[nearest] = 0.9 * self.codes[nearest] + 0.1 * x.detach()
        return x + (self.codes[nearest] - x).detach()


class Mean(Codebook):
    """Keeps a moving mean in a new tensor each time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.codes = 0.9 * self.codes + 0.1 * x.detach().mean(0)
        return x


class Channels(nn.Module):
    """Norms want channels beside something to take the mean of."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.view(-1, 2, 2)).flatten(1)


def keeper(kind: str) -> nn.Module:
    """Return a layer for four numbers that keeps something in each forward pass of a training."""
    torch.manual_seed(1)
    if kind.startswith("spectral norm"):
        by_hooks = kind.endswith("hooks")
        made = (nn.utils.spectral_norm if by_hooks else nn.utils.parametrizations.spectral_norm)(nn.Linear(4, 4))
        weight = made.weight_orig if by_hooks else made.parametrizations.weight.original
        weight.data = torch.randn(4, 4)  # as after a step: of the first weights the vectors are known already
        return made
    return {
        "instance norm": lambda: Channels(nn.InstanceNorm1d(2, track_running_stats=True)),
        "instance norm with weights": lambda: Channels(nn.InstanceNorm1d(2, affine=True, track_running_stats=True)),
        "batch norm": lambda: nn.BatchNorm1d(4),
        "codebook": Codebook,
        "mean": Mean,
    }[kind]()


KINDS = (
    "instance norm",
    "instance norm with weights",
    "batch norm",
    "codebook",
    "mean",
    "spectral norm",
    "spectral norm by hooks",
)


def model_with(kind: str) -> nn.Module:
    model = nn.Sequential()
    model.add_module("body", keeper(kind))
    model.add_module("head", nn.Linear(4, 3))
    return model


def governed_by(model: nn.Module, engine: str, *rules: object, **more: object) -> Governed:
    sources = [{"name": "trusted"}, {"name": "web"}]
    block = {"version": 1, "engine": engine, "sources": sources, "rules": list(rules), **more}
    kinds = [type(one).__name__ for one in model.modules()]
    return Governed(compile_policy(Policy.of(block), parameters_of_models([model]), kinds=kinds), [model])


def train(governed: Governed, model: nn.Module, *names: str, backward: bool = True) -> None:
    for rows in governed.parts(names):
        x = torch.randn(len(names), 4)[rows]
        losses = nn.functional.cross_entropy(model(x), torch.zeros(len(rows), dtype=torch.long), reduction="none")
        if backward:
            governed.backward(losses)


def buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in model.body.named_buffers()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_would_keep_a_closed_source_is_refused(kind: str, engine: str) -> None:
    """Running means, codebooks and the vectors of spectral norm took in what was closed, and nobody said so."""
    model = model_with(kind)
    with pytest.raises(GovernanceError, match=r"COUPLING|ENGINE"):
        train(governed_by(model, engine, ALL, CLOSED), model, "web", "trusted", "web", "trusted")


@pytest.mark.parametrize("kind", KINDS)
def test_microbatch_leaves_no_bit_of_a_closed_source_in_a_buffer(kind: str) -> None:
    model = model_with(kind)
    governed, before = governed_by(model, "microbatch", ALL, CLOSED), buffers(model)
    train(governed, model, "web", "web", "web", "web")
    assert all(torch.equal(one, before[name]) for name, one in buffers(model).items())
    train(governed, model, "web", "web", "trusted", "trusted")
    assert any(not torch.equal(one, before[name]) for name, one in buffers(model).items())


@pytest.mark.parametrize("kind", ["instance norm", "codebook", "mean"])
@pytest.mark.parametrize(
    "rules",
    [(ALL,), (ALL, CLOSED, rule("web", r"body\.norm\.(running|num)_.*|body\.codes", 1.0))],
    ids=["all", "named"],
)
def test_what_is_open_to_all_may_keep_what_it_likes(kind: str, rules: tuple[object, ...]) -> None:
    model = model_with(kind)
    governed, before = governed_by(model, "fused", *rules), buffers(model)
    train(governed, model, "web", "trusted", "web", "trusted")
    assert any(not torch.equal(one, before[name]) for name, one in buffers(model).items())


def test_batches_without_the_closed_source_may_change_it_and_each_later_batch_is_looked_at() -> None:
    model = model_with("codebook")
    governed = governed_by(model, "fused", ALL, CLOSED)
    for _ in range(12):
        train(governed, model, "trusted", "trusted")
    with pytest.raises(GovernanceError, match=r"COUPLING: the buffer body\.codes was changed by .* 'web'"):
        train(governed, model, "trusted", "web")


def test_a_forward_pass_alone_is_found_before_the_next_step() -> None:
    model = model_with("mean")
    governed = governed_by(model, "fused", ALL, CLOSED)
    train(governed, model, "web", "web", backward=False)
    with pytest.raises(GovernanceError, match=r"COUPLING: the buffer body\.codes"):
        train(governed, model, "trusted", "trusted")


def test_an_audit_tells_of_a_changed_buffer_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model = model_with("codebook")
    governed = governed_by(model, "fused", ALL, CLOSED, enforce="audit")
    train(governed, model, "web", "trusted")
    train(governed, model, "trusted", "trusted")
    assert [
        record.getMessage().count("body.codes") for record in caplog.records if "COUPLING" in record.getMessage()
    ] == [1]
    assert governed.meter.violations == 1
