"""The level `dp` as a text, in evidence, for pools and in what is drawn; with Opacus itself: integration/frameworks."""

from __future__ import annotations

import datetime
import importlib.util
from typing import Any

import pytest
import torch

from detlab.cli.commands.registry import evidence
from detlab.cli.commands.registry.replay import refuse_private
from detlab.errors import DetlabError
from detlab.governance import GovernanceError, Policy, TrainedParameter, attestation, compile_policy
from detlab.governance.attestation import attest, contradictions
from detlab.governance.ledger import LedgerEntry
from detlab.governance.verification import Continuation, allowed_now
from detlab.pytorch import DataLoader
from detlab.pytorch.data.poisson import steps_per_epoch
from detlab.pytorch.data.resumable import TrainingStream
from detlab.pytorch.governance.privacy.private_data import drawn_from, strategy_under
from detlab.pytorch.governance.trial import governed_by
from detlab.schemas.expconf import ExperimentConfig, resolve, unsupported_keys
from detlab.schemas.wire.governance.attestation import PreflightReport
from detlab.schemas.wire.governance.capabilities import ENFORCED, required_by
from detlab.schemas.wire.governance.evidence import GovernedSegment, PrivacySpent

NUMBERS = {"max_grad_norm": 1.0, "target_epsilon": 8.0, "delta": 1e-5}
PRIVATE: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
    "level": "dp",
    "dp": NUMBERS,
}
RAW = {"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "model_def:Trial"}
DIRECT = {key: value for key, value in PRIVATE.items() if key not in ("level", "dp")}


def rules(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [*PRIVATE["rules"], *({"source": "web", "layers": "head", "scale": 1.0, **one} for one in more)]


# --- as a text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dp": None}, "governance.dp: is missing"),
        ({"dp": {**NUMBERS, "delta": 1.0}}, "governance.dp.delta"),
        ({"dp": {**NUMBERS, "target_epsilon": 0}}, "governance.dp.target_epsilon"),
        ({"dp": {**NUMBERS, "max_grad_norm": -1}}, "governance.dp.max_grad_norm"),
        ({"dp": {"delta": 1e-5}}, "governance.dp.target_epsilon"),
        ({"dp": {**NUMBERS, "noise": 1.0}}, "unknown key"),
        ({"level": "direct"}, "governance.dp: has an effect at the level dp alone"),
        ({"rules": rules({"level": "isolated"})}, "governance.rules[1].level: differs from dp"),
        ({"rules": rules({"level": "direct"})}, "governance.rules[1].level: differs from dp"),
        (
            {"level": "direct", "dp": None, "rules": rules({"level": "dp"})},
            "rules[1].level: is for the whole",
        ),
        ({"rules": rules({"scale": 0.0})}, "governance.rules[1].scale: must be 1"),
        ({"rules": rules({"scale": 0.5})}, "governance.rules[1].scale: must be 1"),
        ({"enforce": "audit"}, "governance.enforce: must be strict"),
        ({"engine": "dual"}, "governance.engine: must be auto"),
        ({"normalize": "per_layer"}, "governance.normalize: must be global"),
    ],
)
def test_what_does_not_fit_the_level_is_named_at_submit(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(GovernanceError) as refused:
        Policy.of({**PRIVATE, **changes})
    assert said in str(refused.value), refused.value
    assert {one.code for one in refused.value.refusals} == {"POLICY"}


def test_a_config_may_ask_for_it_and_gradient_accumulation_is_refused() -> None:
    config = ExperimentConfig.model_validate(resolve({**RAW, "governance": PRIVATE}))
    assert not [one for one in unsupported_keys(config) if one.level == "error"]
    with pytest.raises(Exception, match=r"optimizations.aggregation_frequency"):
        resolve({**RAW, "governance": PRIVATE, "optimizations": {"aggregation_frequency": 2}})


def test_a_search_is_warned_that_its_trials_spend_apart() -> None:
    searcher = {"name": "random", "metric": "loss", "max_trials": 4, "max_length": {"batches": 9}}
    config = ExperimentConfig.model_validate(resolve({**RAW, "searcher": searcher, "governance": PRIVATE}))
    (warned,) = [one for one in unsupported_keys(config) if one.path == "governance.dp.target_epsilon"]
    assert (warned.level, "not added up" in warned.message) == ("warning", True)


def test_the_hash_of_other_policies_is_what_it_was() -> None:
    block = {"sources": [{"name": "web"}], "rules": [{"source": "*", "layers": ".*", "scale": 1.0}]}
    assert Policy.of(block).policy_hash == Policy.of({**block, "dp": None}).policy_hash
    assert Policy.of(block).policy_hash == "sha256:0358ba18ec866b39273c0b17f778f66d47f02a3ea6d69e9da8e208f0037b5e80"
    assert Policy.of(PRIVATE).policy_hash != Policy.of({**PRIVATE, "dp": {**NUMBERS, "delta": 1e-6}}).policy_hash


# --- where it may run


def with_opacus(monkeypatch: Any, *, there: bool) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(attestation, "find_spec", lambda name: (there or None) if name == "opacus" else real(name))


@pytest.mark.parametrize("there", [True, False])
def test_an_agent_attests_it_where_opacus_is(monkeypatch: Any, there: bool) -> None:
    with_opacus(monkeypatch, there=there)
    said = attest("nonce", cluster_id="c", agent_id="a", token="t")
    assert ("gov.dp@1" in said.enforces) == there
    assert set(said.enforces) >= ENFORCED
    assert "gov.dp@1" in required_by({"governance": PRIVATE})


def test_the_pre_flight_of_an_image_without_it_says_what_is_missing() -> None:
    report = PreflightReport(version="1", code=["sha256:" + "0" * 64], enforces=sorted(ENFORCED), layers=0)
    (said,) = contradictions(report, requires={"gov.dp@1"}, code=None)
    assert "pip install 'detlab[dp]'" in said


@pytest.mark.skipif(importlib.util.find_spec("opacus") is not None, reason="Opacus is installed here")
def test_without_opacus_training_is_refused_with_the_command() -> None:
    with pytest.raises(GovernanceError, match=r"ENV: .*pip install 'detlab\[dp\]'"):
        governed_by({"governance": PRIVATE}, [torch.nn.Linear(2, 2)])


def test_several_models_and_strategies_that_add_up_gradients_are_refused() -> None:
    with pytest.raises(GovernanceError, match=r"LEVEL: .*'ddp'"):
        strategy_under({"governance": PRIVATE}, "ddp", torch.device("cpu"), None)
    with pytest.raises(GovernanceError, match=r"LEVEL: .*2 are wrapped"):
        governed_by({"governance": PRIVATE}, [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    assert strategy_under({"governance": PRIVATE}, None, torch.device("cpu"), None).name == "dp"


# --- evidence


def test_weights_that_were_trained_without_noise_are_not_made_private_later() -> None:
    parameters = [TrainedParameter("head.weight", (2, 2))]
    plain, private = (compile_policy(Policy.of(one), parameters) for one in (DIRECT, PRIVATE))
    matrices = {one.s_hash: one.matrix for one in (plain, private)}
    today = datetime.date(2026, 1, 1)
    now = Continuation(1, private.policy, private.matrix, "sha256:" + "0" * 64, today)
    (found,) = allowed_now({"web": [plain.s_hash]}, matrices, now)
    assert found.code == "LEVEL"
    assert "without noise" in found.message
    assert allowed_now({"web": [private.s_hash]}, matrices, now) == []
    back = Continuation(1, plain.policy, plain.matrix, "sha256:" + "0" * 64, today)
    assert allowed_now({"web": [private.s_hash]}, matrices, back) == []


def test_what_was_spent_is_printed_and_replay_refuses() -> None:
    spent = {"epsilon": 3.456789, "delta": 1e-5, "target_epsilon": 8.0}
    said = evidence._spent({"level": "dp", "privacy": spent})
    assert said["privacy"].startswith("epsilon 3.457 of 8.0 spent at delta 1e-05, for each record")
    assert evidence._spent({"level": "direct", "privacy": None}) == {}
    entries = [LedgerEntry.after(None, 1, "segment", "a", {"level": level}, 0.0) for level in ("direct", "dp")]
    refuse_private("3f2a", entries[:1])
    with pytest.raises(DetlabError, match="cannot be trained anew bit by bit"):
        refuse_private("3f2a", entries)


def test_a_segment_says_what_was_spent_and_one_of_another_level_does_not() -> None:
    spent = PrivacySpent(
        epsilon=1.5, delta=1e-5, target_epsilon=8.0, max_grad_norm=1.0, noise_multiplier=0.9, sample_rate=0.1, steps=3
    )
    some = {"policy_hash": "sha256:" + "0" * 64, "s_hash": "sha256:" + "0" * 64}
    assert GovernedSegment.model_validate({**some, "privacy": spent.model_dump(mode="json")}).privacy == spent
    assert GovernedSegment.model_validate(some).privacy is None
    with pytest.raises(ValueError, match="epsilon"):
        GovernedSegment.model_validate({**some, "privacy": {**spent.model_dump(), "epsilon": float("nan")}})


# --- what is drawn


def stream(
    count: int = 200, batch_size: int = 20, *, rank: int = 0, size: int = 1, state: Any = None
) -> TrainingStream:
    data = torch.utils.data.TensorDataset(torch.arange(count))
    drawn = drawn_from(DataLoader(data, batch_size=batch_size, shuffle=True), size)
    return TrainingStream(drawn, rank=rank, size=size, seed=7, state=state)


def test_each_sample_is_drawn_by_itself_and_no_two_trainings_have_the_same_batches() -> None:
    before = torch.get_rng_state()
    runs = [[next(one).ids for _ in range(100)] for one in (stream(), stream())]
    assert torch.equal(torch.get_rng_state(), before)
    assert runs[0] != runs[1]
    sizes = [len(ids or ()) for ids in runs[0]]
    assert 17 < sum(sizes) / 100 < 23
    assert 8 < torch.tensor(sizes).double().var() < 32  # 18 = 200 * 0.1 * 0.9
    assert len({one for ids in runs[0] for one in ids or ()}) > 195
    assert all(len(set(ids or ())) == len(ids or ()) for ids in runs[0])


def test_epochs_have_as_many_steps_as_before_and_a_resumed_one_goes_on() -> None:
    one = stream()
    fetched = [next(one) for _ in range(13)]
    assert [step.ends_epoch for step in fetched].index(True) == 9
    assert fetched[-1].epoch == 1
    later = stream(state=one.state_dict())
    rest = [next(later) for _ in range(8)]
    assert (rest[0].epoch, rest[0].batch_in_epoch) == (1, 3)
    assert [step.ends_epoch for step in rest].index(True) == 6
    assert [steps_per_epoch(rate) for rate in (1.0, 0.5, 0.1, 0.3)] == [1, 2, 10, 3]


def test_ranks_draw_from_samples_of_their_own_with_the_same_probability() -> None:
    ranks = [stream(rank=rank, size=2) for rank in range(2)]
    drawn = [[one for _ in range(50) for one in next(each).ids or ()] for each in ranks]
    assert [{one % 2 for one in each} for each in drawn] == [{0}, {1}]
    assert all(17 < len(each) / 50 < 23 for each in drawn)


def test_a_batch_of_nobody_has_data_and_no_samples() -> None:
    one = stream(4, 1)
    fetched = [next(one) for _ in range(60)]
    empty = [step for step in fetched if not step.ids]
    assert empty
    assert all(len(step.data[0]) == 1 for step in empty)
