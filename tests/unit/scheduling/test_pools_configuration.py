"""The operator's pools: read once, every mistake said at once."""

from __future__ import annotations

from typing import Any

import pytest

from detlab_hub.core.scheduling import Fitting, Pool, Scheduler, read_pools


def test_no_configuration_is_one_pool() -> None:
    pools, mistakes = read_pools({})
    assert mistakes == []
    assert list(pools.by_name) == ["default"]
    assert (pools.named("", 1), pools.named("", 0), pools.named("gpu", 1)) == ("default", "default", "gpu")
    assert pools.of("gpu") is None


def test_everything_of_a_pool_is_read() -> None:
    raw = {
        "gpu": {
            "scheduler": "fair_share",
            "preemption": True,
            "fitting": "worst",
            "heterogeneous": True,
            "description": "the big ones",
            "priority": 7,
            "patience": 60,
            "provider": {"type": "local"},
        },
        "aux": {},
    }
    pools, mistakes = read_pools(raw, "gpu", "aux")
    assert mistakes == []
    gpu = pools.by_name["gpu"]
    assert gpu.rules == Pool(Scheduler.FAIR_SHARE, True, Fitting.WORST, True)
    assert (gpu.description, gpu.priority, gpu.patience, gpu.provider) == ("the big ones", 7, 60.0, {"type": "local"})
    assert (pools.named("", 2), pools.named("", 0)) == ("gpu", "aux")
    assert "default" in pools.by_name


def test_all_mistakes_are_said_at_once() -> None:
    raw: dict[str, Any] = {
        "a/b": {},
        "gpu": {"scheduler": "fifo", "preemption": "yes", "priority": 100, "colour": "red", "patience": -1},
        "aux": [],
    }
    _, mistakes = read_pools(raw, "none", "aux")
    assert len(mistakes) == 8
    text = "\n".join(mistakes)
    for word in (
        "a/b",
        "fifo",
        "'yes'",
        "100",
        "colour",
        "-1",
        "'aux'",
        "default_compute_pool: there is no pool 'none'",
    ):
        assert word in text


@pytest.mark.parametrize("value", [True, "1", 0, 1.5, None])
def test_a_priority_is_a_whole_number(value: object) -> None:
    assert read_pools({"p": {"priority": value}})[1]
