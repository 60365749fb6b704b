"""A trial under the engine `microbatch`: batch norm, a loss over the samples of a source, text that is padded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from trainer_one_weight import newest, train

from detlab import pytorch
from detlab.governance import GovernanceError, combine
from detlab.pytorch import Batch

SIZES = {"trusted": 16, "web": 12}
SOURCES = tuple(SIZES)
POLICY: dict[str, Any] = {
    "engine": "microbatch",
    "sources": [{"name": name} for name in SOURCES],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}, {"source": "web", "layers": "body", "scale": 0.0}],
}


def words(count: int, seed: int) -> list[tuple[torch.Tensor, int]]:
    """Return rows of numbers, of 2 to 4 each."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(2 + at % 3, 3, generator=generator, dtype=torch.float64), at % 2) for at in range(count)]


def sourced() -> Any:
    return combine({name: words(count, at) for at, (name, count) in enumerate(SIZES.items())})


def padded(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = nn.utils.rnn.pad_sequence([one for one, _ in samples], batch_first=True)
    return rows, torch.tensor([label for _, label in samples])


class Padded(nn.Module):
    """Depends on how long its samples are padded, and on which are together."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(4, 2)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(self.body(x).mean(1))))


def losses_of(model: Any, batch: Any) -> torch.Tensor:
    losses = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
    return losses - losses.logsumexp(0) / len(losses)


class Parted(pytorch.PyTorchTrial):
    """`log` has batch, ids and length of samples of each run of `train_batch`; `states` those of the model after it."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context = context
        self.options = options
        torch.manual_seed(2)
        self.model = context.wrap_model(options.get("model", Padded)())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.5))
        self.log: list[tuple[int, list[int], int]] = []
        self.states: list[dict[str, torch.Tensor]] = []
        self.told: list[dict[str, Any]] = []

    def build_training_data_loader(self) -> Any:
        data = self.options.get("data", sourced)()
        more = {"num_workers": self.options.get("workers", 0)}
        if self.options.get("foreign"):
            self.context.experimental.disable_dataset_reproducibility_checks()
            return torch.utils.data.DataLoader(data, batch_size=8, collate_fn=padded)
        if "batches" in self.options:
            return pytorch.DataLoader(data, batch_sampler=self.options["batches"], collate_fn=padded, **more)
        return pytorch.DataLoader(data, batch_size=14, shuffle=True, collate_fn=padded, **more)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(words(6, 9), batch_size=6, collate_fn=padded)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        told = self.told

        class Listener(pytorch.PyTorchCallback):
            def on_validation_end(self, metrics: dict[str, Any]) -> None:
                told.append(metrics)

            def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
                told.append(avg_metrics)

        return {"listener": Listener()}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        losses = losses_of(self.model, batch)
        self.context.backward(losses)
        if self.options.get("drops"):
            self.optimizer.zero_grad()
        self.context.step_optimizer(self.optimizer)
        ids = list(self.context.current_sample_ids())
        self.log.append((batch_idx, ids, batch[0].shape[1]))
        self.states.append({name: one.clone() for name, one in self.model.state_dict().items()})
        assert self.context.current_sources() == [self.context.current_sources()[0]] * len(ids)
        return {"loss": losses.mean(), "samples": len(ids)}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"val_loss": losses_of(self.model, batch).mean()}


def run(storage: str | None = None, *, policy: Any = POLICY, fit: Any = None, **options: Any) -> Parted:
    fit = fit or {"max_length": Batch(6), "checkpoint_policy": "none"}
    trained: Parted = train(storage, Parted, conf={"governance": policy}, fit=fit, **options)
    return trained


class NoDrop(Padded):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.0)


