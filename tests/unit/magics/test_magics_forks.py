"""`%det_fork` and `%%det_experiment --fork`: a cell with the config of an experiment, and its code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from detlab.client import Client
from detlab.schemas.expconf import resolve
from detlab_magics import actions, forks
from detlab_magics.cells.prepare import read_config
from detlab_magics.kernel import KernelSession
from testbed.fake_master.api import FakeMaster

CONFIG = {
    "name": "first",
    "entrypoint": "python3 train.py --dir ${HOME}",
    "searcher": {"name": "single", "metric": "loss"},
    "data": {"secrets": {"key": "********"}},
}
CODE = "tree:" + "a" * 64


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        running.add_experiment(config=CONFIG, bundle=CODE)
        yield running


@pytest.fixture
def session(master: FakeMaster) -> Iterator[KernelSession]:
    with Client(master.url, master.token) as client:
        yield KernelSession(connected=client)


def test_the_cell_is_the_config_as_it_is(session: KernelSession) -> None:
    first, _, body = forks.cell_of(session, 1).partition("\n")
    assert first == "%%det_experiment --fork 1"
    config, _ = read_config(body, {}, "the cell")
    assert config == CONFIG


def test_texts_that_look_like_numbers_stay_texts(master: FakeMaster, session: KernelSession) -> None:
    """PyYAML wrote `1e-3` without quotes, which a config reads as a number."""
    config = {**CONFIG, "labels": ["1e3", "0o17", "1e-3", "1_000", "on"], "entrypoint": ["python3", "1e-3", "0.5"]}
    master.experiments[1] = master.experiments[1].model_copy(update={"config": config})
    read, _ = read_config(forks.cell_of(session, 1).partition("\n")[2], {}, "the cell")
    assert read == config


def test_what_equals_the_defaults_is_not_in_the_cell(master: FakeMaster, session: KernelSession) -> None:
    """Some hundred lines of defaults hid what the experiment was about."""
    said = {
        "name": "first",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {"metric": "loss", "time_metric": "epoch", "name": "asha", "max_trials": 8, "max_time": 9},
        "resources": {"slots_per_trial": 2},
        "data": {"secrets": {"key": "********"}},
    }
    whole = resolve(said)
    assert len(yaml.safe_dump(whole).splitlines()) > 80
    master.experiments[1] = master.experiments[1].model_copy(update={"config": whole})
    config, _ = read_config(forks.cell_of(session, 1).partition("\n")[2], {}, "the cell")
    assert config == said
    master.experiments[1] = master.experiments[1].model_copy(update={"config": {**whole, "of_another_version": 1}})
    config, _ = read_config(forks.cell_of(session, 1).partition("\n")[2], {}, "the cell")
    assert config["of_another_version"] == 1
    assert "max_restarts" in config, "what cannot be read is left as it is"


def test_a_hostile_name_stays_within_the_cell(master: FakeMaster, session: KernelSession) -> None:
    name = "x\n%%bash\nrm -rf ~\x1b[31m\n!ls ${evil}"
    master.experiments[1] = master.experiments[1].model_copy(update={"config": {**CONFIG, "name": name}})
    body = forks.cell_of(session, 1).partition("\n")[2]
    assert "\x1b" not in body
    assert yaml.safe_load(body.replace("$${", "${"))["name"] == name
    assert read_config(body, {}, "the cell")[0]["name"] == name


def test_it_runs_with_the_code_of_the_experiment_and_says_what_it_is_a_fork_of(
    master: FakeMaster, session: KernelSession, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("mine\n")
    monkeypatch.setattr(actions, "show", lambda *_, **__: None)
    body = forks.cell_of(session, 1).partition("\n")[2].replace("name: first", "name: second")
    made = actions.run(session, actions.CellRequest(body, "cell 1", fork=1), {})
    [sent] = master.submitted
    assert (sent.forked_from, sent.bundle, sent.config["name"]) == (1, CODE, "second")
    assert made is not None
    assert "submitted with the code of experiment 1" in capsys.readouterr().out
    # The same cell again is that experiment; with a folder it is another one, with that code.
    actions.run(session, actions.CellRequest(body, "cell 1", fork=1), {})
    assert len(master.submitted) == 1
    actions.run(session, actions.CellRequest(body, "cell 1", fork=1, context=tmp_path), {})
    assert len(master.submitted) == 2
    assert master.submitted[1].bundle not in (CODE, None)
    assert master.submitted[1].forked_from == 1


def test_how_many_trials_are_asked_for_at_a_time_stays_as_it_was(master: FakeMaster, session: KernelSession) -> None:
    """Of an unmanaged experiment what is left out is one, not the default of other searches."""
    searcher = {"name": "random", "metric": "loss", "max_trials": 40, "max_concurrent_trials": 16}
    whole = resolve({"name": "first", "unmanaged": True, "searcher": searcher})
    master.experiments[1] = master.experiments[1].model_copy(update={"config": whole})
    config, _ = read_config(forks.cell_of(session, 1).partition("\n")[2], {}, "the cell")
    assert config["searcher"] == searcher
