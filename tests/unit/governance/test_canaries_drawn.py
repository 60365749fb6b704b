"""Canaries as numbers: which are trained on, what their losses show, and bounds that keep what they say (T11)."""

from __future__ import annotations

import math
import random

import pytest

from detlab.governance import GovernanceError, Policy
from detlab.governance.canaries import CanaryLosses, canary_report, commitment, draw, leaks, needs, rank
from detlab.schemas.expconf import check, errors_of, resolve
from detlab.schemas.expconf.blocks.governance import CanariesConfig
from detlab.schemas.expconf.canary_bounds import (
    area,
    area_lower_bound,
    at_least,
    confidence_of_one,
    share_lower_bound,
    smallest_shown,
)

POLICY = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
    "canaries": {"sources": "web", "count": 200},
    "constraints": {"memorization_auc_lcb": {"max": 0.65}},
}
CONFIG = {
    "name": "t",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 4},
    "governance": POLICY,
}


def config_with(**canaries):
    return {**CONFIG, "governance": {**POLICY, "canaries": {**POLICY["canaries"], **canaries}}}


def said(raw) -> str:
    return "\n".join(str(one) for one in errors_of(check(raw)))


# --- bounds


def test_the_area_counts_pairs_with_ties_as_halves_and_not_a_number_as_the_worst_loss():
    assert area([1, 2], [3, 4]) == 1
    assert area([1, 3], [2, 3]) == (1 + 1 + 0 + 0.5) / 4
    assert area([math.nan], [math.nan]) == 0.5
    assert area([math.nan], [1.0]) == 0


@pytest.mark.parametrize(("true", "each"), [(0.65, 100), (0.65, 25), (0.55, 50)])
def test_at_the_limit_no_more_trials_are_stopped_than_the_confidence_allows(true, each):
    """T11: 1000 simulated trials whose area is the limit itself, four looks each."""
    rng = random.Random(each)
    shift = 2 * (true - 0.5)  # a share of the canaries is known by heart, the others not at all
    stopped, looks = 0, 4
    confidence = confidence_of_one(0.95, looks)
    for _ in range(1000):
        found = []
        for _ in range(looks):
            planted = [rng.gauss(0, 1) - 10 * (rng.random() < shift) for _ in range(each)]
            found.append(area(planted, [rng.gauss(0, 1) for _ in range(each)]))
        stopped += max(area_lower_bound(one, each, each, confidence) for one in found) > true
    assert stopped <= 50 + 2 * math.sqrt(1000 * 0.05 * 0.95)


def test_a_trial_that_memorises_is_stopped():
    confidence = confidence_of_one(0.95, 4)
    assert area_lower_bound(0.8, 100, 100, confidence) > 0.65
    assert area_lower_bound(0.99, 100, 100, confidence) > 0.9
    assert area_lower_bound(1.0, 5, 5, confidence) < 0.9  # few canaries never show certainty
    assert area_lower_bound(0.4, 100, 100, confidence) < 0.4


def test_the_bound_of_a_share_is_that_of_clopper_and_pearson():
    assert share_lower_bound(0, 10, 0.95) == 0
    assert share_lower_bound(10, 10, 0.95) == pytest.approx(0.05 ** (1 / 10))
    assert share_lower_bound(3, 10, 0.95) == pytest.approx(0.0872645, abs=1e-6)
    assert at_least(2, 3, 0.5) == pytest.approx(0.5)


def test_fewer_canaries_show_less():
    shown = [smallest_shown(0.65, count, 0.95, 4) for count in (20, 100, 1000)]
    assert shown == sorted(shown, reverse=True)
    assert smallest_shown(1.0, 100, 0.95, 1) == math.inf


# --- the draw


def test_a_secret_halves_the_canaries_and_nothing_else_says_how():
    config, indices = CanariesConfig(sources=["web"], count=20), range(100, 1100)
    one, again, other = (draw(secret, "web", indices, config) for secret in (b"a" * 32, b"a" * 32, b"b" * 32))
    assert one == again
    assert one != other
    assert len(one.planted) == len(one.held_out) == len(one.fillers) == 10
    places = {*one.planted, *one.held_out}
    assert len(places) == 20
    assert not places & set(one.fillers)
    assert all(at in indices for at in (*places, *one.fillers))
    assert commitment(b"a" * 32) != commitment(b"b" * 32)


def test_the_draw_does_not_change_with_a_version():
    drawn = draw(b"k" * 32, "web", range(1000), CanariesConfig(sources=["web"], count=4))
    assert (drawn.planted, drawn.held_out, drawn.fillers) == ((620, 990), (813, 965), (673, 207))


@pytest.mark.parametrize(
    ("have", "count", "message"),
    [(0, 10, "no sample of 'web'"), (50, 10, "20.0% of the 50 samples of 'web'"), (10, 10, "smaller count")],
)
def test_a_source_without_samples_enough_is_refused(have, count, message):
    with pytest.raises(GovernanceError, match=message) as refused:
        draw(b"a" * 32, "web", range(have), CanariesConfig(sources=["web"], count=count))
    assert refused.value.code == "governance.canary"


