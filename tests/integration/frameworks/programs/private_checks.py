"""The level `dp` with the trainer and Opacus itself; `test_frameworks_private.py` runs this where that is installed."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainer_one_weight import newest, train

from detlab import core, pytorch
from detlab.governance import GovernanceError, combine
from detlab.pytorch import Batch, Epoch, loop
from detlab.pytorch.governance import planting
from detlab.pytorch.governance.privacy.accounting import Accountant
from detlab.schemas.expconf.blocks.governance import PrivacyConfig
from detlab.schemas.expconf.canary_bounds import share_lower_bound
from detlab.testing.ranks import Contexts, Ranks

COUNT = 60
NORM = 0.3
POLICY: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
    "level": "dp",
    "dp": {"max_grad_norm": NORM, "target_epsilon": 3.0, "delta": 1e-3},
}
"""Under it each of 60 samples is in a step with probability 0.1."""


def points(count: int, seed: int) -> list[tuple[torch.Tensor, int]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(3, generator=generator, dtype=torch.float64), at % 2) for at in range(count)]


def data() -> Any:
    return combine({"trusted": points(COUNT - 20, 0), "web": points(20, 1)})


class Private(pytorch.PyTorchTrial):
    """Two linear layers; `log` has the ids and the weights of each batch, before it and after it."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context = context
        self.options = options
        torch.manual_seed(2)
        self.model = context.wrap_model(options.get("network", network)().double())
        self.optimizers = [
            context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.5))
            for _ in range(options.get("optimizers", 1))
        ]
        self.log: list[tuple[list[int], list[torch.Tensor], list[torch.Tensor]]] = []
        self.told: list[dict[str, Any]] = []

    def build_training_data_loader(self) -> Any:
        given = self.options.get("data", data)()
        return self.options.get("loader", lambda one: pytorch.DataLoader(one, batch_size=6, shuffle=True))(given)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(points(4, 9), batch_size=4)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        trial = self

        class Listener(pytorch.PyTorchCallback):
            def on_training_start(self) -> None:
                if trial.options.get("silent"):
                    trial.context._private._clipping.noise_multiplier = 0.0

            def on_validation_end(self, metrics: dict[str, Any]) -> None:
                trial.told.append(metrics)

        return {"listener": Listener()}

    def losses(self, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        before = [one.detach().clone() for one in self.model.parameters()]
        losses = (
            self.options.get("loss", self.losses)(batch)
            if "of" not in self.options
            else self.options["of"](self, batch)
        )
        for _ in range(self.options.get("backwards", 1)):
            self.context.backward(losses, retain_graph=True)
        self.context.step_optimizer(self.optimizers[-1])
        after = [one.detach().clone() for one in self.model.parameters()]
        self.log.append((list(self.context.current_sample_ids()), before, after))
        if batch_idx + 1 == self.options.get("until"):
            self.context.set_stop_requested(True)
        return {"loss": losses.mean()}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"val_loss": self.losses(batch).mean()}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def run(
    storage: Path | None = None, *, length: Any = None, policy: Any = POLICY, fit: Any = None, **options: Any
) -> Private:
    where = None if storage is None else str(storage)
    asked = {"max_length": length or Batch(12), "checkpoint_policy": "none", **(fit or {})}
    trained: Private = train(where, Private, conf={"governance": policy}, fit=asked, **options)
    return trained


def again(storage: Path, **options: Any) -> Private:
    return run(storage, fit={"latest_checkpoint": newest(str(storage))}, **options)


def clipped_sum(model: nn.Module, weights: list[torch.Tensor], ids: list[int]) -> list[torch.Tensor]:
    """The sum of the samples' clipped gradients, one backward pass for each."""
    for parameter, value in zip(model.parameters(), weights, strict=True):
        parameter.data = value.clone()
    samples, total = data(), [torch.zeros_like(one) for one in weights]
    for index in ids:
        x, y = samples[index]
        loss = nn.functional.cross_entropy(model(x[None]), torch.tensor([y]))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.cat([one.flatten() for one in gradients]).norm()
        factor = min(1.0, NORM / (float(norm) + 1e-6))
        total = [had + factor * one for had, one in zip(total, gradients, strict=True)]
    return total


