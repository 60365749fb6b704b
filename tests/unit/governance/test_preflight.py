"""Before the first step, each routed layer of the real model is tried on made-up inputs."""

from __future__ import annotations

import pytest
import torch
from governed_models import Mixed, plan_for, rule
from torch import nn

from detlab.pytorch.governance import Governed, dual, fused
from detlab.pytorch.governance.router import Router


class Recurrent(nn.Module):
    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.body = nn.LSTM(4, 4, num_layers=2, dropout=0.3, batch_first=batch_first)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True)
        self.odd = nn.Bilinear(4, 4, 2)


def governed(model: nn.Module, *rules, **more) -> Governed:
    return Governed(plan_for(model, *rules, **more), [model])


def test_layers_that_are_routed_pass_and_nothing_of_the_training_changes():
    model = Mixed()
    one = governed(model, rule("web", "embed|conv|mid", 0.0), rule("partner", "head", 0.25))
    hooked: list[object] = []
    model.mid.register_forward_hook(lambda *_: hooked.append(1))
    random, weights = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    found = one.preflight()
    assert (found.tried, found.untried, found.refusals) == (4, 0, [])
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not hooked
    assert isinstance(model.mid, fused.RoutedLayer)


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_that_run_twice_are_tried_too_and_one_of_an_unknown_kind_is_counted(batch_first):
    model = Recurrent(batch_first=batch_first)
    model.eval()
    random = torch.get_rng_state()
    found = governed(model, rule("web", ".*", 0.0), rule("partner", ".*", 2.0)).preflight()
    assert (found.tried, found.untried, found.refusals) == (2, 1, [])
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.body.training
    assert model.body.dropout == 0.3
    assert isinstance(model.body, dual.DualLayer)


def test_a_policy_that_closes_nothing_has_nothing_to_try():
    assert governed(Mixed()).preflight().tried == 0


@pytest.mark.parametrize("broken", ["leaks", "nan", "flipped", "open", "weaker"])
def test_t8_a_router_that_does_not_keep_to_the_policy_is_refused(monkeypatch, broken):
    changes = {
        "leaks": (fused, "scaled", lambda tensor, scale, **how: tensor),
        "nan": (fused, "kept", lambda tensor, scale, **how: tensor),
        "flipped": (Router, "scales", lambda self, column, batch: 1 - self._scales[column]),
        "open": (Router, "scales", lambda self, column, batch: torch.ones_like(self._scales[column])),
        "weaker": (Router, "scales", lambda self, column, batch: self._scales[column] * 0.5),
    }
    one = governed(Mixed(), rule("web", "mid|embed", 0.0))
    monkeypatch.setattr(*changes[broken])
    assert {refusal.code for refusal in one.preflight().refusals} == {"ENV"}


def test_a_layer_that_was_unhooked_is_refused():
    model = Mixed()
    one = governed(model, rule("web", "mid", 0.0))
    model.mid.__class__ = nn.Linear
    refusals = one.preflight().refusals
    assert [refusal.code for refusal in refusals] == ["ENV", "ENV"]
    assert "nothing routes the gradients of mid.weight" in refusals[0].message
