"""T7: a policy under mixed precision, torch.compile and activation checkpointing."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from governed_models import Mixed, batch_of, gradients_of, losses_of, plan_for, rule, source_by_source
from torch import nn
from torch.utils.checkpoint import checkpoint

from detlab.governance import GovernanceError
from detlab.pytorch.governance import Governed
from detlab.pytorch.parallel import amp

# of torch, when it traces any autograd function
pytestmark = pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>:DeprecationWarning")
CLOSED = (rule("web", "embed|conv|group|norm", 0.0), rule("partner", r"mid|head\.bias", 0.5))
NAMES = ["web", "trusted", "partner", "web"]


def furthest(found, expected):
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


class Small(nn.Sequential):
    """Tracing takes seconds: few layers, of each kind one."""

    def __init__(self):
        super().__init__(nn.Embedding(11, 6), nn.LayerNorm(6), nn.Linear(6, 11))
        self.double()


def small() -> nn.Module:
    torch.manual_seed(0)
    return Small()


SMALL = (rule("web", "0|1", 0.0), rule("partner", "2", 0.5))


def test_t7_a_compiled_model_is_one_graph_for_changing_sources():
    torch._dynamo.reset()
    model = small()
    plan, counter = plan_for(model, *SMALL), [0]

    def counting(graph, inputs):
        counter[0] += 1
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    governed = Governed(plan, [model])
    compiled = torch.compile(model, backend=counting, fullgraph=True, dynamic=False)
    for names in (NAMES, NAMES[::-1], ["trusted"] * 4, ["web"] * 4):
        batch = batch_of(4)
        expected = source_by_source(small(), plan, batch, names)
        with governed.batch(names):
            governed.backward(losses_of(compiled, *batch))
        assert furthest(gradients_of(model), expected) <= 1e-12
        model.zero_grad()
    assert counter[0] == 1


def test_t7_a_leak_in_a_compiled_model_is_found_where_all_are_closed():
    torch._dynamo.reset()

    class Around(Small):
        def forward(self, x):
            return self[2](nn.functional.one_hot(x, 11).double() @ self[0].weight)

    model = Around()
    governed = Governed(plan_for(model, rule("web", "0", 0.0)), [model])
    compiled = torch.compile(model, backend="aot_eager")
    with pytest.raises(GovernanceError, match=r"LEAK: 0\.weight"), governed.batch(["web"] * 4):
        governed.backward(losses_of(compiled, *batch_of(4)))


def test_sources_must_be_known_before_a_compiled_forward_pass():
    torch._dynamo.reset()
    model = small()
    governed = Governed(plan_for(model, *SMALL), [model])
    compiled = torch.compile(model, backend="aot_eager")
    governed.begin(None)
    with pytest.raises(GovernanceError, match="SAMPLES"):
        governed.backward(losses_of(compiled, *batch_of(4)), source_ids=NAMES)


class Checkpointed(Mixed):
    reentrant = False

    def forward(self, x):
        hidden = checkpoint(self.first, self.embed(x), use_reentrant=self.reentrant)
        return self.head(self.norm(self.mid(hidden)).tanh())

    def first(self, hidden):
        return self.group(self.conv(hidden.transpose(1, 2))).relu().transpose(1, 2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_t7_activation_checkpointing_changes_no_bit(reentrant, monkeypatch, caplog):
    monkeypatch.setattr(Checkpointed, "reentrant", reentrant)
    found = []
    for kind in (Mixed, Checkpointed):
        torch.manual_seed(0)
        model = kind()
        governed = Governed(plan_for(model, *CLOSED), [model])
        with caplog.at_level(logging.INFO), governed.batch(NAMES):
            governed.backward(losses_of(model, *batch_of(4)))
        found.append(gradients_of(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert ("could not be looked at" in caplog.text) is reentrant


def test_t7_in_autocast_gradients_are_routed_as_near_as_stock_layers_are():
    torch.manual_seed(0)
    model = Mixed().float()
    stock, plan = copy.deepcopy(model), plan_for(model, *CLOSED)
    batch = batch_of(4)

    def autocast_losses(own, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return losses_of(own, x, y).float()

    expected = source_by_source(stock, plan, batch, NAMES, autocast_losses)
    precise = source_by_source(stock.double(), plan, batch, NAMES)
    governed = Governed(plan, [model])
    with governed.batch(NAMES):
        governed.backward(autocast_losses(model, *batch))
    found = gradients_of(model)
    assert all(one.dtype == torch.float32 for one in found.values())
    for name in found:
        size = precise[name].abs().max().item()
        stock_error = (expected[name] - precise[name]).abs().max().item()
        assert (found[name] - precise[name]).abs().max().item() <= 2 * stock_error + 0.02 * size
    closed = plan_for(Mixed(), rule("web", "embed|conv|group|mid|norm", 0.0))
    torch.manual_seed(0)
    other = Mixed().float()
    governed = Governed(closed, [other])
    with governed.batch(["web"] * 4):
        governed.backward(autocast_losses(other, *batch))
    assert not any(bool(one.any()) for name, one in gradients_of(other).items() if not name.startswith("head"))


def test_t7_a_model_whose_forward_pass_the_trainer_put_in_autocast_is_routed():
    torch.manual_seed(0)
    model = Mixed().float()
    amp.autocast_forward(model, "cpu")
    governed = Governed(plan_for(model, rule("web", "embed|conv|group|mid|norm", 0.0)), [model])
    with governed.batch(["web", "trusted", "web", "web"]):
        governed.backward(losses_of(model, *batch_of(4)))
    assert all(torch.isfinite(one).all() for one in gradients_of(model).values())


def test_t7_tied_weights_are_routed_once_for_each_of_their_layers():
    torch.manual_seed(0)
    model = Mixed(tied=True)
    plan = plan_for(model, rule("web", "embed|head", 0.0))
    expected = source_by_source(model, plan, batch_of(4), NAMES)
    governed = Governed(plan, [model])
    with governed.batch(NAMES):
        governed.backward(losses_of(model, *batch_of(4)))
    assert furthest(gradients_of(model), expected) <= 1e-12


def test_t7_tied_weights_with_conflicting_rules_are_refused():
    with pytest.raises(GovernanceError, match=r"TIED: embed\.weight is tied to head\.weight"):
        plan_for(Mixed(tied=True), rule("web", "embed", 0.0))


def test_t7_a_compiled_model_in_autocast_is_routed():
    torch._dynamo.reset()
    model = small().float()
    plan = plan_for(model, *SMALL)
    expected = source_by_source(small(), plan, batch_of(4), NAMES)
    governed = Governed(plan, [model])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with governed.batch(NAMES):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = losses_of(compiled, *batch_of(4)).float()
        governed.backward(losses)
    found = gradients_of(model)
    assert furthest(found, expected) <= 0.02 * max(one.abs().max().item() for one in expected.values())
