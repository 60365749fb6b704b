"""Each command of Determined's and each long option is here, or refused by name with what to use instead."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from docs_snippets import DOCS

from detlab.cli.determined_options import COMMANDS, INSTEAD, instead_of, instead_of_command
from detlab.cli.root import det

sys.path.insert(0, str(DOCS))
from reference_pages import determined, determined_coverage


@pytest.mark.parametrize("words", determined.OPTIONS)
def test_an_option_of_determined_s_is_here_or_has_a_hint(words: str) -> None:
    own = determined.options_of(words)
    typed = {f"--{name}" for name in determined.OPTIONS[words].split()}
    assert sorted(name for name in typed - own if not instead_of(words, name)) == []
    assert sorted(own & INSTEAD.get(words, {}).keys()) == []


def test_every_command_of_determined_s_that_is_here_has_its_options_listed() -> None:
    assert set(INSTEAD) <= set(determined.OPTIONS)
    assert [words for words in determined.OPTIONS if not determined.exists(words)] == []


@pytest.mark.parametrize("group", determined.COMMANDS)
def test_a_command_of_determined_s_is_here_or_has_a_hint(group: str) -> None:
    names = [f"{group} {leaf}" for leaf in determined.COMMANDS[group].split()]
    assert [name for name in names if not determined.exists(name) and not instead_of_command(name.split())] == []


def test_what_is_refused_is_not_here() -> None:
    """A hint of a command that came since would be a lie; of `user` and the like only some commands are here."""
    leaves = [f"{group} {leaf}" for group, names in determined.COMMANDS.items() for leaf in names.split()]
    assert [name for name in COMMANDS if name in leaves and determined.exists(name)] == []


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("experiment", "create", "-t", "a", "b"), "-t of Determined is not here: --dry-run"),
        (("e", "create", "--test-mode", "a", "b"), "--test-mode of Determined is not here: --dry-run"),
        (("cmd", "run", "--preview", "a"), "--preview of Determined is not here"),
        (("j", "ls", "-p", "gpu"), "use --pool"),
        (("j", "update", "experiment-1", "--resource-pool=gpu"), "use --pool"),
        (("nb", "start", "--preview"), "--preview of Determined is not here: `det config resolve` prints"),
        (("user", "logout", "-a"), "det logout URL"),
        (("e", "list", "--frobnicate"), "No such option"),
        (("workspace", "create", "vision", "-n", "pods"), "-n of Determined is not here: the namespace of pods"),
        (("workspace", "list-pools", "vision"), "`det workspace list-pools` of Determined is not here: det pool list"),
        (("w", "bindings", "list", "vision"), "`det workspace bindings` of Determined is not here"),
        (("user-group", "create", "vision"), "/hub/admin"),
        (("workspace", "resource-quota", "set", "x"), "det quota set"),
        (
            ("e", "set", "max-slots", "7", "10"),
            "`det experiment set max-slots` of Determined is not here: det search concurrency",
        ),
        (
            ("deploy", "local", "cluster-up", "--no-gpu"),
            "`det deploy local cluster-up` of Determined is not here: det up",
        ),
        (("deploy", "aws", "up"), "`det deploy` of Determined is not here"),
        (("user", "change-password", "ada"), "/hub/admin"),
        (("user", "frobnicate"), "No such command 'frobnicate'"),
        (("dev", "bindings", "list"), "det dev curl"),
        (("trial", "set", "log-retention", "3"), "det experiment set log-retention"),
        (("e", "help"), "use --help"),
        (("help",), "use --help"),
        (("frobnicate",), "No such command 'frobnicate'."),
        (("e", "lst"), "No such command 'lst'. Did you mean"),
    ],
)
def test_whoever_types_one_is_told(typed: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(det, list(typed))
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("option", ["-w", "--workspace-name", "--project-id"])
@pytest.mark.parametrize("words", ["notebook start", "shell start", "command run", "tensorboard start",
                                   "notebook list", "shell list", "command list", "tensorboard list"])  # fmt: skip
def test_the_workspace_of_a_user_task_is_named_as_determined_does(words: str, option: str) -> None:
    result = CliRunner().invoke(det, [*words.split(), "--help"])
    assert (result.exit_code, option in result.output) == (0, True)


# --- the table in "Come from Determined"


def test_every_leaf_command_for_what_teams_manage_has_its_row() -> None:
    """The command tree is read: one that is removed, or a hint that names none, fails here."""
    rows = determined_coverage.coverage()
    groups = {words.split()[0] for words in determined.COMMANDS}
    wanted = {"experiment", "trial", "checkpoint", "workspace", "project", "rbac", "user-group"}
    assert wanted <= groups
    leaves = [f"{group} {leaf}" for group, names in determined.COMMANDS.items() for leaf in names.split()]
    assert sorted(words for words, _, _ in rows) == sorted(words for words in leaves if words.split()[0] in wanted)
    told = (DOCS / "how-to" / "come-from-determined.md").read_text(encoding="utf-8")
    for words, kind, text in rows:
        assert f"| `det {words}` | {kind} | {text}".rstrip() in told.replace("\\|", "|"), "run: python docs/generate.py"
        assert text or kind == determined_coverage.SAME, words


def test_a_command_of_these_that_is_here_has_its_options_listed() -> None:
    here = {words for words, kind, _ in determined_coverage.coverage() if kind == determined_coverage.SAME}
    assert here <= set(determined.OPTIONS)


def test_a_row_that_names_another_command_names_one_that_is_here() -> None:
    named = [
        determined_coverage.other_name(text) for _, kind, text in determined_coverage.coverage() if kind == "other name"
    ]
    assert "search concurrency" in named
    with pytest.raises(ValueError, match="no such command"):
        determined_coverage.other_name("det frobnicate ID")
    assert determined_coverage.other_name("the Hub has the groups: its admin page") is None