def by_hand(parts: list[tuple[int, list[int], int]], aggregation: int) -> dict[str, torch.Tensor]:
    """Return the state after these parts of batches."""
    data = sourced()
    torch.manual_seed(2)
    model = NoDrop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    parameters = dict(model.named_parameters())
    steps = parts[-1][0] // aggregation + 1
    for step in range(steps):
        mine = [ids for batch, ids, _ in parts if batch // aggregation == step]
        total = {name: torch.zeros_like(one) for name, one in parameters.items()}
        for ids in mine:
            closed = ids[0] >= SIZES["trusted"]
            found = torch.autograd.grad(
                losses_of(model, padded([data[one] for one in ids])).sum(), list(parameters.values())
            )
            for name, gradient in zip(parameters, found, strict=True):
                if not (closed and name.startswith("body")):
                    total[name] += gradient / sum(map(len, mine))
        for name, one in parameters.items():
            one.grad = total[name]
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize(("aggregation", "workers"), [(1, 0), (2, 0), (1, 1)])
def test_a_trial_trains_on_each_source_of_a_batch_by_itself(aggregation, workers):
    trial = run(model=NoDrop, aggregation=aggregation, workers=workers)
    assert [batch for batch, _, _ in trial.log] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    data = sourced()
    for _, ids, length in trial.log:
        assert len({one >= SIZES["trusted"] for one in ids}) == 1
        assert length == max(len(data[one][0]) for one in ids), "padded by the samples of its own source alone"
    expected = by_hand(trial.log, aggregation)
    assert max((one - expected[name]).abs().max().item() for name, one in trial.states[-1].items()) <= 1e-10
    # between two parts of a batch nothing but statistics changes
    first, second = trial.states[:2]
    assert torch.equal(first["head.weight"], second["head.weight"]) is (aggregation == 2)


def test_metrics_are_those_of_the_whole_batch():
    trial = run(fit={"max_length": Batch(3), "checkpoint_policy": "none"})
    averages = next(one for one in trial.told if "samples" in one)
    weighted = []
    for number in range(3):
        sizes = [len(ids) for batch, ids, _ in trial.log if batch == number]
        weighted.append(sum(size * size for size in sizes) / sum(sizes))
    assert averages["samples"] == pytest.approx(sum(weighted) / 3)
    told = trial.told[-1]
    assert (told["gov/coverage"], told["gov/leak_mass"], told["gov/violations"]) == (1.0, 0.0, 0)
    assert told["gov/depth"]["layers"] == ["body.0", "norm", "head"]
    assert told["gov/depth"]["mass"][1][0] == 0.0
    seen = [one for _, ids, _ in trial.log for one in ids]
    assert told["gov/share"]["web"] == pytest.approx(sum(one >= SIZES["trusted"] for one in seen) / len(seen))


def test_a_resumed_trial_is_bit_equal_to_one_that_was_not_stopped(storage, tmp_path):
    whole = run(str(tmp_path / "other"))
    run(storage, fit={"max_length": Batch(3)})
    resumed = run(storage, fit={"max_length": Batch(6), "latest_checkpoint": newest(storage)})
    assert [ids for _, ids, _ in resumed.log] == [ids for batch, ids, _ in whole.log if batch >= 3]
    assert all(torch.equal(one, whole.states[-1][name]) for name, one in resumed.states[-1].items())


def test_a_closed_source_leaves_running_statistics_of_closed_layers_as_they_are():
    policy = {**POLICY, "rules": [POLICY["rules"][0], {"source": "web", "layers": "body|norm", "scale": 0.0}]}
    trial = run(policy=policy)
    # a state is kept within the run of each source: that of the other one is put back behind it
    assert [int(state["norm.num_batches_tracked"]) for state in trial.states] == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7]
    fit = {"max_length": Batch(2), "checkpoint_policy": "none"}
    states = [run(policy=policy, batches=[[0, 1, 2, *web]] * 2, fit=fit).states for web in ([16, 17, 18], [25, 26, 27])]
    closed = ("norm.running_mean", "norm.running_var", "body.0.weight")
    assert all(torch.equal(states[0][2][name], states[1][2][name]) for name in closed)
    assert not torch.equal(states[0][1]["norm.running_mean"], states[1][1]["norm.running_mean"])
    assert not torch.equal(states[0][2]["head.weight"], states[1][2]["head.weight"])


def test_canaries_are_planted_and_measured():
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3, 4)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 2)
            self.double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.body(x.mean(1))))

    canaries = {"sources": "web", "count": 4, "budget": 0.5}
    trial = run(policy={**POLICY, "canaries": canaries}, model=Plain)
    assert 0.0 <= trial.told[-1]["gov/canary_auc"] <= 1.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"foreign": True}, "SAMPLES: .*detlab.pytorch.DataLoader"),
        ({"data": lambda: words(20, 0)}, "SAMPLES: .*label or combine"),
        ({"drops": True}, "ENGINE: gradients of another part"),
        ({"batches": [[0, 1, 2, 16]]}, "ENGINE: a batch has 1 sample of one source, and batch norm"),
        ({"data": lambda: combine({"trusted": words(20, 0), "wbe": words(9, 0)})}, "SOURCE: the source 'wbe'"),
        ({"policy": {**POLICY, "engine": "auto"}}, "COUPLING: BatchNorm1d"),
    ],
)
def test_what_it_cannot_do_is_refused_with_its_code_and_the_next_step(options, said):
    with pytest.raises(GovernanceError, match=said) as refused:
        run(**options)
    assert refused.value.hint


def test_other_errors_of_a_trial_stay_as_they_are():
    class Odd(Padded):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        run(model=Odd)
