"""Variables of the notebook in the lines of magics: each form that IPython or cells know."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from detlab_magics.errors import MagicError
from detlab_magics.experimentmagics import ExperimentMagics
from detlab_magics.kernel import KernelSession
from detlab_magics.taskmagics import TaskMagics


class Asked(Exception):
    """The magic has read its line."""


class Session(KernelSession):
    """Says for which experiment it is asked."""

    def experiment_id(self, given: int | None = None) -> int | None:
        raise Asked(given)


@pytest.fixture
def shell():
    shell = InteractiveShell()
    shell.register_magics(ExperimentMagics(shell, Session()))
    shell.register_magics(TaskMagics(shell, Session()))
    shell.user_ns |= {"sid": 38, "none": None}
    return shell


@pytest.mark.parametrize("magic", ["det_fork", "det_watch", "det_pause", "det_kill"])
@pytest.mark.parametrize("line", ["${sid}", "$sid", "{sid}", "{sid + 0}", "38"])
def test_each_form_means_the_variable(shell: InteractiveShell, magic: str, line: str) -> None:
    with pytest.raises(Asked, match="38"):
        shell.run_line_magic(magic, line)


def test_what_is_no_variable_is_told_as_it_was_written(shell: InteractiveShell) -> None:
    with pytest.raises(MagicError, match="argument id: invalid int value"):
        shell.run_line_magic("det_fork", "${nothing_of_that_name}")


def test_all_line_magics_take_them(shell: InteractiveShell) -> None:
    lines = shell.magics_manager.magics["line"]
    ours = {name: one for name, one in lines.items() if name.startswith("det_")}
    assert len(ours) > 15
    assert {name for name, one in ours.items() if not getattr(one, "_ipython_magic_no_var_expand", False)} == set()
