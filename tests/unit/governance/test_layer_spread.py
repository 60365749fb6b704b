"""The effective dimension of activations, and layers that are looked at."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from detlab.pytorch.governance.spread import LayerSpread, effective_dimension


def test_directions_are_counted_by_the_variance_that_they_share():
    even = torch.cat([torch.eye(4), -torch.eye(4)])
    assert effective_dimension(even) == pytest.approx(4)
    assert effective_dimension(
        torch.randn(50, 1, generator=torch.Generator().manual_seed(0)) @ torch.ones(1, 7)
    ) == pytest.approx(1)
    assert effective_dimension(torch.ones(3, 5)) == 0


def test_wide_and_tall_rows_give_what_the_covariance_gives():
    for shape in ((5, 30), (30, 5)):
        rows = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        eigenvalues = torch.linalg.eigvalsh(torch.cov(rows.T))
        expected = float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
        assert effective_dimension(rows) == pytest.approx(expected)


def test_layers_with_parameters_are_looked_at_once_for_each_sample_and_not_afterwards():
    model = nn.Sequential(nn.Conv1d(2, 6, 3), nn.Flatten(), nn.Linear(36, 5), nn.ReLU())
    x = torch.randn(9, 2, 8, generator=torch.Generator().manual_seed(2))
    with LayerSpread([model]) as spread:
        model(x[:4])
        model(x[4:])
    model(x)
    report = spread.report()
    assert report["layers"] == ["0", "2"]
    assert report["dimension"][1] == pytest.approx(effective_dimension(model[:3](x).detach()), abs=1e-5)
    model._compiled_call_impl = model.forward  # as model.compile() leaves it
    with LayerSpread([model]) as none:
        model.forward(x)
    assert none.report() == {"layers": [], "dimension": []}


def test_recurrent_layers_give_their_outputs():
    with LayerSpread([nn.GRU(3, 4, batch_first=True)]) as spread:
        spread._layers[""](torch.randn(6, 5, 3))
    assert len(spread.report()["dimension"]) == 1