@pytest.fixture(autouse=True)
def _nothing_to_copy(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("code"))  # checkpoints take the source files of the folder


# --- what a step does


def test_a_step_is_the_mean_of_clipped_gradients_of_the_samples_that_were_drawn() -> None:
    trial = run(silent=True)
    assert len({tuple(ids) for ids, _, _ in trial.log}) > 8
    assert len({len(ids) for ids, _, _ in trial.log}) > 2
    model = network().double()
    for ids, before, after in trial.log:
        assert ids == sorted(set(ids))
        for start, end, total in zip(before, after, clipped_sum(model, before, ids), strict=True):
            torch.testing.assert_close(end, start - 0.5 * total / 6, rtol=0, atol=1e-12)


@pytest.mark.soak
def test_noise_has_the_size_that_the_accountant_asked_for() -> None:
    trial = run(length=Batch(60))
    noise = trial.context._private.sampling.noise
    model, drawn = network().double(), []
    for ids, before, after in trial.log:
        for start, end, total in zip(before, after, clipped_sum(model, before, ids), strict=True):
            drawn.append(((start - end) / 0.5 * 6 - total).flatten())
    found = torch.cat(drawn)
    assert float(found.std()) == pytest.approx(noise * NORM, rel=0.1)
    assert abs(float(found.mean())) < 5 * noise * NORM / math.sqrt(len(found))


def test_a_step_for_which_nobody_was_drawn_adds_noise_alone() -> None:
    few = lambda: combine({"trusted": points(3, 0)})  # noqa: E731
    policy = {**POLICY, "dp": {**POLICY["dp"], "delta": 1e-2}}
    trial = run(length=Batch(30), policy=policy, data=few, loader=lambda one: pytorch.DataLoader(one, batch_size=1))
    empty = [(before, after) for ids, before, after in trial.log if not ids]
    assert empty
    assert all(not torch.equal(start, end) for before, after in empty for start, end in zip(before, after, strict=True))
    assert trial.context._private.meter.counts == [sum(len(ids) for ids, _, _ in trial.log), 0, 0]


@pytest.mark.soak
def test_a_sample_whose_gradient_is_no_number_counts_as_zero() -> None:
    def poisoned(trial: Private, batch: Any) -> torch.Tensor:
        losses = trial.losses(batch)
        return losses * torch.where(torch.arange(len(losses)) == 0, math.nan, 1.0)

    trial = run(silent=True, of=poisoned)
    model = network().double()
    for ids, before, after in trial.log:
        for start, end, total in zip(before, after, clipped_sum(model, before, ids[1:]), strict=True):
            torch.testing.assert_close(end, start - 0.5 * total / 6, rtol=0, atol=1e-12)


