"""Progress bars for uploads, downloads and imports: on a terminal only, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from detlab.cli.output.printing import console
from detlab.client.transport.calls import Progress


@contextmanager
def bar(label: str, *, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield a progress callback that draws a bar, or None where no one would see it."""
    target = console(err=True)
    if quiet or not target.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=target, transient=True) as bars:
        task = bars.add_task(label, total=None)

        def advance(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        yield advance


@contextmanager
def counting_bar(label: str, *, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield a callback that draws a bar of things done and known, or None where no one would see it."""
    target = console(err=True)
    if quiet or not target.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=target, transient=True) as bars:
        task = bars.add_task(label, total=None)

        def advance(done: int, known: int) -> None:
            bars.update(task, completed=done, total=known)

        yield advance
