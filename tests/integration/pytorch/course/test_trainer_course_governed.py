"""A trial under a policy: what it trains, reports and refuses; its data set says the sources, or its batches do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from trainer_one_weight import newest, train

from detlab import pytorch
from detlab.governance import GovernanceError, combine, label
from detlab.pytorch import Batch

SIZES = {"trusted": 14, "web": 9}
POLICY: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}, {"source": "web", "layers": "0", "scale": 0.0}],
}


def points(count: int, seed: int) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(3, generator=generator, dtype=torch.float64), at % 2) for at in range(count)]


def sourced() -> Any:
    return combine({name: points(count, at) for at, (name, count) in enumerate(SIZES.items())})


class Governed(pytorch.PyTorchTrial):
    """A body, module 0, and a head, module 2; `log` has the ids of each batch and the weights after it."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context = context
        self.options = options
        torch.manual_seed(2)
        self.model = context.wrap_model(self.network().double())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.5))
        self.log: list[tuple[list[int], list[torch.Tensor]]] = []
        self.told: list[dict[str, Any]] = []

    def network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def build_training_data_loader(self) -> Any:
        data = self.options.get("data", sourced)()
        if self.options.get("foreign"):
            self.context.experimental.disable_dataset_reproducibility_checks()
            return torch.utils.data.DataLoader(data, batch_size=4)
        return pytorch.DataLoader(data, batch_size=4, shuffle=True, num_workers=self.options.get("workers", 0))

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(points(4, 9), batch_size=4)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        told = self.told

        class Listener(pytorch.PyTorchCallback):
            def on_validation_end(self, metrics: dict[str, Any]) -> None:
                told.append(metrics)

        return {"listener": Listener()}

    def losses(self, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        losses = self.losses(batch)
        if self.options.get("scalar"):
            losses = losses.mean()
        said = self.options.get("say", lambda count: None)(len(batch[0]))
        self.context.backward(losses, source_ids=said)
        self.context.step_optimizer(self.optimizer)
        ids = self.context.current_sample_ids()
        self.log.append((list(ids or ()), [one.detach().clone() for one in self.model.parameters()]))
        return {"loss": losses.mean()}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"val_loss": self.losses(batch).mean()}


def run(storage: str | None = None, *, policy: Any = POLICY, fit: Any = None, **options: Any) -> Governed:
    conf = {} if policy is None else {"governance": policy}
    fit = fit or {"max_length": Batch(9), "checkpoint_policy": "none"}
    trained: Governed = train(storage, Governed, conf=conf, fit=fit, **options)
    return trained


def by_hand(batches: list[list[int]], *, aggregation: int = 1) -> list[torch.Tensor]:
    """Return the weights after these batches: gradients of each sample, times what the policy says."""
    data = sourced()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    parameters = list(model.parameters())
    for start in range(0, len(batches) - len(batches) % aggregation, aggregation):
        ids = [one for batch in batches[start : start + aggregation] for one in batch]
        total = [torch.zeros_like(one) for one in parameters]
        for one in ids:
            x, y = data[one]
            loss = nn.functional.cross_entropy(model(x[None]), torch.tensor([y]))
            scales = (1.0, 1.0, 1.0, 1.0) if one < SIZES["trusted"] else (0.0, 0.0, 1.0, 1.0)
            for place, gradient in enumerate(torch.autograd.grad(loss, parameters)):
                total[place] += scales[place] * gradient / len(ids)
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return parameters


@pytest.mark.parametrize(("aggregation", "workers"), [(1, 0), (2, 0), (1, 1)])
def test_a_trial_trains_what_its_policy_says_over_epochs_with_a_short_last_batch(aggregation, workers):
    trial = run(aggregation=aggregation, workers=workers, fit={"max_length": Batch(14), "checkpoint_policy": "none"})
    batches = [ids for ids, _ in trial.log]
    assert {len(ids) for ids in batches} == {3, 4}
    expected = by_hand(batches, aggregation=aggregation)
    difference = max((a - b).abs().max().item() for a, b in zip(trial.log[-1][1], expected, strict=True))
    assert difference <= 1e-12


