"""What goes around a policy is found and refused: layers, backward passes, parameters, samples, losses."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from governed_models import Mixed, batch_of, gradients_of, losses_of, plan_for, rule, source_by_source
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from detlab.governance import GovernanceError, Policy, compile_policy
from detlab.pytorch.governance import Governed, fused, parameters_of_models
from detlab.pytorch.governance.guard import EVERY, FIRST_BATCHES, GradientGuard

CLOSED = rule("web", "body", 0.0)
BLOCK = {"sources": [{"name": "web"}], "rules": [rule("*", ".*", 1.0)]}


class Body(nn.Module):
    """A body and a head; what the body does is told by its subclass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.hidden(x).relu())

    def hidden(self, x):
        return self.body(x)


class Around(Body):
    def hidden(self, x):
        return functional.linear(x, self.body.weight, self.body.bias)


class PartlyAround(Body):
    def hidden(self, x):
        return self.body(x) + x @ self.body.weight


class Normalised(Body):
    def hidden(self, x):
        seen = self.body(x)
        return seen - seen.mean(0)


class Flattened(Body):
    def hidden(self, x):
        return self.body(torch.cat([x, x]))[: len(x)]


class Turned(Body):
    def hidden(self, x):
        return self.body(x.flip(0)).flip(0)


def data(count: int = 6):
    torch.manual_seed(7)
    return torch.randn(count, 4), torch.arange(count) % 3


def one_batch(governed: Governed, model: nn.Module, names=("web", "trusted") * 3, losses=None):
    x, y = data(len(names))
    with governed.batch(names):
        out = functional.cross_entropy(model(x), y, reduction="none")
        governed.backward(out if losses is None else losses(out))


def governed_model(kind: type[nn.Module] = Body, *rules, **more):
    model = kind()
    return Governed(plan_for(model, *(rules or (CLOSED,)), sources=("trusted", "web"), **more), [model]), model


def refused(code: str):
    return pytest.raises(GovernanceError, match=code)


@pytest.mark.parametrize("kind", [Around, PartlyAround])
@pytest.mark.parametrize("names", [("web",) * 6, ("web", "trusted") * 3], ids=["closed to all", "closed to some"])
def test_a_layer_that_is_used_around_the_router_is_a_leak(kind, names):
    governed, model = governed_model(kind)
    with refused("LEAK: body.weight"):
        one_batch(governed, model, names)


def test_what_all_may_train_may_be_used_in_any_way():
    governed, model = governed_model(Around, rule("web", "head", 0.0))
    one_batch(governed, model)


@pytest.mark.parametrize("kind", [Normalised, Turned])
def test_samples_that_are_mixed_or_in_another_order_are_found_at_the_first_batch(kind):
    governed, model = governed_model(kind)
    with refused("COUPLING"):
        one_batch(governed, model)


def test_a_loss_that_mixes_samples_is_found_at_the_first_batch():
    governed, model = governed_model()
    with refused("COUPLING"):
        one_batch(governed, model, losses=lambda losses: losses - losses.mean())


def test_rows_that_are_not_the_samples_are_refused():
    governed, model = governed_model(Flattened)
    with refused("ROWS: .* 12 rows, .* 6 samples"):
        one_batch(governed, model)


class Packed(Body):
    """Puts two documents into a row, and gives scores for each document."""

    def forward(self, x):
        return super().forward(x[::2] + x[1::2]).repeat_interleave(2, dim=0)


def test_losses_of_documents_that_are_packed_into_one_row_are_refused():
    governed, model = governed_model(Packed)
    with refused("ROWS: a governed layer gets 2 rows, and the batch has 4 samples"):
        one_batch(governed, model, ["web", "trusted"] * 2)


def test_a_packed_row_that_is_declared_with_all_its_sources_trains_what_all_of_them_may():
    model = Body()
    rules = [rule("*", ".*", 1.0), CLOSED, rule("trusted", "head", 0.5)]
    sources = [{"name": "trusted"}, {"name": "web"}, {"name": "packed", "parents": ["trusted", "web"]}]
    plan = compile_policy(Policy.of({"sources": sources, "rules": rules}), parameters_of_models([model]))
    governed = Governed(plan, [model])
    x, y = data(2)
    with governed.batch(["packed"] * 2):
        governed.backward(functional.cross_entropy(model(x), y, reduction="none"))
    stock = Body()
    functional.cross_entropy(stock(x), y).backward()
    assert not model.body.weight.grad.any()
    assert torch.allclose(model.head.weight.grad, 0.5 * stock.head.weight.grad, rtol=1e-6)


