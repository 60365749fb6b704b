"""Tasks on machines that share nothing with their agent: what reaches them, and what comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from detlab.launch.elsewhere import (
    LONGEST,
    NOT_SET_UP,
    PIN_FILE,
    VARIABLE,
    Elsewhere,
    NotSetUp,
    Parcel,
    is_loopback,
    main,
)
from detlab.launch.layout import TaskDirectory
from detlab.launch.taskdir import TaskDir
from detlab_agent.runtimes.records import TaskElsewhere
from testbed.network.tls_peers import tls_peer

DIGEST = f"sha256:{'0' * 64}"


def parcel(master: str = "http://127.0.0.1:1", **more: Any) -> Parcel:
    launch = {"allocation_id": "1.a.1", "entrypoint": "true", "info": {"master_url": master}, **more}
    return Parcel(TaskDirectory(launch, "dttask_secret", {"master.pem": "PEM"}), {"CUDA_VISIBLE_DEVICES": "3"})


def start(parcel: Parcel, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "detlab.launch.elsewhere", "--exit-file", str(folder / "said")]
    env = {**os.environ, VARIABLE: parcel.encode(), "TMPDIR": str(folder)}
    return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)


def test_what_is_sent_is_what_arrives() -> None:
    assert Parcel.decode(parcel().encode()) == parcel()
    assert "dttask_secret" not in repr(parcel())


def test_a_launch_that_is_too_long_for_a_variable_is_refused_with_what_to_shorten() -> None:
    noise = random.Random(1).randbytes(LONGEST).hex()
    with pytest.raises(NotSetUp, match=rf"{LONGEST} fit into the environment.*environment_variables"):
        parcel(environment={"X": noise}).encode()
    assert len(parcel(environment={"X": "a" * LONGEST}).encode()) < LONGEST, "it is packed"


def test_one_launch_for_several_nodes_becomes_the_part_of_each() -> None:
    info = {"agent_id": "batch", "container_slot_counts": [2, 2], "container_rank": 0, "slot_ids": [0, 1]}
    whole = parcel(info=info, slots=["any0", "any1", "any2", "any3"])
    second = whole.of_node(1, "n7")
    assert second.contents.launch["slots"] == ["any2", "any3"]
    told = second.contents.launch["info"]
    assert (told["container_rank"], told["slot_ids"], told["agent_id"]) == (1, [0, 1], "batch/n7")
    assert whole.of_node(0).contents.launch["info"]["agent_id"] == "batch/0"
    assert (second.contents.token, second.environment) == (whole.contents.token, whole.environment)
    with pytest.raises(NotSetUp, match="DET_NODE_RANK is 2, and the trial has 2 nodes"):
        whole.of_node(2)


def test_a_task_gets_what_its_image_or_its_setup_script_has_set_and_nothing_of_the_batch_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that were loaded set PATH and variables of their own, and the task had nothing of it."""
    own = str(Path(sys.executable).parent)
    job = {
        "PATH": "/apps/cuda/bin:/usr/bin", "CUDA_HOME": "/apps/cuda", "PYTHONPATH": "/apps/lib", "HOME": "/nowhere",
        "SLURM_NTASKS": "8", "PMI_RANK": "3", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "DET_MASTER": "http://other",
        "CUDA_VISIBLE_DEVICES": "5",
    }  # fmt: skip
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    task = TaskDir(tmp_path / "task")
    env = Elsewhere(parcel(), None)._environment(task)
    assert (env["CUDA_HOME"], env["PYTHONPATH"], env["PATH"]) == ("/apps/cuda", "/apps/lib", f"{own}:{job['PATH']}")
    assert env["CUDA_VISIBLE_DEVICES"] == "5", "Slurm's word, not the agent's"
    assert not {"SLURM_NTASKS", "PMI_RANK", "KUBERNETES_SERVICE_HOST", "DET_MASTER", VARIABLE} & set(env)
    assert (env["HOME"], env["TMPDIR"]) == (str(task.home), str(task.tmp))
    monkeypatch.setenv("PATH", f"/lab/env/bin:{own}:/usr/bin")
    assert Elsewhere(parcel(), None)._environment(task)["PATH"] == f"/lab/env/bin:{own}:/usr/bin", "as it was set"


def test_without_a_parcel_it_says_who_would_set_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert f"{VARIABLE} is not set: the runtime of an agent" in capsys.readouterr().err