def test_without_the_block_the_same_code_trains_as_ever():
    trial = run(policy=None)
    opened = run(policy={**POLICY, "rules": POLICY["rules"][:1]})
    assert all(torch.equal(a, b) for a, b in zip(trial.log[-1][1], opened.log[-1][1], strict=True))
    assert not any(name.startswith("gov/") for name in trial.told[-1])


def test_validations_report_what_was_measured_as_one_value_for_the_whole_matrix(storage):
    trial = run(storage, fit={"max_length": Batch(6), "checkpoint_policy": "none"})
    told = trial.told[-1]
    assert (told["gov/coverage"], told["gov/leak_mass"], told["gov/violations"]) == (1.0, 0.0, 0)
    assert told["gov/depth"]["layers"] == ["0", "2"]
    assert told["gov/depth"]["mass"][1] == [0.0, 1.0]
    seen = [one for ids, _ in trial.log for one in ids]
    assert told["gov/share"]["web"] == pytest.approx(sum(one >= SIZES["trusted"] for one in seen) / len(seen))


def test_validations_tell_how_near_layers_are_to_the_targets_of_a_policy(storage):
    policy = {**POLICY, "targets": {"web": {"2": 1.0}, "trusted": {"0": 0.5, "2": 0.5}}}
    told = run(storage, policy=policy, fit={"max_length": Batch(6), "checkpoint_policy": "none"}).told[-1]
    body, head = told["gov/depth"]["mass"][0]
    assert told["gov/conformance/web"] == 1.0
    assert told["gov/conformance/trusted"] == pytest.approx(1 - (abs(body - 0.5) + abs(head - 0.5)) / 2, abs=1e-8)
    assert told["gov/conformance"] == told["gov/conformance/trusted"] < 1.0


def test_the_master_gets_what_was_measured(in_trial):
    in_trial.set_config(governance=POLICY)
    run(fit={"max_length": Batch(3), "checkpoint_policy": "none"})
    (validation,) = in_trial.metrics("validation")
    assert validation["gov/coverage"] == 1.0
    assert validation["gov/depth"]["sources"] == ["trusted", "web"]


def test_a_resumed_trial_is_bit_equal_to_one_that_was_not_stopped(storage, tmp_path):
    whole = run(str(tmp_path / "other"))
    run(storage, fit={"max_length": Batch(4)})
    resumed = run(storage, fit={"max_length": Batch(9), "latest_checkpoint": newest(storage)})
    assert [ids for ids, _ in resumed.log] == [ids for ids, _ in whole.log[4:]]
    assert all(torch.equal(a, b) for a, b in zip(resumed.log[-1][1], whole.log[-1][1], strict=True))


def test_sources_may_come_with_the_batch_where_a_loader_is_not_ours():
    def plain() -> Any:
        return sourced().dataset

    with pytest.raises(GovernanceError, match="SAMPLES"):
        run(data=plain, foreign=True)
    trial = run(data=plain, foreign=True, say=lambda count: ["web"] * count)
    torch.manual_seed(2)
    assert torch.equal(trial.log[-1][1][0], nn.Linear(3, 4).double().weight)
    assert trial.told[-1]["gov/share"] == {"trusted": 0.0, "web": 1.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scalar": True}, "SCALAR"),
        ({"data": lambda: label(points(8, 0), ["web"] * 7 + ["wbe"])}, "SOURCE: the source 'wbe'"),
        ({"data": lambda: points(8, 0)}, "SAMPLES"),
        ({"policy": {**POLICY, "rules": [*POLICY["rules"], {"source": "*", "layers": "2", "scale": 0}]}}, "STARVED"),
        ({"policy": {**POLICY, "source": []}}, "POLICY"),
        ({"policy": {**POLICY, "level": "isolated"}}, "LEVEL"),
    ],
)
def test_what_does_not_keep_to_the_policy_is_refused_with_its_code_and_the_next_step(options, said):
    with pytest.raises(GovernanceError, match=said) as refused:
        run(**options)
    assert refused.value.hint


def test_a_gradient_of_the_trials_own_is_refused():
    class Own(Governed):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            losses = self.losses(batch)
            self.context.backward(losses, torch.ones_like(losses))
            return {}

    with pytest.raises(pytorch.TrainerError, match="a policy gives the gradient"):
        train(None, Own, conf={"governance": POLICY}, fit={"max_length": Batch(1), "checkpoint_policy": "none"})
