"""Each command of Determined's and each long option is here, or refused by name with what to use instead."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from docs_snippets import DOCS

from detlab.cli.determined_options import COMMANDS, INSTEAD, instead_of, instead_of_command
from detlab.cli.root import det

sys.path.insert(0, str(DOCS))
from reference_pages import determined


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
        (("cmd", "list", "--workspace-name", "a"), "--workspace-name of Determined is not here"),
        (("j", "ls", "-p", "gpu"), "use --pool"),
        (("j", "update", "experiment-1", "--resource-pool=gpu"), "use --pool"),
        (("nb", "start", "-w", "vision"), "-w of Determined is not here: user tasks are in no workspace"),
        (("user", "logout", "-a"), "det logout URL"),
        (("e", "list", "--frobnicate"), "No such option"),
        (("workspace", "list-pools", "vision"), "`det workspace list-pools` of Determined is not here: det pool list"),
        (("w", "bindings", "list", "vision"), "`det workspace bindings` of Determined is not here"),
        (("user-group", "create", "vision"), "/hub/admin"),
        (("workspace", "resource-quota", "set", "x"), "det quota set"),
        (
            ("e", "set", "priority", "7", "10"),
            "`det experiment set priority` of Determined is not here: det job update",
        ),
        (
            ("deploy", "local", "cluster-up", "--no-gpu"),
            "`det deploy local cluster-up` of Determined is not here: det up",
        ),
        (("deploy", "aws", "up"), "`det deploy` of Determined is not here"),
        (("user", "create", "ada"), "/hub/admin"),
        (("user", "frobnicate"), "No such command 'frobnicate'"),
        (("master", "info"), "det version"),
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
