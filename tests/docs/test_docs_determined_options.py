"""Each long option of Determined's commands is here, or refused by name with what to use instead."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner
from docs_snippets import DOCS

from detlab.cli.determined_options import INSTEAD, instead_of
from detlab.cli.root import det

sys.path.insert(0, str(DOCS))
from reference_pages import determined


@pytest.mark.parametrize("words", determined.OPTIONS)
def test_an_option_of_determined_s_is_here_or_has_a_hint(words: str) -> None:
    own = determined.options_of(words)
    typed = {f"--{name}" for name in determined.OPTIONS[words].split()}
    assert sorted(name for name in typed - own if not instead_of(words, name)) == []
    assert sorted(name for name in own & INSTEAD.get(words, {}).keys()) == []


def test_every_command_of_determined_s_that_is_here_has_its_options_listed() -> None:
    assert set(INSTEAD) <= set(determined.OPTIONS)
    assert [words for words in determined.OPTIONS if not determined.exists(words)] == []


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (("experiment", "create", "-t", "a", "b"), "-t of Determined is not here: --dry-run"),
        (("e", "create", "--test-mode", "a", "b"), "--test-mode of Determined is not here: --dry-run"),
        (("cmd", "list", "--workspace-name", "a"), "--workspace-name of Determined is not here"),
        (("j", "ls", "-p", "gpu"), "use --pool"),
        (("j", "update", "experiment-1", "--resource-pool=gpu"), "use --pool"),
        (("e", "list", "--frobnicate"), "No such option"),
    ],
)
def test_whoever_types_one_is_told(typed: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(det, list(typed))
    assert result.exit_code == 2
    assert says in result.stderr
