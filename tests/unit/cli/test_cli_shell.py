"""`det` as a process: help, speed, plug-ins, pipes, interrupts, colours."""

import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from detlab.cli.loading import PLUGINS, LazyGroup, declared
from detlab.cli.root import COMMANDS, SHORT
from detlab.cli.root import det as root
from detlab.errors import DetlabError
from testbed.fake_master.api import FakeMaster

DET = [sys.executable, "-c", "from detlab.cli import main; main()"]


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DET, *words], capture_output=True, text=True, timeout=60, env={**os.environ, **environ}, check=False
    )


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, (*path, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom detlab.cli.root import det\n"
        "try:\n    det.main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "bad = {'torch', 'httpx', 'pydantic', 'rich', 'yaml', 'jupyterhub', 'tornado', 'sqlalchemy'}\n"
        "print('LOADED', sorted(bad & set(sys.modules)))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.stdout.splitlines()[-1] == "LOADED []"
    # Processor time, which a busy machine does not lengthen as it does the time on the clock.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.5, f"det --help took {spent:.2f} s of processor time"
    for name in COMMANDS:
        assert f"  {name}" in found.stdout


def test_a_command_is_declared_in_its_module_which_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    package = ModuleType("somewhere")
    package.__path__ = [str(tmp_path)]
    (tmp_path / "inner" / "one.py").write_text('raise SystemExit\n\nCOMMANDS = {"do-it": "Do it, {now}."}\n')
    (tmp_path / "two.py").write_text('import os\nCOMMANDS = {\n    "a": "An A.",\n    "import": "A B.",\n}\nX = {}\n')
    (tmp_path / "three.py").write_text('"""No command: COMMANDS = {}."""\n')
    found = declared(package)
    assert {name: (lazy.help, lazy.target) for name, lazy in found.items()} == {
        "do-it": ("Do it, {now}.", "somewhere.inner.one:do_it"),
        "a": ("An A.", "somewhere.two:a"),
        "import": ("A B.", "somewhere.two:import_"),
    }
    (tmp_path / "three.py").write_text('COMMANDS = {"a": "Another A."}\n')
    with pytest.raises(ValueError, match=r"det a is declared by somewhere\.two and by somewhere\.three:a"):
        declared(package)


def test_a_command_that_submits_nothing_loads_no_configs() -> None:
    code = (
        "import sys\nfrom detlab.cli.root import det\n"
        "try:\n    det.main(['--master', 'http://127.0.0.1:9', 'experiment', 'list'])\nexcept SystemExit as end:\n"
        "    assert end.code == 1\n"
        "bad = {'torch', 'numpy', 'yaml', 'tornado', 'sqlalchemy', 'detlab.schemas.expconf'}\n"
        "print('LOADED', sorted(bad & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "127.0.0.1:9" in found.stderr
    assert found.stdout.splitlines()[-1] == "LOADED []"


def test_every_command_of_ours_has_help_with_an_example() -> None:
    count = 0
    for path, command in leaves(root):
        if path[0] in {"up", "down", "status", "preview-search"} or path == ("agent", "run"):
            continue
        count += 1
        text = command.get_help(click.Context(command, info_name=path[-1]))
        assert "Example" in text, path
        assert f"det {path[0]}" in text or any(f"det {short} " in text for short in SHORT), path
    assert count > 25


def test_every_command_of_ours_has_its_line_in_the_help() -> None:
    """Regression: backup and restore were "(of an installed plug-in)"."""
    assert "installed plug-in" not in CliRunner().invoke(root, ["--help"]).stdout


def test_short_names_lead_to_the_same_command() -> None:
    context = click.Context(root)
    for short, name in SHORT.items():
        assert root.get_command(context, short) is root.get_command(context, name)


HELLO = """
import click

other = click.Command("other", callback=lambda: None)
no_command = "hello"
"""


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with commands of its own."""
    info = tmp_path / "detlab_hello-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: detlab-hello\nVersion: 1.0\n")
    points = "hello = hello_of_ours:other\nbroken = no_such_module:command\nnumber = hello_of_ours:no_command\n"
    (info / "entry_points.txt").write_text(f"[detlab.commands]\n{points}status = hello_of_ours:other\n")
    (tmp_path / "hello_of_ours.py").write_text(HELLO)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        PLUGINS.forget()
        yield
    PLUGINS.forget()


@pytest.mark.usefixtures("plug_ins")
def test_plug_in_commands_load_only_when_called() -> None:
    context = click.Context(root)
    assert {"broken", "hello"} <= set(root.list_commands(context))
    assert "hello_of_ours" not in sys.modules
    assert root.get_command(context, "hello").name == "hello"
    assert "hello_of_ours" in sys.modules


@pytest.mark.usefixtures("plug_ins")
def test_what_is_wrong_with_a_plug_in_command_is_told() -> None:
    context = click.Context(root)
    with pytest.raises(DetlabError, match=r"command 'broken' of detlab-hello .*cannot be loaded: ModuleNotFoundError"):
        root.get_command(context, "broken")
    with pytest.raises(DetlabError, match="number = hello_of_ours:no_command is not a click command"):
        root.get_command(context, "number")


@pytest.mark.usefixtures("plug_ins")
def test_no_package_takes_a_command_of_detlab() -> None:
    assert PLUGINS.origin("status") == "detlab_hub.commands:status"


def test_a_command_whose_extra_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detlab_hub.commands", None)
    for words in (["up", "--port", "1"], ["status"]):
        result = CliRunner().invoke(root, words)
        assert result.exit_code == 1
        assert "pip install 'detlab[hub]'" in result.stderr


def test_the_agent_is_mounted_below_its_group() -> None:
    context = click.Context(root)
    group = root.get_command(context, "agent")
    assert isinstance(group, LazyGroup)
    assert group.list_commands(context) == ["disable", "drain", "enable", "enrol", "list", "pin", "remove", "run"]
    assert "agent-run" not in root.list_commands(context)


def test_unknown_commands_suggest_near_ones() -> None:
    result = run("experimnt", "list")
    assert result.returncode == 2
    assert "experiment" in result.stderr


def test_completion() -> None:
    words = {"_DET_COMPLETE": "bash_complete", "COMP_WORDS": "det exp", "COMP_CWORD": "1"}
    assert "plain,experiment" in run(**words).stdout


@pytest.fixture
def cluster(master: FakeMaster) -> dict[str, str]:
    for n in range(10):
        master.add_experiment(f"e{n}")
    master.add_trial(1)
    master.log(1, "first")
    return {"DET_URL": master.url, "DET_TOKEN": master.token}


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(master: FakeMaster, cluster: dict[str, str]) -> None:
    """Regression: click 8.5 takes a closed pipe for success (status 0)."""
    for n in range(2000):
        master.log(1, f"line {n}" * 20)
    with subprocess.Popen(
        [*DET, "t", "logs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **cluster},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [("t", "logs", "1", "-f"), ("e", "logs", "1", "-f"), ("e", "wait", "1")])
def test_ctrl_c_stops_following_never_the_job(
    master: FakeMaster, cluster: dict[str, str], words: tuple[str, ...]
) -> None:
    with subprocess.Popen(
        [*DET, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **cluster}
    ) as process:
        assert process.stdout is not None
        if "logs" in words:
            assert process.stdout.readline() == "first\n"
        else:
            master.await_request("GET", "experiments/1/stream")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues" in errors
    assert "Traceback" not in errors


def test_no_colours_in_pipes(cluster: dict[str, str]) -> None:
    result = run("e", "list", "-n", "5", **cluster)
    assert "\x1b" not in result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 7


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "coloured"), [("COLORTERM", True), ("NO_COLOR", False)])
def test_colours_on_a_terminal_unless_told_not_to(cluster: dict[str, str], variable: str, coloured: bool) -> None:
    reader, writer = pty.openpty()
    environ = {**os.environ, **cluster, "TERM": "xterm-256color", "COLUMNS": "150", variable: "1"}
    with subprocess.Popen([*DET, "e", "list"], stdout=writer, stderr=writer, env=environ) as process:
        os.close(writer)
        seen = b""
        while b"e0 " not in seen:
            seen += os.read(reader, 65536)
        assert process.wait(60) == 0
    os.close(reader)
    assert (b"\x1b[36mACTIVE" in seen) is coloured
