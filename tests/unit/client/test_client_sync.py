"""The blocking client is made from the asynchronous one: current, complete, and usable where an event loop runs."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
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
from testbed.waiting import until

HARNESS = Path(__file__).resolve().parents[3] / "harness"
LONG = "C" * 120


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


def test_git_ignores_the_made_modules_and_no_other_of_ours() -> None:
    lines = (HARNESS.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = {line for line in lines if line.startswith("/harness/")}
    made = [path for path in (HARNESS / "detlab").rglob("*.py") if path.read_text().startswith("# Made from ")]
    assert ignored == {f"/{path.relative_to(HARNESS.parent)}" for path in made}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The `harness` of a small checkout, whose client has one module; nothing was made yet."""
    harness = tmp_path / "harness"
    client = harness / "detlab" / "client"
    client.mkdir(parents=True)
    (client / "aclient.py").write_text("async def ask() -> int:\n    return await other()\n")
    text = (HARNESS / "make_sync.py").read_text(encoding="utf-8")
    text, found = re.subn(r"^MODULES = \{.*?^\}", 'MODULES = {"aclient.py": "client.py"}', text, flags=re.M | re.S)
    assert found == 1
    (harness / "make_sync.py").write_text(text, encoding="utf-8")
    for name in ("", "client"):
        shutil.copy(HARNESS / "detlab" / name / "__init__.py", harness / "detlab" / name)
    return harness


def make(harness: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, str(harness / "make_sync.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_module_that_was_edited_by_hand_is_named(checkout: Path) -> None:
    made = checkout / "detlab" / "client" / "client.py"
    assert make(checkout) == (0, f"{made}\n")
    good = made.read_text()
    assert good.endswith("edit that one, not this.\ndef ask() -> int:\n    return other()\n")
    made.write_text(good.replace("other()", "1"))
    assert make(checkout, "--check") == (1, f"{made} is not current: python {checkout}/make_sync.py\n")
    assert made.read_text() != good
    assert make(checkout) == (0, f"{made}\n")
    assert make(checkout) == make(checkout, "--check") == (0, "")
    assert made.read_text() == good


def test_a_checkout_runs_no_client_that_is_missing_or_made_from_other_sources(checkout: Path) -> None:
    """After `git pull` or in a second worktree, an editable install would run the client of another commit."""
    source = checkout / "detlab" / "client" / "aclient.py"
    refusal = (
        "ImportError: detlab.client: modules of this checkout are missing, or were made from other sources than these: "
        f"aclient.py. Run: python {checkout}/make_sync.py"
    )
    assert imported(checkout) == refusal
    make(checkout)
    assert imported(checkout) == ""
    source.write_text(source.read_text().replace("ask", "ask_more"))
    assert imported(checkout) == refusal
    make(checkout)
    assert imported(checkout) == ""
    script = checkout / "make_sync.py"
    script.write_text(script.read_text() + "# another form\n")
    assert imported(checkout) == refusal


def test_what_is_installed_compares_nothing(checkout: Path) -> None:
    """A wheel has no script; what another package calls so is not run."""
    site = checkout.rename(checkout.with_name("site-packages"))
    (site / "make_sync.py").write_text("raise RuntimeError\n")
    assert imported(site) == ""
    (site / "make_sync.py").unlink()
    assert imported(site) == ""


def imported(folder: Path) -> str:
    """Import `detlab.client` from a folder; return the last line of its complaint."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); import detlab.client"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert (done.returncode == 0) is (done.stderr == ""), done.stderr
    return done.stderr.rstrip("\n").rpartition("\n")[2]


def test_what_is_no_python_is_named_and_changes_nothing(checkout: Path) -> None:
    make(checkout)
    (checkout / "detlab" / "client" / "aclient.py").write_text("x = 1\nasync def ask(:\n")
    assert make(checkout) == (1, "aclient.py: no Python (about line 2): invalid syntax\n")
    assert (checkout / "detlab" / "client" / "client.py").read_text().endswith("return other()\n")


def test_a_watched_source_is_made_anew_at_each_change(checkout: Path) -> None:
    client = checkout / "detlab" / "client"
    made = client / "client.py"
    watching = subprocess.Popen([sys.executable, str(checkout / "make_sync.py"), "--watch"], stderr=subprocess.DEVNULL)
    try:
        for text in ("x = 1\n", "def (\n", "x = 2\n"):
            (client / "aclient.py").write_text(text)
            if "def" not in text:
                until(lambda text=text: made.is_file() and made.read_text().endswith(text))
    finally:
        watching.terminate()
        watching.wait(timeout=30)


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
        ("x = await asyncio.to_thread(\n    pack, 1\n)\n", "x = pack(\n    1\n)\n"),
        ("x = [item async for item in ask()]\n", "x = [item for item in ask()]\n"),
        ("from a import AsyncB, B, C\nB(C)\n", "from a import B, C\nB(C)\n"),
        ("from a import AsyncB as D, E\nD()\n", "from a import B as D\nD()\n"),
        ("import a.b\nfrom c import Awaitable\ndef f(x: Awaitable[a]): ...\n", "import a.b\ndef f(x: a): ...\n"),
        (
            f"def f():\n    from a import AsyncB, B, {LONG}\n    B({LONG})\n",
            f"def f():\n    from a import (\n        B,\n        {LONG},\n    )\n    B({LONG})\n",
        ),
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
