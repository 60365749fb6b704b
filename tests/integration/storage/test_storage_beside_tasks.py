"""Object stores outside of tasks: `det config check --storage` asks them, and what killed processes left here goes."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from detlab.cli.commands.config import config
from detlab.storage import from_config
from testbed.objectstores.servers import ObjectServer

COMPLETE = {"name": "a", "entrypoint": "python3 a.py", "searcher": {"name": "single", "metric": "loss"}}


def checked(folder: Path, block: dict[str, object] | None) -> Result:
    path = folder / "search.yaml"
    path.write_text(yaml.safe_dump(COMPLETE | ({"checkpoint_storage": block} if block else {})))
    return CliRunner().invoke(config, ["check", str(path), "--storage"])


def test_config_check_asks_the_store_in_its_own_words(tmp_path: Path, s3_server: ObjectServer, prefix: str) -> None:
    there = checked(tmp_path, s3_server.block(prefix))
    assert (there.exit_code, there.stdout) == (0, "")
    missing = checked(tmp_path, s3_server.block(prefix, bucket="nobodys"))
    assert missing.exit_code == 2
    assert missing.stdout.startswith("checkpoint_storage: ")
    assert "NoSuchBucket" in missing.stdout
    assert "secret" not in missing.output


@pytest.mark.parametrize(
    ("block", "said"),
    [(None, "the cluster's is used"), ({"type": "shared_fs", "host_path": "/nowhere"}, "a folder on the agents")],
)
def test_config_check_says_what_it_cannot_ask(tmp_path: Path, block: dict[str, object] | None, said: str) -> None:
    done = checked(tmp_path, block)
    assert done.exit_code == 0
    assert said in done.stderr


def test_a_stage_that_a_killed_process_left_on_this_node_is_removed_at_a_later_start(
    s3_server: ObjectServer, prefix: str
) -> None:
    block = s3_server.block(prefix)
    old, young = (uuid.uuid4().hex for _ in range(2))
    for name in (old, young):
        (from_config(block).stage(name) / "model.safetensors").write_bytes(b"x" * 1000)
    (left,) = Path(tempfile.gettempdir()).glob(f"detlab-stages-{os.geteuid()}/*/{old}")
    for path in (left / "model.safetensors", left):
        os.utime(path, (1.0, 1.0))
    assert from_config(block).sweep(7 * 86400.0) == [old]
    assert not left.exists()
    assert (left.parent / young / "model.safetensors").exists()
