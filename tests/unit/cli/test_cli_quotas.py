"""`det quota`, against a scripted master."""

from __future__ import annotations

import pytest

from detlab.cli.commands.quota import limit_text
from detlab.schemas.jobwire import QuotaView

HOSTILE = "\x1b[31mred\x1b]0;x\x07"


def test_quotas(det, det_json, master) -> None:
    assert det("quota", "list").stdout == "No quotas.\n"
    assert det("quota", "set", "--user", HOSTILE, "--slots", 8).exit_code == 0
    assert "\x1b" not in det("quota", "list").stdout
    assert [one["slots"] for one in det_json("quota", "set", "--group", "vision", "--slots", 0)] == [8, 0]
    master.quotas["group", "vision"] = QuotaView(kind="group", name="vision", slots=4, held=6, waiting=2)
    assert det("quota", "ls").stdout.splitlines()[-1].split()[:5] == ["group", "vision", "6", "4", "2"]
    assert [one["name"] for one in det_json("quota", "remove", "--user", HOSTILE)] == ["vision"]
    assert "has no quota" in det("quota", "remove", "--user", "bob").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "--slots", 3),
        ("set", "--user", "a", "--group", "b", "--slots", 3),
        ("set", "--user", "a"),
        ("set", "--user", "a", "--slots", -1),
        ("remove",),
    ],
)
def test_mistakes_of_quotas(det, master, arguments: tuple[object, ...]) -> None:
    assert det("quota", *arguments).exit_code == 2
    assert master.quotas == {}


def test_a_priority_has_no_unit() -> None:
    shown = [limit_text(*limit) for limit in ((10, "priority"), (1000, "files"), (None, "files"))]
    assert shown == ["10", "1,000 files", "none"]
