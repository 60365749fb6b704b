"""What a folder has reaches the master once: whatever breaks in between, and however often it is sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from track_doubles import GONE, KeptMaster, records_of

from detlab.errors import AuthError, ConfigError, DetlabError, Problem
from detlab.media import Image
from detlab.schemas.wire.runs import RunView
from detlab.track.folder import RunDescription, RunFolder, waiting_media
from detlab.track.records import RunSpool, has_ended
from detlab.track.sending import BEAT_SECONDS, DIED, RunDelivery, note_death, sync_folder
from detlab.track.this_run import Run


def folder_of(run: Run) -> RunFolder:
    assert run.folder is not None
    return run.folder


_made: list[RunDelivery] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """All deliveries of a test are closed at its end."""
    yield
    while _made:
        _made.pop().close()


def delivering(run: Run, master: KeptMaster, **settings: Any) -> RunDelivery:
    """Return a delivery of a run's folder."""
    _made.append(RunDelivery(folder_of(run), [], master, **settings))
    return _made[-1]


def seqs(master: KeptMaster) -> list[int]:
    return [one["seq"] for those in master.records.values() for one in those]


def test_a_folder_sent_twice_is_there_once(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    run = make_run()
    for step in range(2500):
        run.log({"loss": float(step)})
    assert sync_folder(folder_of(run), kept_master).sent == 2500
    assert sync_folder(folder_of(run), kept_master).sent == 0
    run.log({"loss": 1.0})
    assert sync_folder(folder_of(run), kept_master).sent == 1
    assert seqs(kept_master) == list(range(1, 2502))


def _known(began: float, ended: float | None, status: Any = "FINISHED") -> RunView:
    return RunView(id="a" * 32, key="exp1", status=status, started_at=began, ended_at=ended)


def _ended(tmp_path: Path, key: str = "exp1", **more: Any) -> RunFolder:
    """Return the folder of a run that has just ended."""
    folder = RunFolder.made(tmp_path / "detlab-runs", RunDescription(key, started=time.time(), **more))
    run = Run(folder, key, writer=folder.new_writer(), mode="offline")
    run.log({"loss": 1.0})
    run.finish()
    return folder


@pytest.mark.parametrize(
    ("others", "key"),
    [
        ({"exp1": (-60, -2)}, "exp1-2"),
        ({"exp1": (60, 90)}, "exp1-2"),
        ({"exp1": (-60, -30), "exp1-2": (-20, -2)}, "exp1-3"),
        ({"exp1": (-60, 2)}, "exp1"),  # a process of the same run, on another machine
        ({"exp1": (-60, None)}, "exp1"),
        ({}, "exp1"),
    ],
)
def test_a_run_of_the_same_id_in_another_folder_that_does_not_overlap_is_another_one(
    tmp_path: Path, kept_master: KeptMaster, others: dict[str, tuple[int, int | None]], key: str
) -> None:
    folder = _ended(tmp_path)
    now = folder.run.started
    for name, (began, ended) in others.items():
        kept_master.known[name] = (
            _known(now + began, None, "RUNNING") if ended is None else _known(now + began, now + ended)
        )
    sync_folder(folder, kept_master)
    assert {one.key for one in kept_master.begun} == {key}
    kept_master.known[key] = _known(now, now + 1)
    sync_folder(folder, kept_master)
    assert {one.key for one in kept_master.begun} == {key}, "again it is the same"


@pytest.mark.parametrize(("key", "joins"), [("exp1", True), ("0123456789abcdef" * 2, False)])
def test_a_run_that_is_resumed_or_has_a_drawn_id_goes_on_from_any_folder(
    tmp_path: Path, kept_master: KeptMaster, key: str, joins: bool
) -> None:
    kept_master.known = {key: _known(1.0, 2.0)}
    sync_folder(_ended(tmp_path, key, joins=joins), kept_master)
    assert {one.key for one in kept_master.begun} == {key}


def test_what_was_written_is_what_is_sent(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    run = make_run()
    run.config.update(lr=0.1)
    run.log({"a": float("nan"), "b": 2}, step=-3)
    run.set_tags({"kind": "test"})
    run.alert("title", "text", level="WARN")
    run.end("FAILED", "why")
    sync_folder(folder_of(run), kept_master)
    assert kept_master.records[folder_of(run).writers()[0]] == records_of(run)
    assert [one["kind"] for one in records_of(run)] == ["config", "metrics", "tags", "log", "alert", "exit"]


def test_another_master_gets_all_of_it(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": 1})
    for master in (KeptMaster(), KeptMaster()):
        assert sync_folder(folder_of(run), master).sent == 1


def test_a_master_that_goes_away_in_the_middle_costs_nothing(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    for step in range(1500):
        run.log({"loss": float(step)})
    delivery = delivering(run, kept_master)
    kept_master.away = GONE
    assert not delivery.step()
    assert delivery.failure is GONE
    kept_master.away = None
    kept_master.answers = [(200, b'{"acked": 0}'), (502, b"<html>"), GONE, (503, b"{}")]
    for _ in range(8):
        if delivery.step():
            break
    assert delivery.failure is None
    assert seqs(kept_master) == list(range(1, 1501))


def test_an_answer_that_was_lost_doubles_nothing(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    class Lossy(KeptMaster):
        lose = True

        def send(self, run_id: str, writer: str, body: bytes) -> tuple[int, bytes]:
            answer = super().send(run_id, writer, body)
            if self.lose:
                self.lose = False
                raise GONE
            return answer

    run, master = make_run(), Lossy()
    run.log({"a": 1})
    delivery = delivering(run, master)
    assert not delivery.step()
    assert delivery.step()
    assert seqs(master) == [1]


def test_a_token_that_has_expired_in_an_offline_week_keeps_everything_for_the_next(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    run.log({"a": 1})
    run.end("FINISHED")
    expired = AuthError("no valid token came with the request", status=401)
    kept_master.away = expired
    with pytest.raises(AuthError):
        sync_folder(folder_of(run), kept_master)
    kept_master.away = None
    kept_master.answers = [(401, b'{"code": "auth", "message": "expired"}')]
    delivery = delivering(run, kept_master)
    assert not delivery.step()
    assert "expired" in str(delivery.failure)
    assert delivery.step()
    assert seqs(kept_master) == [1, 2]


def test_a_master_restored_from_before_gets_what_it_has_lost(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    run.log({"a": 1})
    delivery = delivering(run, kept_master)
    assert delivery.step()
    kept_master.records.clear()
    kept_master.answers = [(404, b'{"code": "not_found", "message": "there is no run"}')]
    run.log({"a": 2})
    assert not delivery.step()
    assert delivery.step()
    assert seqs(kept_master) == [1, 2]


def test_a_record_that_is_refused_holds_up_no_other_and_is_noted(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    for step in range(20):
        run.log({"a": float(step)})
    kept_master.refuses = lambda record: "step 7 is bad" if record["step"] == 7 else ""
    sent = sync_folder(folder_of(run), kept_master)
    assert [(one.seq, one.message) for one in sent.refused] == [(8, "step 7 is bad")]
    noted = (folder_of(run).path / folder_of(run).writers()[0] / "refused.jsonl").read_text()
    assert json.loads(noted)["seq"] == 8


def test_a_batch_that_is_refused_as_a_whole_is_halved_until_the_record_at_fault_is_found(
    make_run: Callable[..., Run],
) -> None:
    class Strict(KeptMaster):
        def send(self, run_id: str, writer: str, body: bytes) -> tuple[int, bytes]:
            if any(one.get("step") == 13 for one in json.loads(body)["records"]):
                return 400, b'{"code": "tracking.invalid", "message": "too many metrics"}'
            return super().send(run_id, writer, body)

    run, master = make_run(), Strict()
    for step in range(50):
        run.log({"a": float(step)})
    sent = sync_folder(folder_of(run), master)
    assert [one.seq for one in sent.refused] == [14]
    assert seqs(master) == [*range(1, 14), *range(15, 51)]


def test_a_project_that_can_be_none_is_an_error_and_another_may_be_named(make_run: Callable[..., Run]) -> None:
    class Choosy(KeptMaster):
        def begin(self, wanted: Any) -> Any:
            if wanted.project != "good":
                raise ConfigError([Problem("name", "bad")], "it cannot be the name of a project")
            return super().begin(wanted)

    run, master = make_run(), Choosy()
    run.log({"a": 1})
    with pytest.raises(ConfigError):
        sync_folder(folder_of(run), master)
    assert sync_folder(folder_of(run), master, project="good").sent == 1


def test_two_processes_of_a_run_are_sent_each_with_its_own_numbers(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    one, other = make_run(), make_run()
    for _ in range(3):
        one.log({"a": 1})
        other.log({"b": 1})
    assert sync_folder(folder_of(one), kept_master).sent == 6
    assert sorted(map(len, kept_master.records.values())) == [3, 3]


def test_a_clock_that_was_set_back_changes_no_order(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    times = iter([1e9, 5.0, 2e9, -3.0])
    run = make_run()
    assert run._records is not None
    run._records._spool._clock = lambda: next(times)
    for _ in range(4):
        run.log({"a": 1})
    sync_folder(folder_of(run), kept_master)
    assert [one["step"] for one in kept_master.of("metrics")] == [0, 1, 2, 3]


def test_a_line_that_a_killed_process_left_half_written_is_not_sent(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    run.log({"a": 1})
    path = folder_of(run).path / folder_of(run).writers()[0] / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(b'{"kind":"metrics","seq":2,"time"')
    delivery = delivering(run, kept_master)
    assert delivery.step()
    run.log({"a": 2})  # cuts it off
    assert delivery.step()
    assert seqs(kept_master) == [1, 2]


def test_a_process_that_is_silent_says_that_it_lives(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    now = [0.0]
    run = make_run()
    run.log({"a": 1})
    delivery = delivering(run, kept_master, clock=lambda: now[0])
    assert delivery.step()
    delivery.beat()
    assert kept_master.beats == 0
    now[0] = BEAT_SECONDS + 1
    delivery.beat()
    delivery.beat()
    assert kept_master.beats == 1
    kept_master.away = GONE
    now[0] *= 2
    delivery.beat()
    assert delivery.failure is GONE


def test_files_are_sent_once_by_a_delivery_and_links_never(
    make_run: Callable[..., Run], kept_master: KeptMaster, tmp_path: Path
) -> None:
    run = make_run()
    run.log({"a": 1})
    files = folder_of(run).files
    (files / "code").mkdir(parents=True)
    (files / "code" / "train.py").write_text("x")
    (files / "link").symlink_to(tmp_path)
    (files / ".new.half").write_text("y")
    sync_folder(folder_of(run), kept_master)
    assert kept_master.files == {"code/train.py": b"x"}


def test_a_script_killed_on_this_machine_is_noted_to_have_died_by_whoever_sends(
    tmp_path: Path, kept_master: KeptMaster
) -> None:
    code = (
        "import sys, pathlib\n"
        "from detlab.track.folder import RunDescription, RunFolder\n"
        "from detlab.track.this_run import Run\n"
        "folder = RunFolder.made(pathlib.Path(sys.argv[1]), RunDescription('killed'))\n"
        "run = Run(folder, 'killed', writer=folder.new_writer(), mode='offline')\n"
        "run.log({'a': 1})\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    script = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "ready\n"
    folder = RunFolder.opened(tmp_path / "killed")
    (writer,) = folder.writers()
    assert sync_folder(folder, kept_master).sent == 1
    assert not has_ended(folder.path / writer)
    os.kill(script.pid, signal.SIGKILL)
    script.communicate()
    assert sync_folder(folder, kept_master).sent == 1
    assert (kept_master.of("exit")[0]["status"], kept_master.of("exit")[0]["reason"]) == ("FAILED", DIED)
    assert sync_folder(folder, kept_master).sent == 0


def test_a_process_of_another_machine_is_left_to_end_by_itself(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": 1})
    folder = folder_of(run)
    path = folder.path / folder.writers()[0] / "process.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
    assert not note_death(folder, folder.writers()[0])


def test_two_at_once_double_nothing(make_run: Callable[..., Run], kept_master: KeptMaster) -> None:
    run = make_run()
    deliveries = [delivering(run, kept_master) for _ in range(2)]
    for step in range(40):
        run.log({"a": float(step)})
        assert deliveries[step % 2].step()
    assert seqs(kept_master) == list(range(1, 41))


def test_a_spool_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detlab.core.metrics.spool.os.write", full)
    with pytest.raises(DetlabError):
        RunSpool(tmp_path, sleep=lambda _: pytest.fail("it waits")).append("a", {})


def test_objects_are_sent_oldest_first_and_leave_the_disk(
    make_run: Callable[..., Run], kept_master: KeptMaster
) -> None:
    run = make_run()
    for step in range(50):
        run.log({"picture": Image([[step]]), "loss": 1.0}, step=step)
    kept_master.away = GONE
    with pytest.raises(DetlabError):
        sync_folder(folder_of(run), kept_master)
    assert len(waiting_media(folder_of(run).path / folder_of(run).writers()[0])) == 50
    kept_master.away = None
    sync_folder(folder_of(run), kept_master)
    assert list(kept_master.media) == [("picture", step, 0) for step in range(50)]
    assert not list(folder_of(run).path.glob("*/media/*"))
    sync_folder(folder_of(run), kept_master)
    assert len(kept_master.media) == 50


def test_an_object_that_the_master_refuses_is_dropped_and_the_run_goes_on(
    make_run: Callable[..., Run], kept_master: KeptMaster, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    run.log({"picture": Image([[1]]), "loss": 1.0})
    refused = DetlabError("run r has logged as much as it may")
    refused.status = 409  # type: ignore[attr-defined]  # as a reply's error has it
    kept_master.no_media = refused
    delivery = sync_folder(folder_of(run), kept_master)
    assert (delivery.dropped, delivery.sent) == (1, 1)
    assert "as much as it may" in caplog.text
    assert not list(folder_of(run).path.glob("*/media/*"))
