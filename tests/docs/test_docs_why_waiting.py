"""The page on waiting jobs: every reason is in it, and its commands do what it says on a cluster."""

from __future__ import annotations

import json
import re
import shlex
import time

import pytest
from docs_snippets import DOCS, blocks

from detlab_hub.core.scheduling import ReasonCode
from testbed.cluster import Cluster

PAGE = DOCS / "how-to" / "why-is-my-job-waiting.md"


def test_every_reason_has_its_line() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told == {code.value for code in ReasonCode} | {"starting", "draining", "copy", "batch_system"}


def det(cluster: Cluster, *words: str) -> str:
    done = cluster.det(*words)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def ask(cluster: Cluster, *words: str) -> str:
    made = json.loads(det(cluster, "cmd", "run", "--detach", "--json", *words, "--", "sleep", "600"))
    return str(made["id"])


@pytest.mark.soak
@pytest.mark.hub
def test_the_commands_of_the_page(docs_cluster: Cluster) -> None:
    """A command holds one of two slots, one of two slots waits, a third stands behind it."""
    holds = ask(docs_cluster)
    started = time.monotonic() + 60
    while json.loads(det(docs_cluster, "task", "describe", holds, "--json"))["display_state"] != "RUNNING":
        assert time.monotonic() < started
        time.sleep(0.5)
    seven, eight = ask(docs_cluster, "--slots", "2"), ask(docs_cluster, "--slots", "2")
    try:
        told = {}
        for block in blocks(PAGE, "sh"):
            for line in block.text.splitlines():
                words = shlex.split(line.replace(" 7.", f" {seven}.").replace(" 8.", f" {eight}."))
                if words[1] == "job":
                    words = [{"7": seven, "8": eight}.get(word, word) for word in words]
                if "--trial" not in words:  # nothing of this page runs trials
                    told[line] = det(docs_cluster, *words[1:])
        why = told["det job why 7"]
        assert "needs 2 slots: 1 of 2 free" in why
        assert "→ would start now with 1 slot" in why
        assert re.search(r"^reason +no_free_slots$", why, re.MULTILINE)
        assert "priority 10" in told["det job update 7 --priority 10"]
        assert "Held" in told["det quota set --user ada --slots 8"]
        assert "vision" in told["det quota remove --user ada"]
    finally:
        docs_cluster.det("quota", "remove", "--group", "vision")
        for task in (eight, seven, holds):
            det(docs_cluster, "task", "kill", task)
