"""`make affected`: which tests a change reaches, in a made-up repository and in this one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from affected.__main__ import summary, write
from affected.choosing import QUICK, Choice, choose
from affected.graph import FRONT_ENDS
from affected.repository import Change, Unknown, change

ROOT = Path(__file__).parents[3]
PROJECT = """
[project]
name = "toy"
[project.scripts]
det = "detlab_toy.cli:main"
[project.entry-points."detlab.toys"]
ball = "detlab_toy.toys.ball:Ball"
kite = "detlab_toy.toys.kite:Kite"
"""
TREE = {
    "pyproject.toml": PROJECT,
    ".gitignore": "/harness/detlab_toy/client.py\n",
    "harness/make_sync.py": (
        "from pathlib import Path\nCLIENT = Path(__file__).parent / 'detlab_toy'\n"
        "MODULES = {'aclient.py': 'client.py'}\n"
    ),
    "harness/detlab_toy/aclient.py": "",
    "harness/detlab_toy/client.py": "",
    "harness/detlab_toy/__init__.py": "def __getattr__(name):\n    from detlab_toy import late\n    return late\n",
    "harness/detlab_toy/files.py": "",
    "harness/detlab_toy/late.py": "",
    "harness/detlab_toy/wire.py": "",
    "harness/detlab_toy/toys/__init__.py": "",
    "harness/detlab_toy/toys/registry.py": (
        'from detlab_toy import files\nTOYS = Plugins("detlab.toys", "toy")\n'
        "def toy_names():\n    return TOYS.names()\n"
    ),
    "harness/detlab_toy/toys/ball.py": "",
    "harness/detlab_toy/toys/kite.py": "",
    "harness/detlab_toy/page.py": 'from detlab_toy.toys import registry\nTEMPLATE = "page.html"\n',
    "harness/detlab_toy/page.html": "",
    "harness/detlab_toy/starter.py": 'import subprocess\nCOMMAND = [python, "-m", "detlab_toy.started"]\n',
    "harness/detlab_toy/says.py": 'COMMAND = [python, "-m", "detlab_toy.started"]\n',
    "harness/detlab_toy/started.py": "",
    "harness/detlab_toy/typed.py": "if TYPE_CHECKING:\n    from detlab_toy import wire\n",
    "labextension/wire.py": "from detlab_toy import wire\n",
    "labextension/src/state/wire.ts": "",
    "docs/page.md": "",
    "bench/odd.dat": "",
    "tests/conftest.py": (
        "import pytest\nfrom testbed import server\nfrom detlab_toy import files\n"
        "@pytest.fixture\ndef served(address):\n    return _serve()\n"
        "def _serve():\n    return server\n"
        "@pytest.fixture\ndef address():\n    return files\n"
        "@pytest.fixture\ndef plain():\n    return 1\n"
    ),
    "tests/testbed/__init__.py": "",
    "tests/testbed/server.py": "from detlab_toy import page\n",
    "tests/unit/toys/journals/first.toml": "",
    "tests/unit/toys/toy_helpers.py": "from detlab_toy.toys import registry\n",
    "tests/unit/toys/test_ball.py": (
        "import toy_helpers\nCONFIG = 'searcher: {name: ball}'\n"
        "def test_one(plain): ...\nclass TestMore:\n    def test_two(self): ...\n"
    ),
    "tests/unit/toys/test_all_toys.py": "from detlab_toy.toys.registry import toy_names\ndef test_all(): ...\n",
    "tests/unit/toys/test_journals.py": "ALL = Path('x') / 'journals'\ndef test_replay(): ...\n",
    "tests/unit/test_words.py": "WORD = 'ball'\ndef test_word(plain): ...\n",
    "tests/unit/test_served.py": "def test_served(served): ...\n",
    "tests/unit/test_by_string.py": "@pytest.mark.usefixtures('served')\ndef test_served(): ...\n",
    "tests/unit/test_late.py": "import detlab_toy\ndef test_late():\n    detlab_toy.late\n",
    "tests/unit/test_client.py": "from detlab_toy.client import Client\ndef test_client(): ...\n",
    "tests/unit/test_starter.py": "from detlab_toy import starter\ndef test_starts(): ...\n",
    "tests/unit/test_says.py": "from detlab_toy import says, typed\ndef test_says(): ...\n",
    "tests/unit/house/test_rules.py": "def test_rules(): ...\n",
    "tests/docs/test_links.py": "def test_links(): ...\n",
    "tests/docs/test_page.py": "import pytest\npytestmark = pytest.mark.hub\nPAGE = 'page.md'\ndef test_page(): ...\n",
    "tests/e2e/test_browser.py": "from playwright.sync_api import Page\ndef test_shown(): ...\n",
    "tests/simulation/test_promises.py": "from detlab_toy import files\ndef test_promise(): ...\n",
}
ALWAYS = ["tests/docs/test_links.py", "tests/unit/house/test_rules.py"]
QUICK_ONES = sorted(path for path in TREE if path.startswith("tests/unit/") and "/test_" in path)
Chosen = Callable[..., Choice]


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", "-C", root, *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository with one commit on its main branch."""
    root = tmp_path_factory.mktemp("repository")
    for path, text in TREE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    git(root, "init", "--initial-branch=main")
    git(root, "add", ".")
    git(root, "commit", "--message=all")
    return root


