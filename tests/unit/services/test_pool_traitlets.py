"""Pools in the master's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from traitlets.config import Config

from detlab.errors import DetlabError
from detlab_hub.app import DetHub
from detlab_hub.core.scheduling import Scheduler


def hub(folder: Path, **traits: object) -> DetHub:
    return DetHub(config=Config({"DetHub": {"state_dir": str(folder), **traits}}))


def test_the_pools_of_the_configuration_are_the_services_own(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    settings = hub(
        tmp_path, pools={"gpu": {"scheduler": "fair_share"}}, default_compute_pool="gpu", preemptions_per_hour=2
    ).settings()
    assert settings.pools.by_name["gpu"].rules.scheduler is Scheduler.FAIR_SHARE
    assert (settings.pools.named("", 1), settings.pools.named("", 0)) == ("gpu", "default")
    assert settings.preemptions_per_hour == 2


def test_all_mistakes_of_the_pools_are_said_before_anything_is_made(tmp_path: Path) -> None:
    wrong = hub(tmp_path, pools={"gpu": {"scheduler": "fifo", "fit": 1}}, default_zero_slot_pool="aux")
    with pytest.raises(DetlabError) as caught:
        wrong.settings()
    for word in ("fifo", "'fit'", "there is no pool 'aux'"):
        assert word in caught.value.message