def test_a_task_that_is_to_end_while_its_master_is_away_ends(tmp_path: Path) -> None:
    asked = threading.Event()

    class Away(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            self.send_error(503)

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with start(parcel(f"http://127.0.0.1:{server.server_port}", bundle=DIGEST), tmp_path) as child:
            assert asked.wait(20)
            child.terminate()
            assert child.wait(20) == 128 + signal.SIGTERM
        server.shutdown()
    assert json.loads((tmp_path / "said").read_text())["exit_code"] == -signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["said"], "its directory is gone"


def test_code_that_is_not_what_its_digest_says_is_not_run(tmp_path: Path) -> None:
    class Liar(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.headers["Authorization"] == "Bearer dttask_secret"
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"other")

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with start(parcel(f"http://127.0.0.1:{server.server_port}", bundle=DIGEST), tmp_path) as child:
            assert child.wait(20) == NOT_SET_UP
        server.shutdown()
    said = json.loads((tmp_path / "said").read_text())
    assert (said["reason"], said["message"]) == (
        "setup",
        f"bundle {DIGEST}: what was downloaded does not match the digest",
    )


def test_the_masters_pinned_certificate_is_the_one_that_is_believed(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nother"
    folder = tmp_path / "far"
    folder.mkdir()
    with tls_peer(tmp_path, "master", answer=answer) as peer:
        pinned = replace(parcel(peer.url, bundle=DIGEST).contents, files={PIN_FILE: peer.certificate})
        with start(Parcel(pinned), folder) as child:
            assert child.wait(20) == NOT_SET_UP
    assert b"Authorization: Bearer dttask_secret" in b"".join(peer.heard)
    assert "does not match the digest" in json.loads((folder / "said").read_text())["message"]


class Signs(BaseHTTPRequestHandler):
    """Answers with what it is given, one after the other."""

    answers: list[tuple[int, dict[str, str]]]
    asked: list[Any]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"], body))
        status, reply = self.answers.pop(0)
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def signs() -> Iterator[tuple[type[Signs], Elsewhere]]:
    handler = type("Answers", (Signs,), {"answers": [], "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, Elsewhere(parcel(f"http://127.0.0.1:{server.server_port}"), None)
        server.shutdown()


@pytest.mark.slow
def test_a_service_asks_for_its_certificate_until_its_agent_has_told_the_address(
    signs: tuple[type[Signs], Elsewhere],
) -> None:
    handler, task = signs
    not_yet = {"code": "conflict", "message": "its agent has not said"}
    handler.answers += [(409, not_yet), (503, {}), (200, {"certificate": "PEM", "key": "KEY"})]
    task._certify("10.0.0.7")
    assert task._parcel.contents.files == {"master.pem": "PEM", "service.pem": "PEM", "service_key.pem": "KEY"}
    assert handler.asked == [("/api/v1/task/certificate", "Bearer dttask_secret", {"address": "10.0.0.7"})] * 3


@pytest.mark.slow
@pytest.mark.parametrize("answer", [(404, {"code": "not_found"}), (409, {"code": "stale_attempt"})])
def test_a_service_without_its_certificate_does_not_start(
    signs: tuple[type[Signs], Elsewhere], answer: tuple[int, dict[str, str]]
) -> None:
    handler, task = signs
    handler.answers.append(answer)
    with pytest.raises(NotSetUp, match=rf"no certificate for the server at 10\.0\.0\.7: .*status {answer[0]}"):
        task._certify("10.0.0.7")


def test_an_address_of_ones_own_machine_needs_no_certificate() -> None:
    own = ("127.0.0.1", "127.9.9.9", "::1", "localhost", "")
    assert [is_loopback(one) for one in (*own, "10.0.0.7", "node-7")] == [True] * 5 + [False] * 2


REPORTED = json.dumps({"exit_code": -9, "rank": 2, "delivered": True})


@pytest.mark.parametrize(
    ("status", "said", "exit_code", "rank", "reason", "delivered"),
    [
        (0, "", 0, None, "", True),
        (5, "", 5, None, "", True),
        (137, REPORTED, -9, 2, "", True),
        (1, json.dumps({"exit_code": 1, "oom": True}), 1, None, "oom", True),
        (125, json.dumps({"exit_code": None, "reason": "setup", "message": "no"}), None, None, "setup", True),
        (137, "", None, None, "launcher_lost", False),
        (None, "", None, None, "launcher_lost", False),
        (3, "not JSON {", 3, None, "", True),
        (3, '["a list"]', 3, None, "", True),
    ],
)
def test_how_a_task_ended_is_read_from_its_job(
    status: int | None, said: str, exit_code: int | None, rank: int | None, reason: str, delivered: bool
) -> None:
    found = TaskElsewhere.exit_of(status, said)
    assert (found.exit_code, found.rank, found.reason, found.delivered) == (exit_code, rank, reason, delivered)
