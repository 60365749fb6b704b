"""What users hand to the client: numbers of NumPy, torch and Decimal, a text for a list, states, limits, tokens."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from detlab.client.client import Client
from detlab.client.operations import collection, edits, quotas, registry
from detlab.client.ordering import choose_experiments, several
from detlab.client.plain_values import plain
from detlab.client.projects.workspaces import Workspace
from detlab.client.submission import pack
from detlab.client.transport.discovery import ClusterAddress
from detlab.errors import AuthError, ConfigError
from detlab.info import read_token
from detlab.schemas.wire import PersonRequest
from detlab.schemas.wire.workspaces import DefaultsView
from detlab.token_text import one_word
from testbed.fake_master.api import FakeMaster

SECRET = "s3cr3ttoken"
HARNESS = Path(__file__).parents[3] / "harness"


class Size(Enum):
    SMALL = 8


def config(**hparams: Any) -> dict[str, Any]:
    return {"entrypoint": "x", "searcher": {"name": "single", "metric": "loss"}, "hyperparameters": hparams}


VALUES: list[tuple[Callable[[], Any], Any]] = [
    (lambda: Decimal("0.001"), 0.001),
    (lambda: Decimal(64), 64),
    (lambda: Decimal("64.0"), 64.0),
    (lambda: Decimal("1e400"), float("inf")),
    (lambda: Fraction(1, 4), 0.25),
    (lambda: Size.SMALL, 8),
    (lambda: Path("/data/x"), "/data/x"),
    (lambda: (1, 2), [1, 2]),
    (lambda: {"b", "a"}, ["a", "b"]),
    (lambda: _numpy().float32(0.5), 0.5),
    (lambda: _numpy().int64(7), 7),
    (lambda: _numpy().bool_(True), True),
    (lambda: _numpy().str_("adam"), "adam"),
    (lambda: _numpy().float64(0.25), 0.25),
    (lambda: _numpy().array([1, 2]), [1, 2]),
    (lambda: {"deep": [_numpy().int32(3)]}, {"deep": [3]}),
    (lambda: _torch().tensor(0.5), 0.5),
    (lambda: _torch().tensor(3, dtype=_torch().int64), 3),
    (lambda: _torch().nn.Parameter(_torch().tensor(0.5)), 0.5),
    (lambda: _torch().tensor([1, 2]), [1, 2]),
]


def _numpy() -> Any:
    return pytest.importorskip("numpy")


def _torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("case", range(len(VALUES)))
def test_a_value_of_a_program_becomes_what_a_config_can_hold(case: int) -> None:
    make, wanted = VALUES[case]
    found = plain({"v": make()})["v"]
    assert (found, type(found)) == (wanted, type(wanted))


def test_hyperparameters_of_numpy_and_decimal_are_submitted(master: FakeMaster, client: Client) -> None:
    numpy = _numpy()
    made = client.create_experiment(config(lr=Decimal("0.5"), width=numpy.int64(8), tags=(numpy.str_("a"),)))
    sent = made.view.config or {}
    assert sent["hyperparameters"] == {"lr": 0.5, "width": 8, "tags": ["a"]}


def test_all_that_a_config_cannot_hold_is_named_with_its_place(client: Client) -> None:
    with pytest.raises(ConfigError) as raised:
        client.create_experiment(config(model=object(), deep={"x": [1, print]}, empty=_torch().empty(1, device="meta")))
    said = {problem.path: problem.message for problem in raised.value.problems}
    assert said["hyperparameters.model"] == "is a object, which a configuration cannot hold"
    assert "hyperparameters.deep.x[1]" in said
    assert "hyperparameters.empty" in said
    around: dict[str, Any] = {}
    around["self"] = around
    with pytest.raises(ConfigError, match="contains itself"):
        plain(around)


@pytest.mark.parametrize("kind", [str, Path])
def test_one_path_as_includes_is_that_path_and_not_its_letters(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    """`includes="/data"` walked `/`, by letters."""
    (tmp_path / "helper.py").write_text("x = 1")
    began = time.monotonic()
    bundle = pack(None, kind(tmp_path / "helper.py"))
    assert time.monotonic() - began < 10
    assert bundle is not None
    assert [file.path for file in bundle.files] == ["helper.py"]


def test_one_text_in_place_of_several_is_one(client: Client, master: FakeMaster) -> None:
    client.create_experiment({**config(), "labels": ["nightly"]})
    view = client.get_experiment(1).view.model_copy(update={"labels": ["nightly"]})
    assert choose_experiments([view], labels="nightly", users=view.owner, states=view.state.value) == [view]
    assert choose_experiments([view], labels="n") == []
    assert several(None) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.list_experiments(state="RUNING"),
        lambda client: client.list_experiments(states=["RUNING"]),
        lambda client: client.list_tasks(state="RUNING"),
    ],
)
def test_a_state_that_does_not_exist_is_refused_with_those_that_do(
    client: Client, call: Callable[[Client], Any]
) -> None:
    with pytest.raises(ValueError, match=r"no state 'RUNING': it is one of .*ACTIVE.*COMPLETED"):
        call(client)


@pytest.mark.parametrize("limit", [0, -3, 1.5, "10", True])
def test_a_limit_that_cannot_be_is_refused(client: Client, limit: Any) -> None:
    for call in (client.list_experiments, client.list_tasks, client.list_models):
        with pytest.raises(ValueError, match="limit must be a whole number from 1 on"):
            call(limit=limit)


def test_a_state_in_small_letters_is_the_state(client: Client) -> None:
    client.create_experiment(config())
    assert [one.id for one in client.list_experiments(state="active")] == [
        one.id for one in client.list_experiments(state="ACTIVE")
    ]


BROKEN = [f"{SECRET}\nX-Evil: 1", f"{SECRET}\r\nmore", f"{SECRET} more", f"{SECRET}\x00", f"{SECRET}\x7f", f"{SECRET}é"]


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\t\n"])
def test_a_line_end_after_a_token_is_taken_off(master: FakeMaster, end: str) -> None:
    with Client(master.url, f" {master.token}{end}") as client:
        assert client.whoami().name == "alice"


@pytest.mark.parametrize("token", BROKEN)
def test_a_token_with_a_line_end_inside_is_refused_and_not_shown(token: str, tmp_path: Path) -> None:
    with pytest.raises(AuthError) as raised:
        Client("http://127.0.0.1:1", token)
    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert SECRET not in shown
    assert "one word" in str(raised.value.hint)
    with pytest.raises(AuthError) as again:
        one_word(token, "the file")
    assert SECRET not in str(again.value)
    (tmp_path / "token").write_bytes(token.encode())
    with pytest.raises(AuthError) as third:
        read_token(tmp_path)
    assert SECRET not in "".join(traceback.format_exception(third.value))


def test_neither_client_nor_address_shows_its_token(master: FakeMaster) -> None:
    address = ClusterAddress(master.url, SECRET, "a test")
    with Client(address=address) as client:
        assert SECRET not in f"{address!r} {client!r} {client.session!r}"


def det(*words: str, out: Any = subprocess.PIPE, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    program = [str(Path(sys.executable).with_name("det")), *words]
    if shell:
        program = ["sh", "-c", shell, "sh", *program]
    return subprocess.run(
        program, stdout=out, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("token", [BROKEN[0], BROKEN[2]])
def test_the_command_line_never_shows_a_broken_token(token: str) -> None:
    ended = det("e", "list", DET_URL="http://127.0.0.1:1", DET_TOKEN=token)
    assert ended.returncode == 1
    assert SECRET not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert "is no token" in ended.stderr
    debug = det("e", "list", DET_URL="http://127.0.0.1:1", DET_TOKEN=token, DET_DEBUG="1")
    assert SECRET not in debug.stdout + debug.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("e", "list"), ("e", "list", "--json"), ("--help",)])
@pytest.mark.parametrize(
    "shell", ['"$@" >/dev/full', '"$@" >&-', '"$@" | head -c 1 >/dev/null', '"$@" >/dev/full 2>&1']
)
def test_a_full_or_closed_output_gives_no_traceback(
    master: FakeMaster, client: Client, words: tuple[str, ...], shell: str
) -> None:
    client.create_experiment(config())
    ended = det(*words, shell=shell, DET_URL=master.url, DET_TOKEN=master.token)
    for word in ("Traceback", "Exception ignored", "BrokenPipeError", "lost sys.stderr"):
        assert word not in ended.stderr, ended.stderr
    if "/dev/full" in shell:
        assert ended.returncode == 1
        assert "2>&1" in shell or "No space left on device" in ended.stderr


@pytest.mark.slow
def test_the_json_of_an_error_on_a_full_output_gives_no_traceback() -> None:
    ended = det("e", "list", "--json", shell='"$@" >/dev/full', DET_URL="http://127.0.0.1:1", DET_TOKEN="x")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert json.dumps("x") not in ended.stderr


REFUSED: list[Callable[[], object]] = [
    lambda: quotas.set_quota("user", ""),
    lambda: quotas.set_quota("nobody", "a", -1),  # type: ignore[arg-type]
    lambda: edits.experiment(1, nme="x"),
    lambda: edits.experiment(1, labels="x" * 3000),
    lambda: next(iter(collection.bookmark("uuid", "x" * 3000))),
    lambda: next(iter(registry.share("digits", "everybody", "ada"))),
]


@pytest.mark.parametrize("ask", REFUSED)
def test_what_no_request_can_say_is_an_error_in_our_words(ask: Callable[[], object]) -> None:
    """It was pydantic's own text, with the name of a class and an address."""
    with pytest.raises(ConfigError) as refused:
        ask()
    text = f"{refused.value} {refused.value.hint}"
    assert text.startswith("the request is not valid\n  ")
    assert "pydantic" not in text
    assert "Input should" not in text
    assert len(text) < 300


def requests_made_outside(path: Path) -> set[str]:
    """The requests of people that a module makes without `valid_request`."""
    module = importlib.import_module(".".join(path.with_suffix("").relative_to(HARNESS).parts))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and "valid_request" in ast.dump(node.items[0])
        for inner in ast.walk(node)
    }
    made = (
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in guarded and isinstance(node.func, ast.Name)
    )
    kinds = {name: getattr(module, name, None) for name in made}
    return {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, PersonRequest)}


def test_requests_are_made_where_what_is_refused_is_said() -> None:
    own_values = {"CreateTask", "GcRequest", "EmptyTrash", "JobUpdate"}  # made of values that have been checked
    folders = ("client/operations", "client/parts", "cli/commands")
    modules = [path for folder in folders for path in (HARNESS / "detlab" / folder).rglob("*.py")]
    outside = {str(path.relative_to(HARNESS)): requests_made_outside(path) - own_values for path in modules}
    assert {path: names for path, names in outside.items() if names} == {}


def test_all_that_a_workspace_gives_can_be_set():
    """`det workspace set-defaults` writes the whole view again: what the method had not, it refused to set at all."""
    assert inspect.signature(Workspace.set_defaults).parameters.keys() - {"self"} == DefaultsView.model_fields.keys()
