"""Canaries in a trial: planted in secret, trained under their source's rules, measured at each validation."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from trainer_one_weight import newest, train

from detlab import pytorch
from detlab.governance import GovernanceError, combine, label
from detlab.pytorch import Batch

OPEN = {"source": "*", "layers": ".*", "scale": 1.0}
POLICY: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [OPEN],
    "canaries": {"sources": "web", "count": 40, "budget": 0.5, "looks": 1},
}


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch):
    """Draw secrets that are the same in each run of a test, and differ within it."""
    numbers = itertools.count()
    draw = "detlab.pytorch.governance.planting.secrets.token_bytes"
    monkeypatch.setattr(draw, lambda size: hashlib.sha256(b"%d" % next(numbers)).digest()[:size])


def points(count: int, seed: int, width: int = 24) -> list[tuple[torch.Tensor, int]]:
    """Return random inputs, whose labels say nothing of them: what is learnt is known by heart."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(width, generator=generator), at % 5) for at in range(count)]


def sourced() -> Any:
    return combine({"trusted": points(40, 0), "web": points(120, 1)})


class Classifier(pytorch.PyTorchTrial):
    """Overfits in some hundred batches, if it may."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context = context
        self.options = options
        torch.manual_seed(2)
        model = options.get("model", lambda: nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 5)))()
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.told: list[dict[str, Any]] = []
        self.calls = 0
        self.steps = 0

    def build_training_data_loader(self) -> Any:
        data = self.options.get("data", sourced)()
        if self.options.get("foreign"):
            self.context.experimental.disable_dataset_reproducibility_checks()
            return torch.utils.data.DataLoader(data, batch_size=32)
        self.loader = pytorch.DataLoader(data, batch_size=32, shuffle=True, num_workers=self.options.get("workers", 0))
        return self.loader

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self.options.get("data", sourced)(), batch_size=32)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        told = self.told

        class Listener(pytorch.PyTorchCallback):
            def on_validation_end(self, metrics: dict[str, Any]) -> None:
                told.append(metrics)

        return {"listener": Listener()}

    def losses(self, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.calls += 1
        try:
            self.context.backward(self.losses(batch))
        except Exception as error:
            if not isinstance(error, GovernanceError):
                pytest.fail("the trial's own handler was reached")
            raise
        self.context.step_optimizer(self.optimizer)
        self.steps += 1
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"val_loss": self.losses(batch).mean()}


def run(
    storage: str | None = None, *, trial: Any = Classifier, batches: int = 150, fit: Any = None, **options: Any
) -> Any:
    policy = options.pop("policy", POLICY)
    plan = {"max_length": Batch(batches), "checkpoint_policy": "none", **(fit or {})}
    return train(storage, trial, conf={"governance": policy}, fit=plan, **options)


def test_a_model_that_learns_by_heart_is_told_by_its_canaries_and_one_that_may_not_learn_is_not():
    told = run().told[-1]
    assert told["gov/canary_auc"] > 0.9
    assert told["gov/canary_auc_lcb"] > 0.7
    assert "gov/extraction" not in told
    assert told["gov/spread"]["layers"] == ["0", "2"]
    assert all(1 < one <= most for one, most in zip(told["gov/spread"]["dimension"], (24, 5), strict=True))
    closed = [OPEN, {"source": "web", "layers": ".*", "scale": 0.0}]
    told = run(policy={**POLICY, "rules": closed}).told[-1]
    assert told["gov/canary_auc"] < 0.75
    assert told["gov/canary_auc_lcb"] < 0.5


def test_measuring_trains_nothing_and_changes_no_number():
    once = run(batches=20)
    often = run(batches=20, fit={"validation_period": Batch(2), "max_length": Batch(20), "checkpoint_policy": "none"})
    assert once.steps == often.steps == 20
    assert often.calls > once.calls > 20
    assert len(often.told) == 10
    assert set(once.told[0]) == set(often.told[0]) >= {"gov/canary_auc", "gov/canary_auc_lcb", "gov/canaries"}


def test_neither_the_config_nor_the_seed_says_which_canaries_are_trained_on():
    one, other = run(batches=2), run(batches=2)
    assert one.context.get_trial_seed() == other.context.get_trial_seed()
    assert one.told[0]["gov/canaries"]["commitment"] != other.told[0]["gov/canaries"]["commitment"]
    assert "secret" not in str(one.context.get_experiment_config())


def test_the_trials_own_loader_and_data_stay_as_they_are_and_workers_get_the_canaries():
    data = sourced()
    before = [one[1] for one in data.dataset]
    trial = run(batches=4, data=lambda: data, workers=1)
    assert [one[1] for one in data.dataset] == before
    assert trial.loader.dataset is data


def test_a_resumed_trial_goes_on_with_its_canaries_bit_by_bit(storage, tmp_path):
    run(storage, batches=6)
    first = newest(storage)
    resumed = run(storage, batches=12, fit={"latest_checkpoint": first})
    again = run(storage, batches=12, fit={"latest_checkpoint": first})
    assert resumed.told[-1]["gov/canaries"] == again.told[-1]["gov/canaries"]
    weights = [list(one.model.parameters()) for one in (resumed, again)]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


# --- sequences


def texts(count: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    whole = [torch.randint(0, 30, (13,), generator=generator) for _ in range(count)]
    return [(one[:-1], one[1:]) for one in whole]


class Reader(Classifier):
    """A model of characters."""

    def losses(self, batch: Any) -> torch.Tensor:
        logits = self.model(batch[0])
        each = nn.functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten(), reduction="none")
        return each.view(batch[1].shape).sum(1)


class Characters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 32)
        self.mix = nn.GRU(32, 96, batch_first=True)
        self.head = nn.Linear(96, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.embed(x))[0])


def books() -> Any:
    return combine({"trusted": texts(8, 0), "web": texts(100, 1)})


def test_continuations_that_a_model_knows_are_extracted_apart_from_the_area():
    policy = {**POLICY, "canaries": {**POLICY["canaries"], "candidates": 8}}
    trial = run(trial=Reader, policy=policy, model=Characters, data=books, batches=250)
    told = trial.told[-1]
    assert told["gov/extraction"] > 0.8
    assert told["gov/extraction_lcb"] > 0.5
    closed = {**policy, "rules": [OPEN, {"source": "web", "layers": ".*", "scale": 0.0}]}
    fresh = run(trial=Reader, policy=closed, model=Characters, data=books, batches=20).told[-1]
    assert fresh["gov/extraction_lcb"] < 0.2
    assert fresh["gov/canaries"]["sources"]["web"]["candidates"] == 8


# --- refused


def leaked() -> Any:
    """Return the class of a trial that trains on all canaries, which its own code has found out."""

    class Leaked(Classifier):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            (canaries,) = self.context._canaries._sets
            inputs, labels = zip(*canaries.made, strict=True)
            if not self.context._reads_losses:
                batch = [torch.stack(inputs)[:32], torch.tensor(labels)[:32]]
            return super().train_batch(batch, epoch_idx, batch_idx)

    return Leaked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": lambda: combine({"trusted": points(40, 0)})}, "no sample of 'web'"),
        ({"data": lambda: combine({"trusted": points(4, 0), "web": points(50, 1)})}, "80.0% of the 50 samples"),
        ({"data": lambda: points(90, 0)}, "does not tell the source"),
        ({"data": lambda: combine({"web": [one for one, _ in points(90, 0)]})}, "give the data set a method"),
        ({"data": lambda: label([(one, 1) for one, _ in points(90, 0)], ["web"] * 90)}, "have one label"),
        ({"foreign": True}, "the trial built another"),
        ({"policy": {**POLICY, "constraints": {"extraction_lcb": {"max": 0.1}}}}, "is a bound for sequences"),
    ],
)
def test_what_canaries_cannot_be_planted_or_measured_in_is_refused_with_the_next_step(options, said):
    with pytest.raises(GovernanceError, match=said) as refused:
        run(batches=1, **options)
    assert refused.value.code == "governance.canary"
    assert refused.value.hint


def test_canaries_that_leaked_are_refused_rather_than_measured():
    policy = {**POLICY, "canaries": {**POLICY["canaries"], "count": 32}}
    with pytest.raises(GovernanceError, match="leaked into the training"):
        run(trial=leaked(), policy=policy, batches=80, data=lambda: label(points(32 * 5, 1), ["web"] * 160))


def test_the_data_sets_own_canaries_are_planted():
    class Data(list):  # type: ignore[type-arg]
        def craft_canary(self, sample: Any, random: Any) -> Any:
            return {"x": torch.full((24,), random.random()), "y": 1}

    class Own(Classifier):
        def losses(self, batch: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(self.model(batch["x"]), batch["y"], reduction="none")

    def data() -> Any:
        return label(Data({"x": x, "y": y} for x, y in points(100, 1)), ["web"] * 100)

    assert 0 <= run(trial=Own, data=data, batches=2).told[-1]["gov/canary_auc"] <= 1