def test_a_backward_pass_of_the_users_own_is_found():
    governed, model = governed_model()
    one_batch(governed, model)
    x, y = data()
    with governed.batch(["web"] * 6):
        functional.cross_entropy(model(x), y).backward()
    with refused("BYPASS"):
        governed.step(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("how", ["optimizer", "data", "no_grad"])
def test_parameters_that_other_code_changes_are_found(how):
    governed, model = governed_model()
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    one_batch(governed, model)
    if how == "optimizer":
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    elif how == "data":
        model.body.weight.data += 1.0
    else:
        with torch.no_grad():
            model.body.weight.mul_(2.0)
    with refused("OPTIMIZER: body"):
        governed.step(ours)


def test_parameters_that_are_changed_after_a_step_are_found_at_the_next_batch():
    governed, model = governed_model()
    one_batch(governed, model)
    governed.step(torch.optim.SGD(model.parameters(), lr=0.1))
    model.head.bias.data.zero_()
    with refused("OPTIMIZER: head.bias"):
        one_batch(governed, model)


@pytest.mark.parametrize(
    "losses", [lambda out: out.mean(), lambda out: out[:, None], lambda out: 3.0], ids=["scalar", "matrix", "number"]
)
def test_losses_that_are_not_one_per_sample_are_refused(losses):
    governed, model = governed_model()
    with refused("SCALAR"):
        one_batch(governed, model, losses=losses)


@pytest.mark.parametrize(
    ("begun", "said", "code"),
    [
        (None, None, "SAMPLES"),
        (["web"] * 6, ["trusted"] * 6, "SAMPLES"),
        (["web"] * 5, None, "ROWS"),
        (None, ["web"] * 5, "SAMPLES"),
        (["wbe"] * 6, None, "SOURCE: the source 'wbe'"),
        ([None] * 6, None, "SOURCE: a sample has no source"),
        ([7] * 6, None, "SOURCE: there is no source number 7"),
    ],
)
def test_samples_of_unknown_sources_are_refused(begun, said, code):
    governed, model = governed_model()
    x, y = data()
    with refused(code):
        governed.begin(begun)
        governed.backward(functional.cross_entropy(model(x), y, reduction="none"), source_ids=said)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Module()
        self.body.factor = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.body.factor


def test_layers_that_cannot_be_routed_are_refused_unless_all_may_train_them():
    with refused("ENGINE: the gradients of Module cannot be routed: body.factor"):
        governed_model(Recurrent, engine="fused")
    model = Recurrent()
    Governed(plan_for(model), [model])


def test_a_loop_of_ones_own_is_not_at_the_level_dp():
    numbers = {"max_grad_norm": 1.0, "target_epsilon": 8.0, "delta": 1e-5}
    model = Body()
    block = {"sources": [{"name": "web"}], "rules": [rule("*", ".*", 1.0)], "level": "dp", "dp": numbers}
    with refused("LEVEL: the level 'dp' is enforced by a PyTorchTrial alone"):
        Governed(compile_policy(Policy.of(block), parameters_of_models([model])), [model])


def test_batch_norm_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with refused("COUPLING: BatchNorm1d"):
        plan_for(model)


def test_a_source_after_its_last_day_is_refused():
    model = Body()
    day = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=2)
    block = {"sources": [{"name": "web", "expires": str(day)}], "rules": [rule("*", ".*", 1.0)]}
    with refused("REVOKED: the source 'web'"):
        Governed(compile_policy(Policy.of(block), parameters_of_models([model])), [model])


