"""Routed gradients against the definition: exact, without a trace of what is closed, and nothing where all is open."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from governed_models import (
    CLOSED,
    LAYERS,
    SCALES,
    SOURCES,
    Mixed,
    batch_of,
    governed_gradients,
    gradients_of,
    losses_of,
    plan_for,
    rule,
    source_by_source,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from detlab.governance import GovernanceError
from detlab.pytorch.governance import Governed


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def seeded(seed: int = 0, **how) -> Mixed:
    torch.manual_seed(seed)
    return Mixed(**how)


def compared(found, expected):
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


@given(
    st.lists(
        st.tuples(st.sampled_from(SOURCES[1:]), st.sampled_from(LAYERS), st.sampled_from(SCALES)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.sampled_from(SOURCES), min_size=1, max_size=7),
    st.booleans(),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_t1_routed_gradients_are_those_of_a_backward_pass_for_each_source(rules, names, tied, seed):
    model = seeded(seed, tied=tied)
    rules = [rule(*one) for one in rules if not tied or one[1] not in ("embed", "head")]
    plan = plan_for(model, *rules)
    batch = batch_of(len(names), seed)
    expected = source_by_source(model, plan, batch, names)
    found, _ = governed_gradients(model, plan, batch, names)
    assert compared(found, expected) <= 1e-10


def test_t2_an_independent_oracle_agrees_gradients_of_each_sample_by_functional_transforms():
    model = seeded()
    plan = plan_for(model, *CLOSED, rule("web", "head", 0.3))
    names = ["web", "trusted", "partner", "web", "trusted"]
    x, y = batch_of(5)
    stock = copy.deepcopy(model)
    parameters = dict(stock.named_parameters())

    def loss(values, one_x, one_y):
        def run(given):
            return torch.func.functional_call(stock, values, (given,))

        return losses_of(run, one_x[None], one_y[None])[0]

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    found, _ = governed_gradients(model, plan, (x, y), names)
    for column, one in enumerate(plan.parameters):
        factors = torch.tensor([plan.scales[SOURCES.index(name)][column] for name in names], dtype=torch.float64)
        expected = torch.einsum("b,b...->...", factors, each[one.name]) / len(names)
        assert (found[one.name] - expected).abs().max().item() <= 1e-12


@pytest.mark.parametrize("kind", ["random", "nan", "inf"])
def test_t3_what_a_closed_source_holds_leaves_no_bit_in_closed_layers(kind):
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding="same", padding_mode="circular")
            self.group = nn.GroupNorm(2, 4)
            self.flat = nn.Flatten()
            self.norm = nn.LayerNorm(36)
            self.body = nn.Linear(36, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.body(self.norm(self.flat(self.group(self.conv(x))))).relu())

    torch.manual_seed(3)
    model = Features()
    names = ["web", "trusted", "web", "trusted", "trusted"]
    x, y = torch.randn(5, 1, 3, 3), torch.tensor([0, 1, 2, 0, 1])
    other = x.clone()
    other[[0, 2]] = {"random": torch.randn(2, 1, 3, 3), "nan": torch.nan, "inf": torch.inf}[kind]
    seen = []
    for data in (x, other):
        own = copy.deepcopy(model)
        plan = plan_for(own, rule("web", "conv|group|norm|body", 0.0))
        governed = Governed(plan, [own])
        with governed.batch(names):
            governed.backward(nn.functional.cross_entropy(own(data), y, reduction="none"))
        seen.append(gradients_of(own))
    closed = [name for name in seen[0] if not name.startswith("head")]
    assert len(closed) == 8
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in closed)
    assert all(bool(seen[0][name].any()) for name in closed)
    # what is open must have changed: else nothing was put to the test
    assert not torch.equal(seen[0]["head.weight"], seen[1]["head.weight"])


@pytest.mark.parametrize("rules", [(), CLOSED], ids=["nothing is closed", "closed to sources that are not there"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_t6_a_policy_that_closes_nothing_changes_no_bit_in_100_steps(rules, kind):
    stock = seeded().float()
    model = copy.deepcopy(stock)
    governed = Governed(plan_for(model, *rules), [model])
    plain, ours = kind(stock.parameters(), lr=0.1), kind(model.parameters(), lr=0.1)
    for step in range(100):
        batch = batch_of(5, step)
        losses_of(stock, *batch).mean().backward()
        plain.step()
        plain.zero_grad()
        with governed.batch(["trusted"] * 5):
            governed.backward(losses_of(model, *batch))
        governed.step(ours)
    assert all(torch.equal(a, b) for a, b in zip(stock.parameters(), model.parameters(), strict=True))


def test_the_sum_of_the_factors_may_be_what_gradients_are_divided_by():
    model = seeded()
    plan = plan_for(model, rule("web", "head", 0.5), rule("web", "mid", 0.0), normalize="per_layer")
    names, batch = ["web", "trusted", "web"], batch_of(3)
    expected = source_by_source(model, plan, batch, names)
    found, governed = governed_gradients(model, plan, batch, names)
    governed.reduce(model.parameters())
    found = gradients_of(model)
    divisors = {"head": 2.0, "mid": 1.0}
    for name, gradient in expected.items():
        divisor = divisors.get(name.split(".")[0], 3.0)
        assert torch.allclose(found[name], gradient * 3 / divisor, rtol=1e-12, atol=1e-15)


def test_batches_of_one_step_weigh_by_their_samples():
    model = seeded()
    plan = plan_for(model, *CLOSED)
    governed, stock = Governed(plan, [model]), seeded()
    names = ["web", "trusted", "partner", "web", "trusted", "web"]
    x, y = batch_of(6)
    for part in (slice(0, 4), slice(4, 6)):
        with governed.batch(names[part]):
            governed.backward(losses_of(model, x[part], y[part]))
    governed.reduce(model.parameters(), batches=2)
    assert compared(gradients_of(model), source_by_source(stock, plan, (x, y), names)) <= 1e-15


def test_sources_may_be_said_with_the_losses_and_by_number():
    plan_names = ["web", "trusted", "partner"]
    batch, expected = batch_of(3), None
    for begun, said in (
        (plan_names, None),
        (None, plan_names),
        (None, torch.tensor([1, 0, 2])),
        (plan_names, plan_names),
    ):
        model = seeded()
        governed = Governed(plan_for(model, *CLOSED), [model])
        governed.begin(begun)
        governed.backward(losses_of(model, *batch), source_ids=said)
        governed.end()
        found = gradients_of(model)
        expected = expected or found
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert any(bool(one.any()) for one in found.values())


def test_a_lent_batch_trains_nothing_whatever_it_holds():
    model = seeded()
    governed = Governed(plan_for(model, *CLOSED), [model])
    x, y = batch_of(3)
    governed.begin([], lent=True)
    governed.backward(losses_of(model, x, y) * torch.nan)
    assert not any(bool(one.any()) for one in gradients_of(model).values())


def test_a_policy_that_allows_it_trains_on_samples_without_a_source_and_counts_them():
    model = seeded()
    plan = plan_for(model, rule("*", "embed", 0.0), rule("trusted", "embed", 1.0), default="allow")
    governed = Governed(plan, [model])
    with governed.batch(["trusted", None, "unheard"]):
        governed.backward(losses_of(model, *batch_of(3)))
    report = governed.metrics()
    assert report["gov/coverage"] == pytest.approx(1 / 3)
    stock = seeded()
    x, y = batch_of(3)
    (losses_of(stock, x[:1], y[:1]).sum() / 3).backward()
    assert torch.allclose(model.embed.weight.grad, stock.embed.weight.grad, rtol=0, atol=1e-15)


def test_evaluation_needs_no_batch_and_training_outside_of_one_is_refused():
    model = seeded()
    Governed(plan_for(model, *CLOSED), [model])
    x, _ = batch_of(2)
    with torch.no_grad():
        model(x)
    model.eval()
    model(x).sum().backward()
    model.train()
    with pytest.raises(GovernanceError, match="outside of a batch"):
        model(x)


def test_layers_in_evaluation_mode_are_routed_within_a_batch():
    model = seeded()
    plan = plan_for(model, *CLOSED)
    names, batch = ["web", "trusted"], batch_of(2)
    expected = source_by_source(model, plan, batch, names)
    found, _ = governed_gradients(model.eval(), plan, batch, names)
    assert compared(found, expected) <= 1e-15


def test_a_copy_of_a_model_shares_no_batches_with_it():
    model = seeded()
    governed = Governed(plan_for(model, *CLOSED), [model])
    average = copy.deepcopy(model)
    with governed.batch(["web", "trusted"]):
        governed.backward(losses_of(model, *batch_of(2)))
    assert all(one.grad is None for one in average.parameters())
    assert list(average.state_dict()) == list(Mixed().state_dict())


def test_a_random_policy_is_exact_over_many_steps_of_an_optimizer():
    model, random_numbers = seeded(), random.Random(5)
    plan = plan_for(
        model, *(rule(s, p, 0.25) for s in SOURCES[1:] for p in LAYERS[:6] if random_numbers.random() < 0.5)
    )
    governed, stock = Governed(plan, [model]), seeded()
    ours, plain = (torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (model, stock))
    for step in range(20):
        names = random_numbers.choices(SOURCES, k=4)
        expected = source_by_source(stock, plan, batch_of(4, step), names)
        for name, one in stock.named_parameters():
            one.grad = expected[name]
        plain.step()
        with governed.batch(names):
            governed.backward(losses_of(model, *batch_of(4, step)))
        governed.step(ours)
    assert compared(dict(model.named_parameters()), dict(stock.named_parameters())) <= 1e-12
