"""What the Tab key offers for a task: its id, or the name of its server if that is what was begun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from detlab.cli.commands.tasks.lookup import _word_of

TASK: Any = SimpleNamespace(id="shell-f2cc6db6a1b2", view=SimpleNamespace(server_name="shell-f2cc6db6"))
NAMED: Any = SimpleNamespace(id="notebook-0123456789ab", view=SimpleNamespace(server_name="analysis"))
BARE: Any = SimpleNamespace(id="command-0123456789ab", view=SimpleNamespace(server_name=None))


@pytest.mark.parametrize(
    ("task", "typed", "offered"),
    [
        (TASK, "", "shell-f2cc6db6a1b2"),
        (TASK, "shell-f2cc6db6", "shell-f2cc6db6a1b2"),
        (NAMED, "", "notebook-0123456789ab"),
        (NAMED, "ana", "analysis"),
        (NAMED, "x", None),
        (BARE, "c", "command-0123456789ab"),
        (BARE, "x", None),
    ],
)
def test_one_word_for_each_task(task: object, typed: str, offered: str | None) -> None:
    assert _word_of(cast(Any, task), typed) == offered
