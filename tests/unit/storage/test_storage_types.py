"""Types of checkpoint storage: those of detlab, and those that other installed packages bring."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from detlab.schemas.storage_types import STORAGES
from detlab.storage import StorageType

ROOT = Path(__file__).resolve().parents[3]
TAPE = """
from typing import Literal
from pydantic import Field
from detlab.schemas.expconf.blocks.scalars import FilledText, needed
from detlab.schemas.expconf.blocks.storage import StorageBlock
from detlab.storage.posix import PosixStorage
from pathlib import Path

class TapeConfig(StorageBlock):
    type: Literal["tape"] = "tape"
    reel: FilledText | None = needed("Which reel.")
    speed: int = Field(3, ge=1)

class TapeStorage(PosixStorage):
    @classmethod
    def config_model(cls):
        return TapeConfig

    @classmethod
    def from_config(cls, config):
        return cls(Path("/reels") / config["reel"])
"""


@pytest.fixture
def installed(tmp_path: Path):
    """Run code where a package with three entry points is installed."""
    (tmp_path / "tape.py").write_text(TAPE)
    (tmp_path / "broken.py").write_text("import boto17")
    metadata = tmp_path / "detlab_tape-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: detlab-tape\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[detlab.storages]\ntape = tape:TapeStorage\nbroken = broken:Storage\nshared_fs = tape:TapeStorage\n"
    )

    def run(code: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_the_names_of_detlab_itself_are_its_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][STORAGES.group] == STORAGES.built_in
    for name in STORAGES.built_in:
        found = STORAGES.load(name)
        assert isinstance(found, StorageType)
        assert found.config_model().model_fields["type"].default == name


def test_a_type_of_another_package_is_found_and_imported_only_when_it_is_used(installed) -> None:
    assert installed("""
        import sys
        from detlab.storage import from_config
        from detlab.schemas.expconf import check
        from detlab.schemas.storage_types import STORAGES
        print(STORAGES.names())
        from_config({"type": "shared_fs", "host_path": "/a"})
        check({"checkpoint_storage": {"type": "directory", "container_path": "/a"}})
        print("tape" in sys.modules)
        print(from_config({"type": "tape", "reel": "7", "of an older version": 1}).root)
    """) == ["['azure', 'broken', 'directory', 'fsspec', 'gcs', 's3', 'shared_fs', 'tape']", "False", "/reels/7"]


def test_no_package_takes_a_name_of_detlab(installed) -> None:
    code = 'print(type(detlab.storage.from_config({"type": "shared_fs", "host_path": "/a"})).__module__)'
    assert installed("import detlab.storage\n" + code) == ["detlab.storage.posix"]


def test_the_config_is_judged_by_the_model_of_the_installed_type(installed) -> None:
    assert installed("""
        from detlab.schemas.expconf import check, resolve, parse, merge, unsupported_keys
        def errors(block, **how):
            found = check({"checkpoint_storage": block}, **how)
            return sorted(p.path for p in found if p.level == "error" and "storage" in p.path)
        print(errors({"type": "tape", "reel": "7"}))
        print(errors({"type": "tape", "rell": "7", "speed": 0}))
        print(errors({"type": "tape"}, complete=True))
        print(check({"checkpoint_storage": {"type": "tap"}})[0].hint)
        block = {"type": "tape", "reel": "7", "save_trial_best": 2}
        print(resolve({"checkpoint_storage": block})["checkpoint_storage"])
        print([p.path for p in unsupported_keys(parse({"checkpoint_storage": block})) if p.level == "error"])
        template = {"type": "tape", "reel": "8", "speed": 4}
        print(merge({"checkpoint_storage": {"type": "tape"}}, {"checkpoint_storage": template})["checkpoint_storage"])
    """) == [
        "[]",
        "['checkpoint_storage.rell', 'checkpoint_storage.speed']",
        "['checkpoint_storage.reel']",
        "did you mean `tape`?",
        "{'save_experiment_best': 0, 'save_trial_best': 2, 'save_trial_latest': 1, 'type': 'tape', 'reel': '7',"
        " 'speed': 3}",
        "[]",
        "{'type': 'tape', 'reel': '8', 'speed': 4}",
    ]


def test_a_package_that_cannot_be_imported_is_named_with_the_reason(installed) -> None:
    (line,) = installed("""
        from detlab.storage import from_config
        from detlab.errors import StorageError
        try:
            from_config({"type": "broken"})
        except StorageError as error:
            print(str(error).replace(chr(10), " | "))
    """)
    assert "'broken' of detlab-tape (broken:Storage) cannot be loaded: ModuleNotFoundError" in line
    assert "pip install --upgrade detlab-tape" in line
