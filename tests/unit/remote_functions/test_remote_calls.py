"""`@det.remote` from scripts and modules against a master that runs what it is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detlab as det
from detlab.errors import ConfigError
from detlab.remote_functions import CallInterrupted, FunctionNotShipped, RemoteCalls, RemoteError, ResultNotTrusted
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import ProblemView
from detlab.testing.ports import free_port


@det.remote(slots=2, pool="gpu", environment={"environment_variables": ["A=1"]}, max_time="1h")
def train(x: Any, *, scale: int = 1) -> dict[str, Any]:
    print("training", x)
    return {"x": x, "twice": 2 * x * scale}


@det.remote
def fails(x: int) -> int:
    if x == 2:
        raise ValueError(f"no {x}")
    return x


@det.remote
def leaves() -> None:
    os._exit(3)


@det.remote
def path_of(name: str) -> Path:
    return Path(name)


def test_a_call_submits_at_once_and_its_result_comes_back(runner: Any, capfd: pytest.CaptureFixture[str]) -> None:
    call = train.remote(np.arange(3), scale=2)
    found = call.result()
    assert found["twice"].tolist() == [0, 4, 8]
    said = capfd.readouterr()
    assert said.out == "training [0 1 2]\n"
    (asked,) = runner.master.asked
    assert asked.kind is TaskKind.CELL
    assert asked.name == "train()"
    assert asked.config["resources"] == {"slots": 2, "resource_pool": "gpu", "max_time": "1h"}
    assert asked.config["environment"] == {"environment_variables": ["A=1"]}
    assert asked.source.client == "det.remote"
    assert call.done()
    assert call.logs() == ["training [0 1 2]"]
    assert call.result(stream=False)["twice"].tolist() == [0, 4, 8], "it can be asked for again"
    assert capfd.readouterr().out == ""


def test_a_plain_call_says_how_to_say_where(runner: Any) -> None:
    with pytest.raises(TypeError, match=r"train\.remote\(…\) on the cluster, train\.local\(…\) here"):
        train(3)
    assert train.local(3) == {"x": 3, "twice": 6}
    assert runner.master.asked == []


def test_an_exception_comes_back_under_its_name_with_the_remote_traceback(runner: Any) -> None:
    with pytest.raises(ValueError, match="no 2") as raised:
        fails.remote(2).result()
    assert isinstance(raised.value, RemoteError)
    assert raised.value.kind == "ValueError"
    assert 'test_remote_calls.py", line' in raised.value.remote_traceback
    assert 'raise ValueError(f"no {x}")' in str(raised.value)
    assert isinstance(fails.remote(2).exception(), ValueError)
    assert fails.remote(1).exception() is None


def test_an_exception_that_is_not_python_s_own_is_told_and_not_made(run_script: Any) -> None:
    done = run_script("""
        import detlab as det

        class Own(Exception):
            pass

        @det.remote
        def f():
            raise Own("mine \\x1b[2J")

        try:
            f.remote().result()
        except det.errors.DetlabError as error:
            print(type(error).__name__, error.kind, error.message)
    """)
    assert done.stdout == "RemoteError Own Own: mine ⟨U+001B⟩[2J\n", done.stderr


def test_a_task_that_ends_without_a_result_says_how(runner: Any) -> None:
    with pytest.raises(RemoteError, match=r"leaves\(\) \(cell-\w+\) ended without a result \(exit code 3\)") as raised:
        leaves.remote().result()
    assert "det task logs cell-" in str(raised.value)


def test_a_pickled_result_is_read_only_if_that_is_said(runner: Any) -> None:
    call = path_of.remote("a")
    with pytest.raises(ResultNotTrusted, match=r"is a pickle \(pathlib\.") as raised:
        call.result()
    assert "trust=True" in str(raised.value)
    assert call.result(trust=True) == Path("a")
    trusting = path_of.options(trust=True).remote("b")
    assert trusting.result() == Path("b")
    with pytest.raises(ResultNotTrusted):
        trusting.result(trust=False)


def test_nothing_of_a_pickle_runs_without_consent(run_script: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = run_script(f"""
        import pathlib
        import detlab as det

        @det.remote
        def f():
            class Evil:
                def __reduce__(self):
                    return exec, ("import pathlib; pathlib.Path({str(mark)!r}).touch()",)
            return Evil()

        try:
            f.remote().result()
        except det.errors.DetlabError as error:
            print(type(error).__name__)
    """)
    assert done.stdout == "ResultNotTrusted\n", done.stderr
    assert not mark.exists()


def test_arguments_that_cannot_travel_are_all_named_and_nothing_is_submitted(runner: Any) -> None:
    with pytest.raises(FunctionNotShipped) as raised:
        train.remote(threading.Lock(), scale=sys.stdout)
    assert "the argument x (_thread.lock) cannot be pickled" in str(raised.value)
    assert "the argument scale (" in str(raised.value)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        train.remote(scale=2)
    assert runner.master.asked == []


def test_what_the_cluster_refuses_is_raised_as_it_says(runner: Any) -> None:
    runner.master.problems = [ProblemView(path="resources.slots", message="the largest agent has 2")]
    with pytest.raises(ConfigError, match="the largest agent has 2"):
        train.options(slots=500).remote(1)


def test_many_at_once(runner: Any, capfd: pytest.CaptureFixture[str]) -> None:
    calls = fails.map([0, 1, 3])
    assert isinstance(calls, RemoteCalls)
    assert len(calls) == 3
    assert calls.results() == [0, 1, 3]
    assert [view.name for view in runner.master.tasks.values()] == ["fails() 1/3", "fails() 2/3", "fails() 3/3"]
    with pytest.raises(ValueError, match="no 2"):
        fails.map([1, 2]).results()
    kept = fails.map([1, 2]).results(return_exceptions=True)
    assert kept[0] == 1
    assert isinstance(kept[1], ValueError)
    asked = len(runner.master.asked)
    with pytest.raises(FunctionNotShipped):
        fails.map([1, threading.Lock()])
    assert len(runner.master.asked) == asked, "all or none"


def test_a_call_can_be_cancelled_and_waiting_has_an_end(runner: Any) -> None:
    runner.hold.clear()
    call = fails.remote(1)
    with pytest.raises(TimeoutError, match="is still"):
        call.result(timeout=0.3)
    assert not call.done()
    call.cancel()
    call.cancel()
    with pytest.raises(RemoteError, match="was killed"):
        call.result()


@pytest.mark.parametrize(("answer", "killed"), [("k", True), ("s", False)])
def test_an_interrupt_asks(runner: Any, monkeypatch: pytest.MonkeyPatch, answer: str, killed: bool) -> None:
    runner.hold.clear()
    call = fails.remote(1)
    monkeypatch.setattr("detlab.remote_functions.calls.can_ask", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(CallInterrupted) as raised:
        call.result()
    assert isinstance(raised.value, KeyboardInterrupt)
    assert "still runs. k: kill it" in asked[0]
    assert call.done() is killed
    assert raised.value.killed is killed
    if not killed:
        assert f"{call.id} continues" in str(raised.value)
        runner.hold.set()
        assert call.result() == 1


def test_an_interrupt_where_nobody_can_be_asked_kills(runner: Any, tmp_path: Path) -> None:
    runner.hold.clear()
    script = tmp_path / "waits.py"
    script.write_text(
        textwrap.dedent("""
        import detlab as det

        @det.remote
        def f():
            return 1

        call = f.remote()
        print("submitted", flush=True)
        call.result()
    """)
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "submitted\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert "taken out of the queue" in errors
    assert [view.end_reason for view in runner.master.tasks.values()] == ["killed"]


def test_a_script_brings_its_own_functions_modules_and_tracebacks(run_script: Any, tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "beside.py").write_text("import deeper\n\ndef add(x):\n    return deeper.ONE + x\n")
    (tmp_path / "script" / "deeper.py").write_text("ONE = 1\n")
    done = run_script("""
        import detlab as det
        import beside

        FACTOR = 10

        def times(x):
            return FACTOR * beside.add(x)

        @det.remote
        def train(x):
            print("here", x)
            if x < 0:
                raise KeyError(x)
            return times(x)

        if __name__ == "__main__":
            print(train.remote(3).result())
            try:
                train.remote(-1).result()
            except KeyError as error:
                print(error.remote_traceback)
    """)
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("here 3\n40\nhere -1\n")
    assert 'File "train.py", line 14, in train' in done.stdout
    assert "raise KeyError(x)" in done.stdout
    assert "train(): cell-0001 runs on node1" in done.stderr


def test_a_module_that_is_not_there_is_named_with_what_to_do(run_script: Any, tmp_path: Path) -> None:
    done = run_script("""
        import sys, types
        sys.modules["made_here"] = types.ModuleType("made_here")
        import made_here
        import detlab as det

        @det.remote
        def f():
            return made_here.x

        try:
            f.remote().result()
        except ModuleNotFoundError as error:
            print(error)
    """)
    assert "No module named 'made_here'" in done.stdout, done.stderr
    assert "must be installed where it runs (environment=…)" in done.stdout


def test_an_option_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(TypeError, match="no option gpus; it has slots, pool"):
        det.remote(gpus=2)


def test_an_image_means_a_container_unless_it_is_said_otherwise() -> None:
    assert det.remote(environment="torch:2")(fails.function)._options.task_config()["runtime"] == "docker"
    assert "runtime" not in fails._options.task_config()


def test_without_a_cluster_the_error_is_that_of_every_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("DET_TOKEN", "x")
    with pytest.raises(det.errors.ClusterUnreachable):
        fails.remote(1)