class Compiled(Private):
    """The same, compiled after it was wrapped; without generated code, which takes long."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        super().__init__(context, **options)
        self.model = torch.compile(self.model, backend="eager")


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # Dynamo looks at it
def test_a_compiled_model_takes_the_same_steps() -> None:
    fit = {"max_length": Batch(6), "checkpoint_policy": "none"}
    trial = train(None, Compiled, conf={"governance": POLICY}, fit=fit, silent=True)
    model = network().double()
    for ids, before, after in trial.log:
        for start, end, total in zip(before, after, clipped_sum(model, before, ids), strict=True):
            torch.testing.assert_close(end, start - 0.5 * total / 6, rtol=0, atol=1e-12)


# --- the budget


@pytest.mark.soak
def test_noise_is_that_of_opacus_itself_and_the_budget_is_kept() -> None:
    from opacus.accountants.utils import get_noise_multiplier

    budget = PrivacyConfig(max_grad_norm=1.0, target_epsilon=2.0, delta=1e-5)
    asked = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.02, "steps": 500}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the noise that it tries first
        theirs = get_noise_multiplier(**asked, accountant="rdp", epsilon_tolerance=1e-4)
    noise = Accountant(budget).noise_for(500, 0.02)
    assert noise == pytest.approx(theirs, rel=1e-3)
    counted = Accountant(budget)
    for _ in range(500):
        counted.step(noise, 0.02)
    assert 1.99 < counted.epsilon() <= 2.0
    assert counted.epsilon() == pytest.approx(Accountant(budget).epsilon_after(noise, 0.02, 500))
    assert counted.steps_left(noise, 0.02, 9) == 0
    spent = Accountant(budget, [(noise, 0.02, 250)])
    assert spent.steps_left(noise, 0.02, 9000) in (250, 251)
    assert spent.noise_for(500, 0.02) > noise
    with pytest.raises(GovernanceError, match="no noise keeps"):
        Accountant(budget, [(noise, 0.02, 600)]).noise_for(1, 0.02)
    for odd in ([(0.0, 0.1, 5)], [(1.0, 2.0, 5)], ["x"], [(1.0, 0.1, -4)]):
        with pytest.raises(GovernanceError, match="STATE"):
            Accountant(budget, odd)


def test_a_training_that_stops_and_goes_on_has_spent_what_one_that_did_not_has(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(loop, "CONTROL_SECONDS", 0.0)
    whole = run(tmp_path / "whole", length=Epoch(2))
    first = run(tmp_path / "parts", length=Epoch(2), until=7)
    second = again(tmp_path / "parts", length=Epoch(2))
    third = again(tmp_path / "parts", length=Epoch(2))
    assert len(whole.log) == 20
    assert 7 <= len(first.log) < 20
    assert len(first.log) + len(second.log) == 20
    assert third.log == []
    one, other = whole.context._private, second.context._private
    assert one.accountant.history == other.accountant.history
    assert one.accountant.epsilon() == other.accountant.epsilon() <= 3.0
    assert whole.told[-1]["gov/epsilon"] == second.told[-1]["gov/epsilon"] == one.accountant.epsilon() > 2.9
    assert first.told[-1]["gov/epsilon"] < 3.0


def test_neither_noise_nor_draws_come_again_after_a_resume(tmp_path: Path) -> None:
    run(tmp_path, length=Batch(20), fit={"checkpoint_period": Batch(5)}, until=3)
    start = newest(str(tmp_path))
    first, second = (run(tmp_path, length=Batch(20), fit={"latest_checkpoint": start}) for _ in range(2))
    assert first.log
    assert all(torch.equal(one, two) for one, two in zip(first.log[0][1], second.log[0][1], strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(first.log[-1][2], second.log[-1][2], strict=True))
    assert [ids for ids, _, _ in first.log] != [ids for ids, _, _ in second.log]


def test_a_longer_training_ends_when_the_budget_is_spent_and_says_so(tmp_path: Path, caplog: Any) -> None:
    run(tmp_path, length=Batch(12))
    with caplog.at_level("INFO"):
        longer = again(tmp_path, length=Batch(40))
    assert longer.log == []
    assert longer.context._private.accountant.epsilon() <= 3.0
    assert "the privacy budget is spent" in caplog.text
    assert "status: stopped after 12 batches: the privacy budget is spent" in caplog.text


def test_what_another_trial_has_spent_on_its_weights_counts() -> None:
    private: Any = run().context._private
    optimizer, saved = private._clipping.original_optimizer, private.state()
    steps: dict[str, Any] = {"rate": 0.1, "samples": 60, "steps": 12}
    with pytest.raises(GovernanceError, match=r"LEVEL: no noise keeps 12 steps within epsilon 3 .* was spent before"):
        private.begin_training(optimizer, **steps, saved=saved, again=False)
    private.budget = private.budget.model_copy(update={"target_epsilon": 6.0})
    assert private.begin_training(optimizer, **steps, saved=saved, again=False) == 12
    assert private.accountant.epsilon_after(private.sampling.noise, 0.1, 12) <= 6.0
    assert private.accountant.steps == 12
    with pytest.raises(GovernanceError, match="STATE"):
        private.begin_training(optimizer, **steps, saved={**saved, "mechanism": "prv"}, again=False)


def test_a_checkpoint_without_what_was_spent_is_not_gone_on_from(tmp_path: Path) -> None:
    run(tmp_path, policy=None, until=3)
    with pytest.raises(GovernanceError, match="STATE"):
        again(tmp_path)


# --- what is refused


class Counting(nn.Module):
    """Keeps the mean of its inputs, without noise."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.detach().mean(0)
        return x