def test_a_plan_of_another_model_is_refused():
    with refused("another model"):
        Governed(plan_for(Body()), [nn.Linear(4, 4)])


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("enforce", ["strict", "audit"])
def test_a_model_that_is_split_after_the_policy_was_applied_is_refused(enforce):
    """Once it trained on: routed, but with a guard that looked at parameters which nobody used any more."""
    governed, model = governed_model(Body, CLOSED, enforce=enforce)
    fully_shard(model)
    with refused("ENGINE: body.weight was replaced after the policy was applied, .* call fully_shard .* before"):
        one_batch(governed, model)


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("rules", "more", "said"),
    [
        ([CLOSED], {"engine": "microbatch"}, "ENGINE: `engine: microbatch` is not there"),
        (
            [rule("*", "body", 0.0), rule("web", ".*", 0.0), {**rule("web", "body", 1.0), "level": "isolated"}],
            {},
            "LEVEL: `isolated` is not there",
        ),
    ],
)
def test_what_is_not_enforced_in_a_model_that_is_split_is_refused(rules, more, said):
    model = fully_shard(Body())
    with refused(said):
        Governed(plan_for(model, *rules, sources=("trusted", "web"), **more), [model])


@pytest.mark.usefixtures("one_process")
def test_so_are_layers_that_would_run_twice_and_batch_norm_keeps_its_name():
    model = fully_shard(Recurrent())
    with refused("ENGINE: Module at body.factor would run twice, which a model split by fully_shard cannot"):
        Governed(plan_for(model, CLOSED), [model])
    model = fully_shard(nn.Sequential(nn.Linear(4, 4), fully_shard(nn.BatchNorm1d(4))))
    with refused("COUPLING: BatchNorm1d"):
        compile_policy(Policy.of(BLOCK), parameters_of_models([model]))


def test_a_parameter_that_is_made_anew_is_refused():
    governed, model = governed_model()
    model.body.weight = nn.Parameter(model.body.weight.detach().clone())
    with refused("ENGINE: body.weight was replaced"):
        one_batch(governed, model)


def test_a_rule_that_matches_nothing_is_said_where_it_is_trained_too(caplog):
    """Only `det governance plan` said it once: a misspelt layer that was to be closed was trained by all, unseen."""
    with caplog.at_level(logging.WARNING):
        governed_model(Body, rule("web", "bodyy", 0.0))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("governance: DEAD: governance.rules[1] (web, bodyy) matches no parameter of this model")


def test_an_audit_logs_and_counts_what_it_does_not_refuse(caplog):
    governed, model = governed_model(Around, CLOSED, enforce="audit")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            one_batch(governed, model)
    assert [record.message.count("LEAK") for record in caplog.records] == [1]
    report = governed.metrics()
    assert report["gov/violations"] == 6
    assert report["gov/leak_mass"] > 0


def test_bounds_of_what_is_measured_are_kept():
    governed, model = governed_model(
        Body, CLOSED, default="allow", constraints={"provenance_coverage": {"min": 1.0}, "leak_mass": {"max": 0}}
    )
    one_batch(governed, model)
    assert governed.metrics()["gov/coverage"] == 1.0
    one_batch(governed, model, ["web", "elsewhere"])
    with refused("COVER: gov/coverage is 0.875"):
        governed.metrics()


def test_what_each_source_gave_to_each_layer_is_one_value_that_closed_layers_do_not_appear_in():
    governed, model = governed_model()
    for _ in range(3):
        one_batch(governed, model)
        governed.step(torch.optim.SGD(model.parameters(), lr=0.1))
    depth = governed.metrics()["gov/depth"]
    assert (depth["sources"], depth["layers"]) == (["trusted", "web"], ["body", "head"])
    trusted, web = depth["mass"]
    assert web == [0.0, 1.0]
    assert sum(trusted) == pytest.approx(1.0)
    assert min(trusted) > 0.01
    assert governed.metrics()["gov/share"] == {"trusted": 0.5, "web": 0.5}


def test_what_each_source_gave_is_the_norm_of_its_routed_gradient_by_layer():
    torch.manual_seed(0)
    model = Mixed()
    names = ["web", "trusted", "partner", "web"]
    plan = plan_for(model, rule("web", "embed|conv", 0.0), rule("partner", "mid|head", 0.5))
    expected = []
    for own in plan.sources:
        mine = [at for at, name in enumerate(names) if name == own]
        x, y = batch_of(4)
        gradients = source_by_source(model, plan, (x[mine], y[mine]), [own] * len(mine))
        layers = ("embed", "conv", "group", "mid", "norm", "head")
        each = [sum(one.norm().item() for n, one in gradients.items() if n.startswith(layer)) for layer in layers]
        expected.append([one / sum(each) for one in each])
    governed = Governed(plan, [model])
    with governed.batch(names):
        governed.backward(losses_of(model, *batch_of(4)))
    depth = governed.metrics()["gov/depth"]
    assert depth["layers"] == list(layers)
    for found, wanted in zip(depth["mass"], expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)


