"""The arithmetic of rules, the index by which they are found, and what receivers of webhooks get."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.alerts import AlertRule, AlertSubject, RuleIndex, RuleMark, RuleScope, judge
from detlab_hub.core.alerts.payloads import render, signed

VALUES = st.floats(allow_nan=True, allow_infinity=True)


def run(kind: str, amount: float, values: list[float], *, smaller: bool = True) -> list[int]:
    """Return the places of the values at which a rule tells."""
    mark, told = RuleMark(), []
    for place, value in enumerate(values):
        found = judge(kind, amount, mark, value, smaller_is_better=smaller)
        mark = found.mark
        if found.text:
            told.append(place)
    return told


@pytest.mark.parametrize(
    ("values", "smaller", "told"),
    [
        ([1.0, 0.995, 0.99, 0.98], True, [2, 3]),
        ([1.0, 1.005, 1.02], False, [2]),
        ([-1.0, -1.02], True, [1]),
        ([0.0, -1e-9], True, [1]),
        ([math.nan, 1.0, math.inf, 0.5], True, [3]),
        ([1.0, 1.0, 1.0], True, []),
        ([math.inf, 1.0], True, []),
    ],
)
def test_an_improvement_counts_from_the_last_one_told(values, smaller, told) -> None:
    assert run("improved", 1.0, values, smaller=smaller) == told


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0, 1.0, 1.0, 1.0], [2]),
        ([1.0, 2.0, 0.5, 2.0, 2.0], [4]),
        ([math.nan, math.nan, math.nan], [1]),
        ([3.0, 2.0, 1.0], []),
    ],
)
def test_a_plateau_is_told_once_until_something_is_better(values, told) -> None:
    assert run("plateau", 2, values) == told


@given(st.lists(VALUES, max_size=50), st.floats(0.01, 100), st.booleans())
def test_what_is_told_is_always_better_than_what_was_told_before(values, percent, smaller) -> None:
    sign = -1.0 if smaller else 1.0
    told = [values[place] for place in run("improved", percent, values, smaller=smaller)]
    assert all(math.isfinite(value) for value in told)
    assert all(sign * later > sign * before for before, later in pairwise(told))


def naive(rules: list[AlertRule], kind: str, one: AlertSubject) -> set[int]:
    keys = {
        RuleScope.OWNER: one.owner,
        RuleScope.EXPERIMENT: one.experiment_id,
        RuleScope.PROJECT: one.project_id,
        RuleScope.WORKSPACE: one.workspace_id,
    }
    return {
        rule.id
        for rule in rules
        if rule.kind == kind and keys[rule.scope] == (rule.owner if rule.scope is RuleScope.OWNER else rule.key)
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_index_finds_what_a_look_at_all_rules_finds(seed) -> None:
    draw = random.Random(seed)
    kinds, owners = ["completed", "failed", "improved"], ["ada", "ben", "cy"]
    rules = [
        AlertRule(
            number, draw.choice(owners), draw.choice(kinds), 1.0, draw.choice(list(RuleScope)), draw.randint(1, 4)
        )
        for number in range(60)
    ]
    index = RuleIndex(rules)
    for number in range(1, 5):
        place, project = draw.choice([None, 1, 2]), draw.choice([None, 3, 4])
        one = AlertSubject(number, draw.choice(owners), project, place)
        for kind in kinds:
            found = [rule.id for rule in index.matching(kind, one)]
            assert len(found) == len(set(found))
            assert set(found) == naive(rules, kind, one)


TOLD = {
    "kind": "alert",
    "level": "warn",
    "title": "<!channel> a|b",
    "text": "line\n<https://evil.example|x>\ud800",
    "experiment": None,
    "trial_id": 3,
    "run_id": None,
}


@pytest.mark.parametrize("form", ["default", "slack", "teams", "apprise"])
def test_each_form_is_json_of_bounded_length(form) -> None:
    long = {**TOLD, "title": "t" * 5000, "text": "x" * 50_000}
    for told in (TOLD, long):
        body = render(form, "1", 5.0, told, "https://hub.example/experiments/3")
        assert json.loads(body)
        assert form == "default" or len(body) < 20_000


@pytest.mark.parametrize(
    ("kind", "level", "said"),
    [
        ("completed", "info", "success"),
        ("failed", "error", "failure"),
        ("alert", "warn", "warning"),
        ("waiting", "info", "info"),
    ],
)
def test_apprise_gets_plain_text_and_a_type_of_its_own(kind, level, said) -> None:
    told = {**TOLD, "kind": kind, "level": level}
    body = json.loads(render("apprise", "1", 5.0, told, "https://hub.example/x"))
    assert (body["type"], body["format"], body["title"]) == (said, "text", "<!channel> a|b")
    assert body["body"].splitlines()[-1] == "https://hub.example/x"
    assert json.loads(render("apprise", "1", 5.0, {**told, "text": "", "title": ""}))["body"] == "-"


def test_slack_gets_no_markup_of_others() -> None:
    body = json.loads(render("slack", "1", 5.0, TOLD, "https://hub.example/x"))
    head = body["blocks"][0]["text"]["text"]
    assert head == "<https://hub.example/x|&lt;!channel&gt; a/b>"
    assert body["blocks"][1]["text"]["type"] == "plain_text"


def test_determined_receivers_can_check_the_signature() -> None:
    body = render("default", "17", 5.5, {**TOLD, "kind": "completed", "experiment": {"id": 1, "state": "COMPLETED"}})
    said = json.loads(body)
    assert (said["event_id"], said["event_type"], said["timestamp"]) == ("17", "EXPERIMENT_STATE_CHANGE", 5)
    headers = signed("secret", 9, body)
    wanted = hmac.new(b"secret", b"9," + body, hashlib.sha256).hexdigest()
    assert headers == {"X-Determined-AI-Signature-Timestamp": "9", "X-Determined-AI-Signature": wanted}