# --- what is reported


def test_the_worst_source_counts_and_confidence_is_shared():
    config = CanariesConfig(sources=["a", "b"], count=8, looks=2)
    quiet = CanaryLosses("a", [1, 2, 3, 4], [1, 2, 3, 4])
    loud = CanaryLosses("b", [1, 1, 1, 1], [2, 2, 2, 2])
    report = canary_report([quiet, loud], config, "sha256:0")
    assert report["gov/canary_auc"] == 1
    assert report["gov/canaries"]["sources"]["a"]["auc"] == 0.5
    assert report["gov/canaries"]["confidence_each"] == pytest.approx(1 - 0.05 / 4)
    assert "gov/extraction" not in report


def test_extraction_is_the_share_of_planted_continuations_that_rank_first_and_no_function_of_the_area():
    config = CanariesConfig(sources=["a"], count=8)
    known = CanaryLosses("a", [1.0] * 4, [1.0] * 4, [1, 1, 1, 4], [2, 3, 4, 1], variants=4, sequences=True)
    report = canary_report([known], config, "sha256:0")
    assert report["gov/canary_auc"] == 0.5
    assert report["gov/extraction"] == 0.75
    assert 0 < report["gov/extraction_lcb"] < 0.75
    assert report["gov/canaries"]["sources"]["a"]["exposure"] == pytest.approx((2 + 2 + 2 + 0) / 4)
    assert rank(1.0, [1.0, 2.0, math.nan]) == 2
    assert rank(math.nan, [1.0]) == 2


def test_held_out_canaries_that_are_known_have_leaked():
    ranks = [1] * 20
    found = CanaryLosses("web", [1.0] * 20, [1.0] * 20, ranks, ranks, variants=10)
    assert [one.code for one in leaks([found])] == ["CANARY"]
    by_chance = CanaryLosses("web", [1.0] * 20, [1.0] * 20, ranks, [1, 1, *([5] * 18)], variants=10)
    assert leaks([by_chance]) == []


def test_extraction_is_not_bounded_where_there_are_no_sequences():
    labels = CanaryLosses("web", [1.0], [1.0], [1], [2], variants=3)
    assert needs({"extraction_lcb": (None, 0.1)}, [labels])[0].code == "CANARY"
    assert needs({}, [labels]) == []


# --- the text of a policy


def test_a_policy_with_canaries_is_a_policy_and_its_hash_says_so():
    policy = Policy.of(POLICY)
    assert policy.canaries is not None
    assert policy.canaries.sources == ["web"]
    without = {key: value for key, value in POLICY.items() if key not in ("canaries", "constraints")}
    assert Policy.of({**without, "canaries": None}).policy_hash == Policy.of(without).policy_hash != policy.policy_hash


@pytest.mark.parametrize(
    ("canaries", "message"),
    [
        ({"seed": 3}, "would let code that reads the config know"),
        ({"sources": "wbe"}, "no source is called 'wbe'"),
        ({"sources": ["web", "web"]}, "is there twice"),
        ({"count": 20}, "are too few"),
        ({"count": 4}, "none would show"),
        ({"count": 2}, "count"),
    ],
)
def test_canaries_that_cannot_work_are_refused_at_submit(canaries, message):
    assert message in said(config_with(**canaries))


def test_a_bound_without_canaries_or_beside_what_can_be_is_refused():
    without = {key: value for key, value in POLICY.items() if key != "canaries"}
    assert "is measured by canaries, and there are none" in said({**CONFIG, "governance": without})
    low = {**POLICY, "constraints": {"memorization_auc_lcb": {"max": 0.4}}}
    assert "must be from 0.5" in said({**CONFIG, "governance": low})
    other = {**CONFIG["searcher"], "constraints": {"gov/canary_auc_lcb": {"max": 0.9}}}
    assert "differs from governance.constraints" in said({**CONFIG, "searcher": other})


def test_the_search_is_told_the_bounds_and_again_changes_nothing():
    config = resolve(CONFIG)
    assert config["searcher"]["constraints"] == {"gov/canary_auc_lcb": {"max": 0.65}}
    (stop,) = config["stopping"]
    assert (stop["name"], stop["metric"], stop["upper"]) == ("threshold", "gov/canary_auc_lcb", 0.65)
    assert config["searcher"]["confirm"] is True
    assert resolve(config) == config


def test_one_trial_alone_is_stopped_and_confirmed_by_none():
    single = {"name": "single", "metric": "loss"}
    config = resolve({**CONFIG, "searcher": single})
    assert config["stopping"]
    assert "confirm" not in config["searcher"]


def test_a_threshold_of_a_metric_that_reports_need_not_carry_is_refused():
    stopping = [{"name": "threshold", "metric": "gov/other", "upper": 1}]
    assert "'gov/other' is no metric of the search" in said({**CONFIG, "stopping": stopping})
