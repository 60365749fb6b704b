"""`det quota`, against a scripted master."""

from __future__ import annotations

import pytest

from detlab.cli.commands.shared.quota import limit_text
from detlab.cli.commands.storage.usage import bar
from detlab.schemas.jobwire import QuotaView
from detlab.schemas.wire.storage import StorageUsage, StorageUse, size_text

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


def test_quotas_of_storage(det, det_json, master) -> None:
    (made,) = det_json("quota", "set", "--user", "ada", "--storage", "500GB")
    assert made["storage"] == 500 * 1024**3
    det("quota", "set", "--user", "ada", "--slots", 8)
    det("quota", "set", "--group", "vision", "--storage", "1.5 TiB")
    master.storage_quotas["user", "ada"].used = 3 * 1024**3
    shown = [
        line.split() for line in det("quota", "list").stdout.splitlines() if line.split()[:1] in (["user"], ["group"])
    ]
    assert shown[0][:9] == ["user", "ada", "0", "8", "0", "3.0", "GiB", "500.0", "GiB"]
    assert shown[1][:6] == ["group", "vision", "0", "B", "1.5", "TiB"]
    det("quota", "remove", "--user", "ada", "--storage")
    assert list(master.quotas) == [("user", "ada")]
    assert det_json("quota", "remove", "--user", "ada")[0]["name"] == "vision"
    assert "not a size" in det("quota", "set", "--user", "ada", "--storage", "much").stderr
    assert "at most 1,048,576.0 TiB" in det("quota", "set", "--user", "ada", "--storage", "5000P").stderr


def test_usage_of_storage(det, det_json, master) -> None:
    use = StorageUse(name=HOSTILE, checkpoints=3, checkpoint_bytes=3 * 2**30, used=3 * 2**30, limit=4 * 2**30)
    other = StorageUse(name="bob", checkpoints=1, checkpoint_bytes=2**20, trash_bytes=2**21, used=2**20)
    master.storage_usage["user"] = StorageUsage(
        by="user",
        items=[use, other],
        total=StorageUse(name="total", checkpoints=4),
        more=5,
        warnings=["the \x1b[1mquota"],
    )
    shown = det("storage", "usage")
    assert "\x1b" not in shown.stdout + shown.stderr
    assert "Warning: the quota" in shown.stderr
    assert "5 more are not listed" in shown.stderr
    head, *_, first, second, total = shown.stdout.splitlines()
    assert head.split() == ["User", "Checkpoints", "Size", "Trash", "Quota"], "what is 0 everywhere is left out"
    assert first.endswith("█" * 9 + "░" * 3 + " 75%")
    assert "4.0 GiB" in first
    assert second.split()[:4] == ["bob", "1", "1.0", "MiB"]
    assert total.split()[:2] == ["total", "4"]
    assert det_json("storage", "usage")["more"] == 5
    item = StorageUse(name="digits", experiment_id=12, owner="ada", checkpoints=1, checkpoint_bytes=7, used=7)
    master.storage_usage["experiment"] = StorageUsage(by="experiment", items=[item], total=item)
    assert det("storage", "usage", "--by", "experiment", "--csv").stdout.splitlines() == [
        'ID,Experiment,Checkpoints,Size,"Code, outputs",Trash,Freed,Owner',
        "12,digits,1,7,0,0,0,ada",
    ]
    master.storage_usage["group"] = StorageUsage(by="group", items=[], total=StorageUse(name="total"))
    assert det("storage", "usage", "--by", "group").stdout == "Nothing is stored.\n"
    assert det("storage", "usage", "--by", "planet").exit_code == 2


@pytest.mark.parametrize(
    ("part", "drawn"), [(0.0, "░" * 12), (0.5, "█" * 6 + "░" * 6), (1.0, "█" * 12), (3.0, "█" * 12), (-1.0, "░" * 12)]
)
def test_bars_are_of_one_length(part: float, drawn: str) -> None:
    assert bar(part) == drawn


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "--slots", 3),
        ("set", "--user", "a", "--group", "b", "--slots", 3),
        ("set", "--user", "a"),
        ("set", "--user", "a", "--slots", -1),
        ("set", "--user", "a", "--storage", "-1"),
        ("set", "--user", "a", "--storage", "5 cats"),
        ("remove",),
    ],
)
def test_mistakes_of_quotas(det, master, arguments: tuple[object, ...]) -> None:
    assert det("quota", *arguments).exit_code == 2
    assert master.quotas == {}
    assert master.storage_quotas == {}


def test_a_priority_has_no_unit() -> None:
    shown = [limit_text(*limit) for limit in ((10, "priority"), (1000, "files"), (None, "files"))]
    assert shown == ["10", "1,000 files", "none"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (2**40, "1.0 TiB"),
        (2**60, "1,048,576.0 TiB"),
    ],
)
def test_sizes_as_text(count: float, said: str) -> None:
    assert size_text(count) == said