def coupled(trial: Private, batch: Any) -> torch.Tensor:
    losses = trial.losses(batch)
    return losses + losses.mean()


def twice(trial: Private, batch: Any) -> torch.Tensor:
    return trial.losses([torch.cat([batch[0]] * 2), torch.cat([batch[1]] * 2)]).view(2, -1).mean(0)


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    (
        "COUPLING",
        "BatchNorm1d",
        {"network": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))},
    ),
    ("COUPLING", "the buffer 0.seen", {"network": lambda: nn.Sequential(Counting(), nn.Linear(3, 2))}),
    ("COUPLING", "depends on other samples", {"of": coupled}),
    ("LEVEL", "MultiheadAttention", {"network": lambda: nn.Sequential(nn.Linear(3, 4), nn.MultiheadAttention(4, 2))}),
    ("LEVEL", "2 are wrapped", {"optimizers": 2}),
    ("LEVEL", "aggregation_frequency is 2", {"aggregation": 2}),
    ("LEVEL", "one backward pass for each step", {"backwards": 2}),
    ("ROWS", "rows, and the batch", {"of": twice}),
    ("SCALAR", "one loss per sample", {"of": lambda trial, batch: trial.losses(batch).mean()}),
    (
        "LEVEL",
        "a batch sampler of its own",
        {"loader": lambda one: pytorch.DataLoader(one, batch_sampler=[[0, 1], [2, 3]])},
    ),
    (
        "LEVEL",
        "a WeightedRandomSampler",
        {"loader": lambda one: pytorch.DataLoader(one, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 60, 60))},
    ),
    ("LEVEL", "with 60 records it must be far below", {"policy": {**POLICY, "dp": {**POLICY["dp"], "delta": 0.1}}}),
    ("LEVEL", "no noise keeps", {"policy": {**POLICY, "dp": {**POLICY["dp"], "target_epsilon": 0.01}}}),
]


@pytest.mark.parametrize(("code", "said", "options"), REFUSED, ids=[f"{code} {said[:20]}" for code, said, _ in REFUSED])
def test_what_cannot_be_protected_is_refused_before_a_step(code: str, said: str, options: dict[str, Any]) -> None:
    with pytest.raises(GovernanceError, match=said) as refused:
        run(**options)
    assert {one.code for one in refused.value.refusals} == {code}
    assert refused.value.hint


def test_a_foreign_loader_is_refused() -> None:
    class Foreign(Private):
        def build_training_data_loader(self) -> Any:
            self.context.experimental.disable_dataset_reproducibility_checks()
            return torch.utils.data.DataLoader(data(), batch_size=6)

    with pytest.raises(GovernanceError, match=r"LEVEL: the training data is a DataLoader"):
        train(None, Foreign, conf={"governance": POLICY}, fit={"max_length": Batch(3)})


# --- several ranks


@pytest.mark.soak
def test_two_ranks_take_the_steps_of_one(tmp_path: Path) -> None:
    ranks = Ranks("private_checks", tmp_path, size=2)
    try:
        (first, noisy), (second, noisy_too) = ranks.run("train_apart")
    finally:
        ranks.close()
    model = network().double()
    for (mine, before, after), (others, _, same) in zip(first, second, strict=True):
        assert {one % 2 for one in mine} <= {0}
        assert {one % 2 for one in others} <= {1}
        assert after == same
        whole = clipped_sum(model, [torch.tensor(one, dtype=torch.float64) for one in before], mine + others)
        for start, end, total in zip(before, after, whole, strict=True):
            expected = torch.tensor(start, dtype=torch.float64) - 0.5 * total / 12
            torch.testing.assert_close(torch.tensor(end, dtype=torch.float64), expected, rtol=0, atol=1e-12)
    assert noisy[-1][2] == noisy_too[-1][2]
    assert noisy[-1][2] != first[-1][2]


def train_apart(contexts: Contexts) -> list[Any]:
    ranks = contexts.core_context.distributed
    with core.init(distributed=ranks, preempt_mode=core.PreemptMode.ChiefOnly) as core_context:
        return [one_of_several(contexts, core_context, silent=silent) for silent in (True, False)]


