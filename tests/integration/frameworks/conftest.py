"""Tasks in which programs of other frameworks train; skipped where these are not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from framework_task import FrameworkTask, make_framework_task, needs_frameworks

from detlab.testing.master import MasterDouble


@pytest.fixture
def new_task(tmp_path: Path) -> Iterator[Callable[[str], FrameworkTask]]:
    """Makes a task in a folder of its own, with a master of its own."""
    needs_frameworks()
    with ExitStack() as stack:

        def make(name: str) -> FrameworkTask:
            (tmp_path / name).mkdir()
            return make_framework_task(tmp_path / name, stack.enter_context(MasterDouble()))

        yield make