@pytest.fixture
def chosen(tree: Path) -> Chosen:
    """Chooses for changes of some files of that repository."""

    def choose_for(*files: str, targets: frozenset[str] = frozenset()) -> Choice:
        return choose(tree, Change("main", frozenset(files), targets))

    return choose_for


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("harness/detlab_toy/toys/ball.py", ["toys/test_all_toys.py", "toys/test_ball.py"]),
        ("harness/detlab_toy/toys/kite.py", ["toys/test_all_toys.py"]),
        ("harness/detlab_toy/late.py", ["test_late.py"]),
        ("harness/detlab_toy/started.py", ["test_starter.py"]),
        ("harness/detlab_toy/aclient.py", ["test_client.py"]),
        ("harness/make_sync.py", ["test_client.py"]),
        ("harness/detlab_toy/page.html", ["test_by_string.py", "test_served.py"]),
        ("harness/detlab_toy/page.py", ["test_by_string.py", "test_served.py"]),
        ("tests/unit/toys/journals/first.toml", ["toys/test_journals.py"]),
        ("tests/unit/toys/toy_helpers.py", ["toys/test_ball.py"]),
        ("tests/unit/test_words.py", ["test_words.py"]),
    ],
)
def test_a_change_reaches_what_imports_names_loads_starts_or_asks_for_it(
    chosen: Chosen, changed: str, reached: list[str]
) -> None:
    choice = chosen(changed)
    assert choice.unknown == ()
    assert sorted(choice.tests) == sorted([*ALWAYS, *(f"tests/unit/{path}" for path in reached)])
    assert not choice.front_ends


def test_a_wire_model_reaches_the_front_ends_and_every_browser(chosen: Chosen) -> None:
    for path in ("harness/detlab_toy/wire.py", "labextension/src/state/wire.ts"):
        choice = chosen(path)
        assert choice.front_ends
        assert sorted(choice.tests) == sorted([*ALWAYS, "tests/e2e/test_browser.py"])


def test_a_common_file_reaches_most_and_simulations_come_last(chosen: Chosen) -> None:
    choice = chosen("harness/detlab_toy/files.py")
    assert choice.tests[-1] == "tests/simulation/test_promises.py"
    assert {"tests/unit/test_served.py", "tests/unit/toys/test_ball.py"} <= set(choice.tests)


def test_fixtures_for_all_change_all_beneath_them(chosen: Chosen, tree: Path) -> None:
    assert set(chosen("tests/conftest.py").tests) == {path for path in TREE if "/test_" in path}


def test_what_nothing_is_known_of_has_all_quick_tests(chosen: Chosen) -> None:
    for path in ("bench/odd.dat", "pyproject.toml"):
        choice = chosen(path)
        assert choice.unknown == (path,)
        assert sorted(choice.tests) == sorted({*QUICK_ONES, *ALWAYS})
        assert "nothing says which tests concern" in choice.why("tests/unit/test_words.py")[0]


def test_a_page_has_the_cheap_tests_and_those_that_name_it(chosen: Chosen) -> None:
    assert sorted(chosen("docs/page.md").tests) == sorted([*ALWAYS, "tests/docs/test_page.py"])
    assert sorted(chosen("docs/other.md").tests) == ALWAYS


