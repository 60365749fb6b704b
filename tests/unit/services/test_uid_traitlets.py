"""Uids in the master's configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traitlets.config import Config

from detlab.errors import DetlabError
from detlab.launch.host.identity import DEFAULT_RANGE
from detlab_hub.app import DetHub


def hub(folder: Path, **traits: object) -> DetHub:
    (folder / "db").mkdir(exist_ok=True)
    return DetHub(config=Config({"DetHub": {"state_dir": str(folder), **traits}}))


def test_by_default_uids_come_from_a_range_without_accounts(tmp_path: Path) -> None:
    policy = hub(tmp_path).settings().uids
    assert (policy.range, policy.mapped, policy.given) == (DEFAULT_RANGE, {}, {})
    assert policy.taken(0)
    assert not policy.taken(DEFAULT_RANGE[1])


def test_a_map_of_a_file_and_one_of_the_configuration_are_one(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    file.write_text(json.dumps({"ada": 1005, "ben": 1006}))
    settings = hub(tmp_path, user_map_file=str(file), user_map={"ben": 1007, "carol": 1008}).settings()
    assert settings.uids.mapped == {"ada": 1005, "ben": 1007, "carol": 1008}


def test_a_map_that_an_earlier_version_kept_in_the_state_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text(json.dumps({"ada": 20_000}))
    assert hub(tmp_path).settings().uids.given == {"ada": 20_000}


@pytest.mark.parametrize(
    ("traits", "told"),
    [
        ({"uid_range": "20000"}, "not a range of uids"),
        ({"uid_range": "0-100"}, "which is root"),
        ({"user_map": {"ada": 0}}, "never run as root"),
        ({"user_map": {"ada": 1005, "ben": 1005}}, "have the same uid 1005"),
    ],
)
def test_mistakes_are_said_before_anything_starts(tmp_path: Path, traits: dict[str, object], told: str) -> None:
    with pytest.raises(DetlabError, match=told) as error:
        hub(tmp_path, **traits).settings()
    assert "c.DetHub" in (error.value.hint or "")


def test_a_damaged_file_of_an_earlier_version_stops_the_master(tmp_path: Path) -> None:
    """Whose files are whose would else be guessed."""
    (tmp_path / "users.json").write_text("{")
    with pytest.raises(DetlabError, match="damaged"):
        hub(tmp_path).settings()


def test_limits_of_agents_can_be_set(tmp_path: Path) -> None:
    settings = hub(tmp_path, agent_slots_limit=4, agent_zero_slot_tasks_limit=5000).settings()
    assert (settings.agent_slots_limit, settings.agent_zero_slot_tasks_limit) == (4, 5000)
