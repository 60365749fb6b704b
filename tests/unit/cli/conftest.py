"""`det` in this process, against a fake master."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detlab.cli.root import det as command
from testbed.fake_master.api import FakeMaster

CONFIG = """\
name: digits
entrypoint: python3 train.py
searcher: {name: random, metric: val_loss, max_trials: 2}
hyperparameters: {lr: {type: double, minval: 0.1, maxval: 1.0}}
"""


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        yield running


@pytest.fixture
def comes_up(master: FakeMaster) -> None:
    """Let each new task run at once."""
    master.on_create = lambda view: master.bring_up(view.id)


@pytest.fixture(autouse=True)
def workplace(master: FakeMaster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a config and code, whose environment names the fake master."""
    monkeypatch.chdir(tmp_path)
    for name in ("JUPYTERHUB_API_TOKEN", "DET_DEBUG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DET_URL", master.url)
    monkeypatch.setenv("DET_TOKEN", master.token)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg-state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg-config"))
    (tmp_path / "search.yaml").write_text(CONFIG)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    return tmp_path


@pytest.fixture
def det() -> Callable[..., Result]:
    """Run `det` with words; standard output and error are apart in the result."""

    def run(*words: object, input: str | None = None) -> Result:  # noqa: A002  (click's name for it)
        return CliRunner().invoke(command, [str(word) for word in words], input=input)

    return run


@pytest.fixture
def det_json(det: Callable[..., Result]) -> Callable[..., Any]:
    """Run `det … --json`, which must succeed and print nothing else; return the value."""

    def run(*words: object) -> Any:
        result = det(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    return run
