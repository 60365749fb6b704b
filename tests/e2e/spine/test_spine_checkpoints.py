"""I5: a committed checkpoint is complete, and what was damaged since is found out; deleting frees the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from spine_lab import Lab, single

from detlab.client.resources import Checkpoint, Experiment
from detlab.errors import Conflict, DetlabError, NotFound
from testbed.stores import names_in

pytestmark = pytest.mark.hub


@pytest.fixture
def saved(lab: Lab) -> Experiment:
    """An ended experiment with three checkpoints."""
    return lab.completed(lab.submit(single("toy.py", hparams={"steps": 6, "save_every": 2, "pause": 0.01})))


def place(lab: Lab, checkpoint: Checkpoint) -> Path:
    """Where the bytes are."""
    return lab.cluster.folder / "checkpoints" / checkpoint.uuid


def test_i5_a_committed_checkpoint_is_complete_and_its_download_verified(
    lab: Lab, saved: Experiment, tmp_path: Path
) -> None:
    checkpoints = {found.steps_completed: found for found in saved.list_checkpoints()}
    assert sorted(checkpoints) == [2, 4, 6]
    assert checkpoints[6].validation is not None
    for mode in ("direct", "master"):
        target = tmp_path / mode
        got = lab.cluster.det("c", "download", checkpoints[4].uuid, "-o", str(target), "--mode", mode)
        assert got.returncode == 0, got.stderr
        assert (target / "state.json").read_text() == '{"step": 4}'
    best = saved.top_checkpoint()
    assert best.uuid == checkpoints[6].uuid, "the loss falls"


@pytest.mark.parametrize("mode", ["direct", "master"])
def test_i5_a_file_that_was_altered_in_storage_is_reported_and_nothing_is_left_behind(
    lab: Lab, saved: Experiment, tmp_path: Path, mode: str
) -> None:
    checkpoint = saved.list_checkpoints()[0]
    file = place(lab, checkpoint) / "state.json"
    file.write_text(file.read_text().replace("step", "STEP"))
    target = tmp_path / "out"
    got = lab.cluster.det("c", "download", checkpoint.uuid, "-o", str(target), "--mode", mode)
    assert got.returncode != 0
    assert "state.json" in got.stderr
    assert checkpoint.uuid in got.stderr or checkpoint.uuid[:8] in got.stderr
    assert "Traceback" not in got.stderr
    assert not target.exists()
    file.unlink()
    with pytest.raises(DetlabError, match=r"state\.json"):
        checkpoint.download(target, mode)
    assert not target.exists()


def test_i5_what_attempts_left_that_were_killed_while_they_stored_is_no_checkpoint(lab: Lab) -> None:
    experiment = lab.completed(lab.submit(single("dies_storing.py", max_restarts=2)))
    trial = lab.first_trial(experiment)
    assert trial.view.restarts == 2
    checkpoints = {found.steps_completed: found for found in experiment.list_checkpoints()}
    assert sorted(checkpoints) == [1, 2, 3]
    for step, found in checkpoints.items():
        assert (place(lab, found) / "step").read_text() == str(step)
    begun = [line.text.split()[-1] for line in trial.logs(search="STORING")]
    assert len(begun) == 5
    assert {found.uuid for found in checkpoints.values()} < set(begun)
    names = {name for name in names_in(lab.cluster.folder / "checkpoints") if any(uuid in name for uuid in begun)}
    # the stage of one attempt, and what another has stored whole without the master hearing of it, are removed
    assert names == {found.uuid for found in checkpoints.values()}


def test_deleting_an_experiment_frees_the_bytes_and_only_when_it_has_ended(lab: Lab, saved: Experiment) -> None:
    folders = [place(lab, found) for found in saved.list_checkpoints()]
    trial = saved.list_trials()[0].id
    assert all(folder.is_dir() for folder in folders)
    live = lab.submit(single("toy.py", hparams={"steps": 100_000}))
    with pytest.raises(Conflict, match="only one that has ended"):
        live.delete()
    live.kill()
    said = lab.cluster.det("e", "delete", str(saved.id), "--yes")
    assert said.returncode == 0, said.stderr
    assert not any(folder.exists() for folder in folders)
    for gone in (lambda: lab.client.get_experiment(saved.id), lambda: lab.client.get_trial(trial)):
        with pytest.raises(NotFound):
            gone()
    for table, column in (("trials", "experiment_id"), ("checkpoints", "experiment_id"), ("log_chunks", "trial_id")):
        key = trial if column == "trial_id" else saved.id
        assert not lab.rows(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", key), table
    assert not lab.rows("SELECT 1 FROM series WHERE trial_id = ? LIMIT 1", trial)
