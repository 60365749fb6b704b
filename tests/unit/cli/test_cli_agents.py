"""`det agent` and `det slot` as administrators steer by them, against a scripted master."""

from __future__ import annotations

import re
import time

import pytest

from detlab.cli.commands.agents import words_of
from detlab.cli.output.printing import _widths
from detlab.schemas.wire import AgentView

HOSTILE = "\x1b[31mred\x1b]0;x\x07"


@pytest.fixture(autouse=True)
def node(master) -> None:
    master.add_agent("node1", running=1, pool="gpu")


def test_an_agent_is_drained_and_the_lists_say_so(master, det, det_json) -> None:
    assert det("agent", "drain", "node1").stdout == "Agent node1: draining, 1 task runs\n"
    shown = det("agent", "list").stdout
    assert "connected, draining" in shown
    assert "gpu" in shown, "its pool"
    assert det("agent", "drain", "node1", "--finish", "--deadline", "30m").stdout.startswith(
        "Agent node1: draining, 29m 5"
    )
    assert master.drained == [
        {"trials": "leave", "deadline": None},
        {"trials": "finish", "deadline": 1800.0},
    ]
    (view,) = det_json("agent", "list")
    assert (view["mode"], view["enabled"], view["drain_until"] > time.time()) == ("draining", False, True)
    assert det("agent", "enable", "node1").stdout == "Agent node1: enabled, 1 task runs\n"
    (view,) = det_json("agent", "drain", "node1", "--deadline", "2h")
    assert view["mode"] == "draining"


def test_determineds_disable_drain_is_a_drain_that_lets_trials_finish(master, det) -> None:
    assert "draining" in det("agent", "disable", "--drain", "node1").stdout
    assert master.drained == [{"trials": "finish", "deadline": None}]


@pytest.mark.parametrize("wrong", ["soon", "-5", "0", "never", "30 minutes", "", HOSTILE])
def test_a_deadline_that_is_none_is_refused_and_nothing_is_drained(master, det, wrong) -> None:
    done = det("agent", "drain", "node1", "--deadline", wrong)
    assert done.exit_code == 2
    assert "is not a duration" in done.stderr
    assert "\x1b" not in done.stderr
    assert master.drained == []


def test_slots_are_closed_and_opened(det, det_json) -> None:
    assert det("slot", "disable", "node1", "0", "1").stdout == (
        "Slot 0 of agent node1: disabled\nSlot 1 of agent node1: disabled\n"
    )
    assert det("slot", "list").stdout.count("disabled") == 2
    assert det("slot", "enable", "node1", "1").stdout == "Slot 1 of agent node1: enabled\n"
    told = det_json("slot", "disable", "node1", "1")
    assert [slot["enabled"] for slot in told["slots"]] == [False, False]
    done = det("slot", "disable", "node1", "9")
    assert (done.exit_code, "has no slot 9" in done.stderr) == (1, True)


def test_what_holds_a_closed_slot_is_shown(master, det) -> None:
    slots = master.agents[0].slots
    slots[0] = slots[0].model_copy(update={"allocation_id": "1.abc.1"})
    assert det("slot", "disable", "node1", "0").stdout == "Slot 0 of agent node1: 1.abc.1, then disabled\n"


def test_names_are_offered_at_the_tab_key(det, monkeypatch) -> None:
    monkeypatch.setenv("_DET_COMPLETE", "bash_complete")

    def offered(words: str, cword: int) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(cword))
        return [line.partition(",")[2] for line in det().stdout.splitlines() if line]

    assert offered("det agent drain no", 3) == ["node1"]
    assert offered("det agent drain x", 3) == []
    assert offered("det slot disable node1 ", 4) == ["0", "1"]
    assert offered("det slot enable node2 ", 4) == []
    assert {"enable", "disable", "drain"} <= set(offered("det agent ", 2))


def test_an_older_masters_view_says_what_it_can() -> None:
    old = AgentView.model_validate_json('{"id": "a", "enabled": false}')
    assert words_of(old) == "connected, disabled"
    assert words_of(AgentView(id="a", state="lost", mode="drained", enabled=False)) == "lost, drained"


def test_labels_are_listed_where_an_agent_has_any(master, det) -> None:
    master.add_agent("node1")
    assert "Labels" not in det("agent", "list").stdout
    master.add_agent("node2", labels={"zone": "b", "disk": "nvme"})
    header, *rows = det("agent", "list").stdout.splitlines()
    assert "Labels" in header
    assert [row.split()[0] for row in rows if "disk=nvme, zone=b" in row] == ["node2"]


def test_what_a_cluster_says_of_a_node_is_shown_and_not_that_an_administrator_closed_it(master, det) -> None:
    """A GPU that others used was `disabled`, as if an administrator had done it."""
    slots = master.agents[0].slots
    slots[0] = slots[0].model_copy(update={"enabled": False, "note": "used by others on the cluster"})
    shown = det("slot", "list").stdout
    assert "used by others on the cluster" in shown
    assert "disabled" not in shown

    note = f"cordoned, so it takes no new pods{HOSTILE}"
    shut = [slot.model_copy(update={"enabled": False, "note": note}) for slot in slots]
    master.agents[0] = master.agents[0].model_copy(update={"slots": shut, "note": note})
    listed = det("agent", "list")
    assert "connected, closed" in listed.stdout
    assert "node1: cordoned, so it takes no new podsred\n" in listed.stderr
    shown = det("slot", "list")
    assert shown.stdout.count(" closed") == len(slots)
    assert "node1: cordoned, so it takes no new podsred\n" in shown.stderr, "once, and not for each slot"


WORDS = ("kube/h100-to-come-1", "gpu", "connected", "8", "kubernetes.io/hostname=h1, nvidia.com/gpu.product=A100")
NAMES = ("Agent", "Pool", "State", "Slots", "Labels")


@pytest.mark.parametrize(
    ("room", "kept", "divided"),
    [
        (200, [0, 1, 2, 3, 4], False),
        (100, [0, 1, 2, 3, 4], True),
        (60, [0, 1, 2, 3], False),
        (45, [0, 2, 3], False),
        (20, [0, 2, 3], True),
    ],
)
def test_a_narrow_terminal_leaves_columns_out_and_divides_words_only_where_it_must(room, kept, divided) -> None:
    """Labels of a cluster's nodes made a list in which names were a letter a line."""
    found, widths = _widths(NAMES, [WORDS], room, ("Labels", "Pool"))
    assert found == kept
    natural = [max(len(NAMES[index]), len(WORDS[index])) for index in kept]
    wide = [full if width is None else width for full, width in zip(natural, widths, strict=True)]
    assert (wide != natural) is divided
    if room > 20:
        assert sum(wide) + 3 * (len(wide) - 1) <= room
    assert min(wide) >= 4


def test_columns_that_are_left_out_are_named(master, det, monkeypatch) -> None:
    monkeypatch.setattr("detlab.cli.output.printing.PIPE_WIDTH", 60)
    labels = {"kubernetes.io/hostname": "h" * 60}
    master.agents[0] = master.agents[0].model_copy(update={"labels": labels})
    done = det("agent", "list")
    assert "Labels" not in done.stdout
    assert re.search(r"\d columns left out \(.*Labels.*\): --csv, --json or a wider terminal has them", done.stderr)
