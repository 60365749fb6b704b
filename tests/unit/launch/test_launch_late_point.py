"""A job asks the master for its trial's hyperparameters when it runs, by a program that its agent sent along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from detlab.launch import late_point
from detlab.launch.elsewhere import NOT_SET_UP, VARIABLE, Parcel
from detlab.launch.layout import TaskDirectory

STALE = {"code": "stale_attempt", "message": "attempt 1 of trial 3 is over"}
WORK = "python3 -c 'import json, os, sys; print(os.environ[\"DET_HPARAMS\"], flush=True)'"


class Master(BaseHTTPRequestHandler):
    """Gives the answers that it has, one after the other, and takes all that is reported."""

    answers: list[tuple[int, dict[str, Any]]]
    asked: list[tuple[str, str | None]]
    said: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if not self.path.startswith("/api/v1/task/point"):
            records = json.loads(body)["records"]
            self.said += [record.get("text", "") for record in records]
            self._reply(200, {"acked": max((record["seq"] for record in records), default=0), "refused": []})
            return
        self.asked.append((self.path, self.headers["Authorization"]))
        if self.answers:
            self._reply(*self.answers.pop(0))

    def _reply(self, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def master() -> Iterator[tuple[type[Master], str]]:
    handler = type("Answers", (Master,), {"answers": [], "asked": [], "said": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def parcel(url: str) -> Parcel:
    info = {
        "master_url": url, "cluster_id": "c", "agent_id": "a", "slot_ids": [], "task_id": "1.a", "trial_id": 3,
        "allocation_id": "1.a.1", "run": 1, "experiment_id": 1, "trial_seed": 1, "hparams": {}, "config": {},
    }  # fmt: skip
    launch = {
        "allocation_id": "1.a.1", "run": 1, "entrypoint": WORK, "environment": {}, "slots": [], "info": info,
        "bundle": None, "kind": "trial", "point_due": True, "token_expires_at": 2e9, "token_life": 3600.0,
        "service": None,
    }  # fmt: skip
    return Parcel(TaskDirectory(launch, "dttask_secret", {}), {})


def start(sent: Parcel, folder: Path, text: str | None = None) -> subprocess.Popen[bytes]:
    text = Path(late_point.__file__).read_text(encoding="utf-8") if text is None else text
    command = [sys.executable, "-s", "-P", "-c", text, "--exit-file", str(folder / "said")]
    env = {**os.environ, VARIABLE: sent.encode(), "TMPDIR": str(folder)}
    return subprocess.Popen(command, env=env)


def ended(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "said").read_text())
    return found


def test_the_task_has_the_hyperparameters_that_the_master_draws_when_it_runs(
    tmp_path: Path, master: tuple[type[Master], str]
) -> None:
    handler, url = master
    handler.answers += [(200, {"ready": False, "hparams": {}}), (200, {"ready": True, "hparams": {"lr": 0.25}})]
    with start(parcel(url), tmp_path) as child:
        assert child.wait(60) == 0
    assert ended(tmp_path)["exit_code"] == 0
    assert handler.asked == [("/api/v1/task/point?timeout_seconds=20", "Bearer dttask_secret")] * 2
    assert '{"lr": 0.25}' in "".join(handler.said)


@pytest.mark.slow
def test_a_proxy_that_answers_for_the_master_is_waited_for(tmp_path: Path, master: tuple[type[Master], str]) -> None:
    handler, url = master
    handler.answers += [(404, {"message": "no such server"}), (200, {"ready": True, "hparams": {"lr": 0.5}})]
    with start(parcel(url), tmp_path) as child:
        assert child.wait(60) == 0
    assert '{"lr": 0.5}' in "".join(handler.said)


def test_an_attempt_that_is_over_does_not_begin(tmp_path: Path, master: tuple[type[Master], str]) -> None:
    handler, url = master
    handler.answers += [(409, STALE)]
    with start(parcel(url), tmp_path) as child:
        assert child.wait(60) == NOT_SET_UP
    said = ended(tmp_path)
    assert (said["exit_code"], said["reason"]) == (None, "setup")
    assert "attempt 1 of trial 3 is over" in said["message"]
    assert handler.said == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_that_is_ended_while_it_waits_for_its_hyperparameters_ends(
    tmp_path: Path, master: tuple[type[Master], str], number: int
) -> None:
    handler, url = master
    handler.answers += [(200, {"ready": False, "hparams": {}})] * 1_000_000
    with start(parcel(url), tmp_path) as child:
        while not handler.asked:
            assert child.poll() is None
        child.send_signal(number)
        assert child.wait(60) == 128 + signal.SIGTERM
    assert ended(tmp_path)["message"] == "ended before it started"
    assert handler.said == []


def test_a_runtime_that_does_not_ask_for_them_starts_no_task_without(tmp_path: Path) -> None:
    program = "import sys; from detlab.launch.elsewhere import main; sys.exit(main())"
    with start(parcel("http://127.0.0.1:1"), tmp_path, program) as child:
        assert child.wait(60) == NOT_SET_UP
    assert "the trial has no hyperparameters" in ended(tmp_path)["message"]
