"""Artifacts of a run: copied to its folder when they are logged, sent once, and never the end of a training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from track_doubles import GONE, KeptMaster

from detlab.client.artifacts.draft import Artifact
from detlab.errors import ConfigError, DetlabError, Forbidden, NotFound, Unavailable
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView
from detlab.track.artifacts import ArtifactLost, keep_use, kept_in
from detlab.track.sending import RunDelivery, sync_folder
from detlab.track.this_run import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "deep" / "b.txt").write_text("two")
    return folder


def folder_of(run: Run) -> Any:
    assert run.folder is not None
    return run.folder


def test_a_folder_is_copied_when_it_is_logged_and_sent_once(
    make_run: Callable[..., Run], kept_master: KeptMaster, data: Path
) -> None:
    run = make_run()
    run.log({"loss": 1.0})
    made = run.log_artifact(data, name="data", type="dataset", aliases=["latest", "raw"])
    (data / "a.txt").write_text("changed")
    sync_folder(folder_of(run), kept_master)
    ((name, wanted, contents),) = kept_master.artifacts
    assert (name, wanted.kind, wanted.aliases, wanted.run) == ("data", "dataset", ["raw"], "f" * 32)
    assert contents == {"a.txt": b"one", "deep/b.txt": b"two"}
    (kept,) = kept_in(folder_of(run).path)
    assert kept.settled
    assert not kept.sources(), "the files go when the master has them"
    sync_folder(folder_of(run), kept_master)
    assert len(kept_master.artifacts) == 1
    assert repr(made) == "Artifact('data', 2 files)"


def test_a_use_is_sent_as_one(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    run = make_run()
    run.log({"loss": 1.0})
    keep_use(folder_of(run).path, ArtifactVersionView(artifact_id=7, artifact="cats", kind="dataset", version=3))
    sync_folder(folder_of(run), kept_master)
    assert kept_master.uses == [("f" * 32, 7, 3)]


def test_what_is_refused_for_good_is_not_tried_again_and_the_rest_goes_on(
    make_run: Callable[..., Run], kept_master: KeptMaster, data: Path
) -> None:
    run = make_run()
    made = run.log_artifact(data, name="data")
    run.log({"loss": 1.0})
    kept_master.artifact_answer = NotFound("there is no artifact of that name")
    assert sync_folder(folder_of(run), kept_master).sent == 1
    kept_master.artifact_answer = None
    sync_folder(folder_of(run), kept_master)
    assert kept_master.artifacts == []
    with pytest.raises(ArtifactLost, match="there is no artifact of that name"):
        made.wait(1)
    assert kept_in(folder_of(run).path)[0].sources(), "its files stay for whoever wants them"


@pytest.mark.parametrize("passing", [GONE, Unavailable("the master starts", status=503)])
def test_what_passes_is_tried_again(
    make_run: Callable[..., Run], kept_master: KeptMaster, data: Path, passing: DetlabError
) -> None:
    run = make_run()
    run.log({"loss": 1.0})
    run.log_artifact(data, name="data")
    kept_master.artifact_answer = passing
    delivery = RunDelivery(folder_of(run), [], kept_master)
    assert not delivery.step()
    assert delivery.failure is passing
    kept_master.artifact_answer = None
    assert delivery.step()
    delivery.close()
    assert len(kept_master.artifacts) == 1


def test_a_damaged_one_is_left_out(make_run: Callable[..., Run], kept_master: KeptMaster, data: Path) -> None:
    run = make_run()
    run.log({"loss": 1.0})
    run.log_artifact(data, name="data")
    (kept,) = kept_in(folder_of(run).path)
    (kept.path / "version.json").write_text("{")
    assert sync_folder(folder_of(run), kept_master).sent == 1
    assert "is damaged" in json.loads((kept.path / "refused.json").read_text())["message"]


def test_a_training_goes_on_if_an_artifact_cannot_be_logged_unless_it_is_strict(
    make_run: Callable[..., Run], data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (data / "link").symlink_to("/etc/passwd")
    run = make_run()
    run.log_artifact(data, name="data")
    run.log_artifact(data / "nothing", name="data")
    run.log_artifact(Artifact("empty"))
    assert kept_in(folder_of(run).path) == []
    assert "symbolic link" in caplog.text
    assert "artifact 'empty' is empty" in caplog.text
    with pytest.raises(DetlabError, match="symbolic link"):
        make_run("strict", strict=True).log_artifact(data, name="data")


def test_a_run_that_is_disabled_or_over_keeps_nothing(make_run: Callable[..., Run], data: Path) -> None:
    off = Run(None, "off", mode="disabled")
    made = off.log_artifact(data, name="data")
    with pytest.raises(ConfigError, match="not logged so far"):
        made.wait()
    run = make_run()
    run.end("FINISHED")
    run.log_artifact(data, name="data")
    assert kept_in(folder_of(run).path) == []


def test_another_ones_refusal_is_told_in_its_words(
    make_run: Callable[..., Run], kept_master: KeptMaster, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    run.log({"loss": 1.0})
    run.log_artifact(data, name="bob/data")
    kept_master.artifact_answer = Forbidden("artifact 'data' is bob's")
    sync_folder(folder_of(run), kept_master)
    assert "artifact 'data' is bob's" in caplog.text
