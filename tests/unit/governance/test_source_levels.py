"""A checkpoint has no level: each source has its own, and a text that names one says what it does not promise."""

from __future__ import annotations

import pytest

from detlab.governance import Policy, TrainedParameter, compile_policy
from detlab.governance.ledger import MatrixRecord
from detlab.governance.levels import SAID, level_lines, source_levels

PARAMETERS = [TrainedParameter(name, (2,)) for name in ("body.w", "head.w", "adapter.w")]
OPEN = {"source": "*", "layers": ".*", "scale": 1.0}
OWN = [
    {"source": "*", "layers": "adapter", "scale": 0.0},
    {"source": "partner", "layers": ".*", "scale": 0.0},
    {"source": "partner", "layers": "adapter", "scale": 1.0, "level": "isolated"},
]


def matrix(*rules: dict[str, object], **more: object) -> MatrixRecord:
    sources = [{"name": "partner"}, {"name": "trusted"}, {"name": "web"}]
    return compile_policy(
        Policy.of({"version": 1, "sources": sources, "rules": list(rules), **more}), PARAMETERS
    ).matrix


APART, WEB_CLOSED = matrix(OPEN, *OWN), matrix(OPEN, *OWN, {"source": "web", "layers": ".*", "scale": 0.0})
TOGETHER = matrix(OPEN)
PRIVATE = MatrixRecord.of({**TOGETHER.body(), "levels": [["dp"] * 3] * 3})
TAINT = {"partner": [APART.s_hash], "trusted": [APART.s_hash], "web": [WEB_CLOSED.s_hash]}


def levels(taint: dict[str, list[str]], *matrices: MatrixRecord) -> dict[str, str]:
    return source_levels(taint, {one.s_hash: one for one in matrices})


def test_one_isolated_source_makes_no_other_isolated_and_no_closed_one_anything() -> None:
    assert levels(TAINT, APART, WEB_CLOSED) == {"partner": "isolated", "trusted": "direct"}
    assert [one.level("partner") for one in (APART, TOGETHER, PRIVATE)] == ["isolated", "direct", "dp"]
    assert WEB_CLOSED.level("web") == ""


@pytest.mark.parametrize("other", ["partner", "web"])
def test_what_was_ever_trained_together_is_direct_whatever_the_last_policy_says(other: str) -> None:
    taint = {**TAINT, other: sorted([APART.s_hash, TOGETHER.s_hash])}
    assert levels(taint, APART, WEB_CLOSED, TOGETHER)["partner"] == "direct"


def test_dp_is_of_a_whole_training_and_ends_with_one_that_has_no_noise() -> None:
    assert levels({"web": [PRIVATE.s_hash], "": [PRIVATE.s_hash]}, PRIVATE)["web"] == "dp"
    assert levels({"web": [PRIVATE.s_hash, TOGETHER.s_hash]}, PRIVATE, TOGETHER) == {"web": "direct"}


def test_a_matrix_that_is_not_recorded_promises_nothing() -> None:
    assert levels({"web": ["sha256:gone"], "trusted": [TOGETHER.s_hash]}, TOGETHER)["web"] == "unknown"


def test_each_level_that_is_named_says_what_it_does_not_promise() -> None:
    assert list(level_lines(["isolated", "direct", "", "direct"])) == ["direct", "isolated"]
    assert all("not promised: " in said or "nothing is promised" in said for said in SAID.values())
