"""The blocking client is made from the asynchronous one: current, complete, and usable where an event loop runs."""

from __future__ import annotations

import importlib.util
import inspect
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from detlab.client import aclient, aresources, asearch, atasks, client, resources, search, tasks
from detlab.client.client import Client
from detlab.client.parts import aedits, aoutput, edits, output
from detlab.schemas.wire import ExperimentState
from testbed.fake_master.api import FakeMaster

HARNESS = Path(__file__).resolve().parents[3] / "harness"


@pytest.fixture(scope="module")
def make_sync() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sync", HARNESS / "make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_made_module_is_current() -> None:
    check = [sys.executable, str(HARNESS / "make_sync.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_reviews_fold_the_made_modules_and_no_other() -> None:
    attributes = (HARNESS.parent / ".gitattributes").read_text(encoding="utf-8").splitlines()
    folded = {line.split()[0] for line in attributes if line.startswith("harness/")}
    made = [path for path in (HARNESS / "detlab").rglob("*.py") if path.read_text().startswith("# Made from ")]
    assert folded == {str(path.relative_to(HARNESS.parent)) for path in made}


def test_a_module_that_was_edited_by_hand_is_named(make_sync: ModuleType, tmp_path: Path) -> None:
    make_sync.CLIENT, make_sync.MODULES = tmp_path, {"aclient.py": "client.py"}
    (tmp_path / "aclient.py").write_text("async def ask() -> int:\n    return await other()\n")
    (tmp_path / "client.py").write_text("def ask() -> int:\n    return 1\n")
    assert make_sync.main(["--check"]) == 1
    assert (tmp_path / "client.py").read_text().endswith("return 1\n")
    assert make_sync.main([]) == 0
    assert make_sync.main(["--check"]) == 0
    assert (tmp_path / "client.py").read_text().endswith("def ask() -> int:\n    return other()\n")


def test_what_has_no_blocking_form_is_refused(make_sync: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"aclient\.py: no replacement for 'asyncio' \(about line 2\)"):
        make_sync.sync_source("async def ask():\n    await asyncio.gather(one(), two())\n", "aclient.py")


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("x = (await ask(one(2), 3)).state\n", "x = ask(one(2), 3).state\n"),
        ("x = (await ask())[0]\n", "x = ask()[0]\n"),
        ("await asyncio.sleep(1)\n", "time.sleep(1)\n"),
        ("x = await asyncio.to_thread(pack, 1, b=2)\n", "x = pack(1, b=2)\n"),
        ("x = [item async for item in ask()]\n", "x = list(ask())\n"),
        ("async with AsyncClient() as client:\n    pass\n", "with Client() as client:\n    pass\n"),
    ],
)
def test_each_form_has_its_blocking_one(make_sync: ModuleType, written: str, made: str) -> None:
    assert make_sync.sync_source(written, "aclient.py").partition("\n")[2] == made


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    modules = (
        (aclient, client),
        (aedits, edits),
        (aoutput, output),
        (aresources, resources),
        (asearch, search),
        (atasks, tasks),
    )
    pairs = [(getattr(a, n), getattr(b, n.removeprefix("Async"))) for a, b in modules for n in vars(a) if _own(a, n)]
    assert len(pairs) == 11
    for one, other in pairs:
        public = [name for name in vars(one) if not name.startswith("_")]
        assert public == [name for name in vars(other) if not name.startswith("_")]
        for name in public:
            theirs, ours = inspect.getattr_static(one, name), inspect.getattr_static(other, name)
            if inspect.isfunction(theirs):
                assert [*inspect.signature(theirs).parameters] == [*inspect.signature(ours).parameters], name


def _own(module: ModuleType, name: str) -> bool:
    return inspect.isclass(getattr(module, name)) and getattr(module, name).__module__ == module.__name__


async def test_the_blocking_client_works_where_an_event_loop_runs(master: FakeMaster, client: Client) -> None:
    experiment = client.create_experiment({"name": "x"})
    trial = master.add_trial(1)
    master.log(trial.id, "one")
    assert [line.text for line in client.get_trial(trial.id).iter_logs()] == ["one"]

    def end() -> None:
        master.await_request("GET", "experiments/1/stream")
        master.update_experiment(1, state=ExperimentState.COMPLETED)

    with _aside(end):
        assert experiment.wait(timeout=30) is ExperimentState.COMPLETED


def test_an_interrupt_ends_a_wait_at_once(master: FakeMaster, client: Client) -> None:
    experiment = client.create_experiment({"name": "x"})
    sent: list[float] = []

    def interrupt() -> None:
        master.await_request("GET", "experiments/1/stream")
        sent.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with _aside(interrupt), pytest.raises(KeyboardInterrupt) as caught:
        experiment.wait(timeout=60)
    assert time.monotonic() - sent[0] < 5
    assert _as_ipython_shows(caught.value) == (
        "Interrupted: stopped waiting; experiment 1 continues (det experiment kill 1 ends it)"
    )


def test_an_interrupt_of_any_other_wait_is_one_line_too(master: FakeMaster, client: Client) -> None:
    client.create_experiment({"name": "x"})
    trial = client.get_trial(master.add_trial(1).id)

    def interrupt() -> None:
        master.await_request("GET", f"trials/{trial.id}/logs/stream")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with _aside(interrupt), pytest.raises(KeyboardInterrupt) as caught:
        list(trial.iter_logs(follow=True))
    assert "Interrupted: stopped following" in _as_ipython_shows(caught.value)

    def answered_late(_request: httpx.Request) -> httpx.Response:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        raise AssertionError("not interrupted")

    with (
        Client(master.url, master.token, transport=httpx.MockTransport(answered_late)) as slow,
        pytest.raises(KeyboardInterrupt) as caught,
    ):
        slow.whoami()
    assert "Interrupted: stopped waiting for the answer of http://" in _as_ipython_shows(caught.value)


def _as_ipython_shows(error: BaseException) -> str:
    [line] = error._render_traceback_()  # type: ignore[attr-defined]  # IPython calls it where there is one
    return re.sub("\x1b\\[[0-9;]*m", "", line)


@contextmanager
def _aside(action: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()