def test_after_the_first_batches_only_some_are_looked_at():
    governed, _ = governed_model()
    guard = governed._guard
    assert [batch for batch in range(3 * EVERY) if guard.due(batch)] == [*range(FIRST_BATCHES), EVERY, 2 * EVERY]


def test_sets_of_parameters_with_the_same_factors_are_clipped_apart():
    governed, model = governed_model()
    groups = governed.groups(model.parameters())
    assert [[tuple(one.shape) for one in group] for group in groups] == [[(4, 4), (4,)], [(3, 4), (3,)]]
    one_batch(governed, model)
    clip = governed.apart(lambda parameters: nn.utils.clip_grad_norm_(parameters, 1e-3))
    assert clip is not None
    clip(list(model.parameters()))
    norms = [torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in group])).item() for group in groups]
    assert norms == [pytest.approx(1e-3, rel=1e-2)] * 2
    together, _ = governed_model(Body, CLOSED, clip="global")
    assert len(together.groups(model.parameters())) == 1


# --- T8: each of these tests must fail for a router or guard with one part missing


def leaves_a_trace(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether routed gradients differ from the definition."""
    torch.manual_seed(0)
    model = Mixed()
    names = ["web", "trusted", "partner"]
    plan = plan_for(model, rule("web", "embed|conv|norm", 0.0), rule("partner", "mid", 0.5))
    expected = source_by_source(model, plan, batch_of(3), names)
    monkeypatch.setattr(GradientGuard, "end", lambda guard: [])  # the guard would refuse first
    governed = Governed(plan, [model])
    with governed.batch(names):
        governed.backward(losses_of(model, *batch_of(3)))
    found = gradients_of(model)
    return any((found[name] - expected[name]).abs().max().item() > 1e-10 for name in expected)


def test_t8_the_comparison_finds_no_fault_in_the_router_as_it_is(monkeypatch):
    assert not leaves_a_trace(monkeypatch)


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("scaled", lambda tensor, scale, **_: tensor),
        ("scaled", lambda tensor, scale, **_: torch.where(fused._beside(scale, tensor) == 0, tensor, 0)),
        ("is_routable", lambda layer: True),
    ],
    ids=["no factor", "mask flipped", "layer not wrapped"],
)
def test_t8_a_router_with_a_fault_is_found_by_comparison(monkeypatch, name, mutant):
    if name == "is_routable":
        for layer in (nn.Conv1d,):
            monkeypatch.setitem(fused.ROUTED, layer, lambda own, x, route: super(type(own), own).forward(x))
            fused._routed_class.cache_clear()
    else:
        monkeypatch.setattr(fused, name, mutant)
    assert leaves_a_trace(monkeypatch)
    fused._routed_class.cache_clear()


def test_t8_a_mask_that_multiplies_lets_what_is_not_a_number_through(monkeypatch):
    monkeypatch.setattr(fused, "scaled", lambda tensor, scale, **_: tensor * fused._beside(scale, tensor))
    governed, model = governed_model()
    x, y = data()
    x[0] = torch.nan
    with governed.batch(["web", "trusted"] * 3):
        governed.backward(functional.cross_entropy(model(x), y, reduction="none"))
    assert model.body.weight.grad.isnan().any()


def test_t8_a_layer_that_is_not_wrapped_is_found_by_the_guard_and_by_nothing_without_it(monkeypatch):
    monkeypatch.setitem(fused.ROUTED, nn.Linear, lambda own, x, route: super(type(own), own).forward(x))
    fused._routed_class.cache_clear()
    governed, model = governed_model()
    with refused("LEAK: body.weight"):
        one_batch(governed, model)
    monkeypatch.setattr(GradientGuard, "end", lambda guard: [])
    governed, model = governed_model()
    one_batch(governed, model)
    fused._routed_class.cache_clear()
