"""T2: routed gradients beside Opacus' gradients of each sample; `test_frameworks_private.py` runs this."""

from __future__ import annotations

import copy
import random
import warnings

import pytest
import torch
from governed_models import LAYERS, SCALES, SOURCES, Mixed, batch_of, governed_gradients, losses_of, plan_for, rule
from opacus.grad_sample import GradSampleModule


@pytest.mark.parametrize("seed", range(5))
def test_t2_gradients_are_the_sum_of_those_of_each_sample_of_opacus_times_the_factors(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = Mixed()
    rules = [rule(draw.choice(SOURCES[1:]), draw.choice(LAYERS), draw.choice(SCALES)) for _ in range(4)]
    plan = plan_for(model, *rules)
    names, batch = draw.choices(SOURCES, k=6), batch_of(6, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apart = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
        losses_of(apart, *batch).sum().backward()
    each = {name.removeprefix("_module."): one.grad_sample for name, one in apart.named_parameters()}
    found, _ = governed_gradients(model, plan, batch, names)
    rows = [SOURCES.index(name) for name in names]
    assert any(plan.scales[row][column] != 1 for row in rows for column in range(len(plan.parameters)))
    for column, one in enumerate(plan.parameters):
        factors = torch.tensor([plan.scales[row][column] for row in rows], dtype=torch.float64)
        expected = torch.einsum("b,b...->...", factors, each[one.name]) / len(names)
        if one.name == "embed.weight":
            expected[model.embed.padding_idx] = 0  # which torch does not train, and Opacus does not know of
        size = expected.abs().max().item()
        assert (found[one.name] - expected).abs().max().item() <= 1e-10 * max(size, 1e-3), one.name