def one_of_several(contexts: Contexts, core_context: core.Context, *, silent: bool) -> list[Any]:
    context = contexts(core_context=core_context, exp_conf={"governance": POLICY}, enable_tensorboard_logging=False)
    trial = Private(context, silent=silent)
    pytorch.Trainer(trial, context).fit(max_length=Batch(6), checkpoint_policy="none")
    return [
        (ids, [one.tolist() for one in before], [one.tolist() for one in after]) for ids, before, after in trial.log
    ]


# --- with what else a policy may have


def test_bounds_of_memorisation_and_profiles_go_with_it(tmp_path: Path) -> None:
    """What a search is constrained by is measured beside what was spent, and a resumed trial has the same canaries."""
    policy = {
        **POLICY,
        "canaries": {"sources": "web", "count": 8, "budget": 0.5, "kind": "label", "looks": 2},
        "profile": {"samples": 3},
    }
    first = run(tmp_path, policy=policy, until=8)
    told = first.told[-1]
    assert 0 <= told["gov/canary_auc_lcb"] <= told["gov/canary_auc"] <= 1
    assert 0 < told["gov/epsilon"] <= 3.0
    second = again(tmp_path, policy=policy)
    assert second.context._canary_secret() == first.context._canary_secret()
    assert second.told[-1]["gov/epsilon"] > told["gov/epsilon"]
    assert first.context._probes is not None
    assert second.context._probes is not None
    assert second.context._probes.probes[0].digest == first.context._probes.probes[0].digest
    assert second.context._probes.record(second.context.models) is not None


# --- the audit


AUDITED: dict[str, Any] = {
    **POLICY,
    "dp": {**POLICY["dp"], "delta": 1e-4},
    "canaries": {"sources": "web", "count": 400, "budget": 0.5, "kind": "label", "looks": 1},
}


def many() -> Any:
    """Labels follow from the first number, so that a canary's label is as likely as not learnt by heart alone."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1000, 20, generator=generator, dtype=torch.float64)
    return combine({"web": [(one, int(one[0] > 0) + 2 * int(one[1] > 0)) for one in x]})


class Audited(Private):
    """A wide network that can learn each sample by heart."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context, self.options = context, options
        wide = nn.Sequential(nn.Linear(20, 256), nn.Tanh(), nn.Linear(256, 4)).double()
        self.model = context.wrap_model(wide)
        self.optimizers = [context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=5e-3))]
        self.log, self.told = [], []

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(many(), batch_size=100, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        samples = many()
        return pytorch.DataLoader([samples[index] for index in range(8)], batch_size=8)


def least_epsilon(found: Any, confidence: float = 0.95) -> float:
    """The bound of Steinke and others (2023) for one run: of how many guesses at who was trained on are right."""
    scored = sorted([(loss, 1) for loss in found.planted] + [(loss, 0) for loss in found.held_out])
    most = len(scored) // 4
    right = sum(one for _, one in scored[:most]) + sum(1 - one for _, one in scored[-most:])
    share = share_lower_bound(right, 2 * most, confidence)
    return math.log(share / (1 - share)) if 0 < share < 1 else 0.0


@pytest.mark.soak
def test_an_audit_in_one_run_finds_no_more_than_was_spent_and_much_without_noise(monkeypatch: Any) -> None:
    seen: list[Any] = []
    report = planting.canary_report

    def looked(found: Any, *rest: Any) -> Any:
        seen.extend(found)
        return report(found, *rest)

    monkeypatch.setattr(planting, "canary_report", looked)
    fit = {"max_length": Epoch(60), "checkpoint_policy": "none"}
    plain = {key: value for key, value in AUDITED.items() if key not in ("level", "dp")}
    bounds = []
    for policy in (AUDITED, plain):
        trial = train(None, Audited, conf={"governance": policy}, fit=fit)
        bounds.append(least_epsilon(seen[-1]))
    assert bounds[0] <= 3.0
    assert bounds[0] < 0.7 < 1.5 < bounds[1], bounds
    assert trial.told[-1]["gov/canary_auc"] > 0.9