def test_why_a_file_is_chosen_is_said_step_by_step(chosen: Chosen) -> None:
    choice = chosen("harness/detlab_toy/page.html")
    assert choice.why("tests/unit/test_served.py") == [
        "tests/unit/test_served.py asks for the fixture served of tests/conftest.py::served",
        "tests/conftest.py::served imports tests/testbed/server.py",
        "tests/testbed/server.py imports harness/detlab_toy/page.py",
        "harness/detlab_toy/page.py names harness/detlab_toy/page.html",
        "harness/detlab_toy/page.html has changed",
    ]
    assert "always runs" in choice.why("tests/unit/house/test_rules.py")[0]
    assert "is not chosen" in choice.why("tests/unit/test_words.py")[0]
    assert choice.count(["tests/unit/toys/test_ball.py"]) == 2


def test_what_runs_is_said_and_written_for_pytest(chosen: Chosen, tree: Path, tmp_path: Path) -> None:
    choice = chosen("harness/detlab_toy/wire.py")
    said = summary(tree, Change("abc", frozenset({"harness/detlab_toy/wire.py"}), frozenset()), choice, choice.tests)
    assert said[0].startswith("1 files changed since abc. To run: 3 of ")
    assert said[0].endswith("and the front ends' own.")
    write(tree, tmp_path / "chosen", choice.tests, front=choice.front_ends)
    assert sorted((tmp_path / "chosen" / "tests").read_text().split()) == sorted(choice.tests)
    assert {path.name for path in (tmp_path / "chosen").iterdir()} == {"tests", "front"}


def test_git_says_what_changed_and_which_entry_points(tree: Path) -> None:
    edits: Mapping[str, str | None] = {
        "pyproject.toml": PROJECT.replace("toys.kite:Kite", "toys.glider:Glider"),
        "harness/detlab_toy/toys/kite.py": None,
        "harness/detlab_toy/toys/glider.py": "",
    }
    try:
        for path, text in edits.items():
            if text is None:
                (tree / path).unlink()
            else:
                (tree / path).write_text(text)
        found = change(tree)
        assert found.files == {"harness/detlab_toy/toys/kite.py", "harness/detlab_toy/toys/glider.py"}
        assert found.targets == {"detlab_toy.toys.kite", "detlab_toy.toys.glider"}
        assert "tests/unit/toys/test_all_toys.py" in choose(tree, found).tests
        with pytest.raises(Unknown, match="no-such-commit"):
            change(tree, "no-such-commit")
    finally:
        git(tree, "checkout", ".")
        git(tree, "clean", "-fd")


def test_a_deleted_module_reaches_who_still_imports_it(tree: Path, chosen: Chosen) -> None:
    gone = tree / "harness/detlab_toy/page.py"
    gone.unlink()
    try:
        assert "tests/unit/test_served.py" in chosen("harness/detlab_toy/page.py").tests
    finally:
        git(tree, "checkout", ".")


@pytest.fixture(scope="module")
def real() -> Callable[[str], set[str]]:
    """The nodes that a change of one file of this repository reaches."""
    graph = choose(ROOT, Change("HEAD", frozenset(), frozenset())).graph
    return lambda path: set(graph.reached({path: "has changed"}))


def only_tests(nodes: set[str]) -> list[str]:
    return sorted(path for path in nodes if path.startswith("tests/") and "/test_" in path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_here_a_searcher_reaches_its_own_tests_and_no_web_page(real: Callable[[str], set[str]]) -> None:
    reached = only_tests(real("hub_ext/detlab_hub/core/searchers/population/pb2.py"))
    assert any(path.startswith("tests/unit/searchers/") for path in reached)
    assert [path for path in reached if "/web/" in path or "/front/" in path or "/lab/" in path] == []
    assert len(reached) < 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_here_wire_reaches_the_front_ends_and_the_harness_does_not(real: Callable[[str], set[str]]) -> None:
    assert FRONT_ENDS in real("harness/detlab/schemas/wire/views.py")
    assert FRONT_ENDS not in real("harness/detlab/pytorch/trainer.py")
    assert "tests/e2e/front/test_hub_page.py" in real("labextension/src/hub/App.tsx")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_here_what_all_read_files_with_reaches_most(real: Callable[[str], set[str]]) -> None:
    every = list((ROOT / "tests").rglob("test_*.py"))
    reached = only_tests(real("harness/detlab/files.py"))
    assert len(reached) > 0.7 * len(every)
    assert any(path.startswith(QUICK) for path in reached)
