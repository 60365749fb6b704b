"""Layers that run twice: recurrent ones, attention, parameters of a module's own; exact, and without a trace."""

from __future__ import annotations

import copy

import pytest
import torch
from governed_models import gradients_of, plan_for, rule, source_by_source
from torch import nn

from detlab.governance import GovernanceError
from detlab.pytorch.governance import Governed, dual

NAMES = ["web", "trusted", "partner", "web", "trusted"]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 1.5, 4))
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x * self.factor).tanh()


class Layered(nn.Module):
    """A layer of some kind between two linear ones; what it returns is told by `kind`."""

    def __init__(self, kind: str, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(3)
        self.kind = kind
        self.first = nn.Linear(4, 4)
        self.mid = {
            "lstm": lambda: nn.LSTM(4, 4, num_layers=2, batch_first=True, dropout=dropout),
            "gru": lambda: nn.GRU(4, 4),
            "attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True, dropout=dropout),
            "own": Scaled,
        }[kind]()
        self.head = nn.Linear(4, 3)
        self.double()

    def forward(self, x):
        x = self.first(x)
        if self.kind == "attention":
            x = self.mid(x, x, x, need_weights=False)[0]
        elif self.kind == "gru":
            x = self.mid(x.transpose(0, 1))[0].transpose(0, 1)
        elif self.kind == "lstm":
            x = self.mid(x)[0]
        else:
            x = self.mid(x)
        return self.head(x).mean(1)


def losses_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def first_of(out):
    return (out[0] if isinstance(out, tuple) else out).detach()


def batch():
    torch.manual_seed(5)
    return torch.randn(5, 3, 4, dtype=torch.float64), torch.arange(5) % 3


@pytest.mark.parametrize("engine", ["auto", "dual"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "attention", "own"])
def test_t1_layers_that_run_twice_give_the_gradients_of_each_source(kind, engine, monkeypatch):
    model = Layered(kind)
    plan = plan_for(model, rule("web", "mid", 0.0), rule("partner", "mid|first", 0.3), engine=engine)
    expected = source_by_source(model, plan, batch(), NAMES, losses_of)
    stock = losses_of(model, *batch()).detach()
    governed = Governed(plan, [model])
    passes, given, call = [], [], dual._call

    def noted(layer, *args):
        out = call(layer, *args)
        if layer is model.mid:
            passes.append(out)
        return out

    monkeypatch.setattr(dual, "_call", noted)
    model.mid.register_forward_hook(lambda layer, inputs, out: given.append(first_of(out)))
    with governed.batch(NAMES):
        losses = losses_of(model, *batch())
        governed.backward(losses)
    assert torch.equal(given[0], first_of(passes[0])), "what it returns is that of the first pass, bit by bit"
    assert (losses.detach() - stock).abs().max() <= 1e-15  # some processors round by where memory begins
    found = gradients_of(model)
    assert max((found[name] - expected[name]).abs().max().item() for name in expected) <= 1e-12
    assert bool(found["first.weight"].any())


@pytest.mark.parametrize("kind", ["lstm", "gru", "attention", "own"])
@pytest.mark.parametrize("content", [torch.nan, 1e30])
def test_t3_what_a_closed_source_holds_leaves_no_bit(kind, content):
    seen = []
    x, y = batch()
    other = x.clone()
    other[[0, 3]] = content
    for data in (x, other):
        model = Layered(kind)
        governed = Governed(plan_for(model, rule("web", "mid|first", 0.0)), [model])
        with governed.batch(NAMES):
            governed.backward(losses_of(model, data, y))
        seen.append(gradients_of(model))
    closed = [name for name in seen[0] if not name.startswith("head")]
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in closed)
    assert not torch.equal(seen[0]["head.weight"], seen[1]["head.weight"])


@pytest.mark.parametrize("kind", ["lstm", "attention"])
def test_both_passes_draw_the_same_random_numbers(kind):
    model = Layered(kind, dropout=0.5)
    stock = copy.deepcopy(model)
    governed = Governed(plan_for(model, rule("web", "mid", 0.0)), [model])
    torch.manual_seed(9)
    losses_of(stock, *batch()).mean().backward()
    after = torch.rand(1)
    torch.manual_seed(9)
    with governed.batch(["trusted"] * 5):
        governed.backward(losses_of(model, *batch()))
    assert torch.equal(torch.rand(1), after)
    found, expected = gradients_of(model), gradients_of(stock)
    assert max((found[name] - expected[name]).abs().max().item() for name in expected) <= 1e-12


@pytest.mark.parametrize(
    ("kind", "rules", "said"),
    [
        ("own", [rule("web", r"mid\.factor", 0.0)], "have different factors"),
        ("lstm", [rule("web", r"mid\.weight_ih_l0", 0.0)], "have different factors"),
    ],
)
def test_factors_that_differ_within_such_a_layer_are_refused(kind, rules, said):
    model = Layered(kind)
    plan = plan_for(model, *rules)
    with pytest.raises(GovernanceError, match=said) as refused:
        Governed(plan, [model])
    assert [one.code for one in refused.value.refusals] == ["ENGINE"]


def test_attention_with_samples_in_its_second_dimension_is_refused():
    model = nn.MultiheadAttention(4, 2)
    with pytest.raises(GovernanceError, match="batch_first=True"):
        Governed(plan_for(model, rule("web", "in_proj_weight|in_proj_bias|out_proj", 0.0)), [model])


def test_a_layer_that_mixes_samples_inside_is_found():
    class Mixing(Scaled):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    model = nn.Sequential(Mixing(), nn.Flatten(), nn.Linear(12, 3)).double()
    governed = Governed(plan_for(model, rule("web", "0", 0.5)), [model])
    with pytest.raises(GovernanceError, match="COUPLING"), governed.batch(NAMES):
        governed.backward(losses_of(model, *batch()))


def test_what_each_source_gives_to_such_a_layer_is_not_known():
    model = Layered("lstm")
    governed = Governed(plan_for(model, rule("web", "mid", 0.0)), [model])
    with governed.batch(NAMES):
        governed.backward(losses_of(model, *batch()))
    assert governed.metrics()["gov/depth"]["layers"] == ["first", "head"]
