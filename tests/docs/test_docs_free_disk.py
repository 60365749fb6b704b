"""The page on freeing disk: its commands do what it says, in a cluster; a task of the owner removes the bytes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from docs_snippets import DOCS, blocks

from detlab.schemas.wire.storage import PinKind
from testbed.cluster import Cluster
from testbed.waiting import until

PAGE = DOCS / "how-to" / "free-disk-safely.md"
TRAIN = """
import detlab as det

with det.core.init() as core:
    (core.train.get_tensorboard_path() / "events.out.tfevents.1").write_bytes(b"x" * 100)
    for step, loss in enumerate((0.5, 0.1, 0.3, 0.4), 1):
        core.train.report_validation_metrics(step, {"loss": loss})
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "weights").write_bytes(b"x" * 1000)
"""


def test_each_kind_of_pin_has_its_line() -> None:
    rows = re.findall(r"^\| (an? .+?) \|", PAGE.read_text(encoding="utf-8").partition("*pinned*")[2], re.MULTILINE)
    assert len(rows) == len(PinKind.__args__) - 1, "parents of trials are with what trials resume from"


def det(cluster: Cluster, *words: str) -> str:
    done = cluster.det(*words)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def ended(cluster: Cluster, folder: Path) -> int:
    """An experiment that has saved four times, with the page's numbers."""
    (storage,) = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
    (folder / "train.py").write_text(TRAIN)
    config = {
        "name": "free disk",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
        **storage,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    made = json.loads(det(cluster, "e", "create", str(folder / "config.yaml"), str(folder), "--json"))
    number = int(made["experiment"]["id"])
    det(cluster, "e", "wait", str(number))
    return number


def saved(cluster: Cluster, number: int) -> dict[int, dict[str, object]]:
    found = json.loads(det(cluster, "c", "list", str(number), "--json"))
    return {one["steps_completed"]: one for one in found}


@pytest.mark.soak
@pytest.mark.hub
def test_the_commands_of_the_page(docs_cluster: Cluster, tmp_path: Path) -> None:
    number = ended(docs_cluster, tmp_path)
    uuid = {step: str(one["uuid"]) for step, one in saved(docs_cluster, number).items()}
    told: dict[str, str] = {}

    def run(line: str) -> str:
        words = shlex.split(line.replace(" 7", f" {number}", 1).replace("UUID", uuid[1]))
        told[line] = det(docs_cluster, *words[1:])
        return told[line]

    def there() -> set[int]:
        return {step for step, one in uuid.items() if (docs_cluster.folder / "checkpoints" / one).is_dir()}

    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    look, try_out, change, now, bookmark, unbookmark, undelete, delete, purge, empty, look_at_all, *lines = lines
    events, whole, check, repair = lines
    assert ": 1 checkpoint (" in run(look), "the page's numbers keep the three best"
    assert ": 3 checkpoints (" in run(try_out)
    assert len([one for one in saved(docs_cluster, number).values() if one["state"] == "COMPLETED"]) == 4
    assert "bookmarked" in run(bookmark)
    assert ": 2 checkpoints (" in run(change)
    left = {step for step, one in saved(docs_cluster, number).items() if one["state"] == "COMPLETED"}
    assert left == {1, 2}
    run(now)
    refused = docs_cluster.det("c", "delete", uuid[1], "--yes")
    assert "has bookmarked it: figure 3 of the paper" in refused.stderr
    run(unbookmark)
    run(purge)
    until(lambda: 1 not in there(), "the task has not removed the first checkpoint")
    assert there() == {2, 3, 4}, "what is in the trash stays"
    uuid[1] = uuid[3]
    run(undelete)
    assert saved(docs_cluster, number)[3]["state"] == "COMPLETED"
    run(delete)
    assert there() == {2, 4}
    names = [one["name"] for one in json.loads(det(docs_cluster, "task", "list", "--all", "--json"))]
    assert f"gc of experiment {number}" in names
    docs_cluster.det("c", "delete", uuid[2], "--yes")
    assert "2 checkpoints (2.0 KiB) in the trash" in run(look_at_all)
    assert "are being removed" in run(empty)
    until(lambda: not there(), "the task has not emptied the trash")
    assert run(check).endswith("  in order\n")
    assert "removed           0, 0 B\n" in run(repair)
    (stored,) = (docs_cluster.folder / "checkpoints").glob(f"tensorboard-*-{number}-*")
    assert run(events) == f"Event files of experiment {number}: gone\n"
    assert not stored.exists()
    assert run(whole) == f"Deleted experiment {number}\n"
