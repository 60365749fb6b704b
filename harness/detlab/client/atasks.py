"""User tasks (notebooks, shells, commands …) as asynchronous objects."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from detlab.client.operations import tasks as operations
from detlab.client.task_facts import (
    TaskFacts,
    Tell,
    all_events_feed,
    chosen_outputs,
    output_target,
    task_log_feed,
    timed_out,
    write_output,
)
from detlab.client.transport.afeeds import Notice, follow
from detlab.client.transport.alines import AsyncWrittenLines
from detlab.client.transport.calls import Flow
from detlab.client.transport.interrupts import short_interrupts, stopped_waiting
from detlab.client.transport.session import AsyncSession
from detlab.schemas.taskwire import OutputView, TaskView
from detlab.schemas.wire import LogLine, TrialState


class AsyncTask(AsyncWrittenLines, TaskFacts):
    """A notebook, shell, command, TensorBoard, cell or notebook run, asynchronous."""

    def __init__(self, session: AsyncSession, view: TaskView) -> None:
        super().__init__(view, session.address)
        self._session = session

    async def reload(self) -> AsyncTask:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(operations.task(self.id))
        return self

    async def kill(self) -> None:
        """End it at once, or remove it from the queue."""
        self.learn(await self._session.run(operations.kill_task(self.id)))

    async def move(self, workspace: str | int = "", project: str | int = "") -> None:
        """Move it to another project, the members of whose workspace see its state from then on.

        What it runs with stays. Nobody but you opens it, wherever it lies.

        Args:
            workspace: Its name, `OWNER/NAME` or id; empty: your personal one.
            project: Its name or id; empty: the one for what names none.

        Raises:
            ConfigError: There is no such workspace or project.
            Forbidden: It is not yours, or you may put nothing there.
        """
        self.learn(await self._session.run(operations.move_task(self.id, workspace, project)))

    async def wait(self, timeout: float | None = None, *, notice: Notice | None = None) -> TrialState:
        """Wait until it has ended and return the state it ended in.

        Args:
            timeout: Seconds to wait at most; None waits to the end, through outages of the master.
            notice: Called whenever the connection breaks.

        Raises:
            TimeoutError: It has not ended within `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not (await self.reload()).state.terminal:
            last = await self.logs(tail=1)
            feed = task_log_feed(self.id, last[-1].id if last else None)
            with short_interrupts(stopped_waiting("task", self.id)):
                async for _ in follow(self._session, feed, self._ended, deadline=deadline, notice=notice):
                    pass
            await self.reload()
        if not self.state.terminal:
            raise timed_out(self.view, timeout)
        return self.state

    async def await_up(
        self, timeout: float | None = None, *, tell: Tell | None = None, notice: Notice | None = None
    ) -> bool:
        """Wait until it can be used, or has ended; return whether it can be used.

        Args:
            timeout: Seconds to wait at most; None waits without a limit.
            tell: Called with every change in the meantime, such as its place in the queue and why it waits.
            notice: Called whenever the connection breaks.

        Raises:
            Forbidden: It is another user's, whose state alone you see.
            TimeoutError: It can neither be used nor has it ended within `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        feed = all_events_feed(await self._session.run(operations.stream_cursor()))

        async def look() -> bool:
            await self.reload()
            self.check_opens()
            if tell is not None:
                tell(self.view)
            feed.finished = self.up or self.state.terminal
            return feed.finished

        if await look():
            return self.up
        with short_interrupts(stopped_waiting("task", self.id)):
            async for event in follow(self._session, feed, look, deadline=deadline, notice=notice):
                if event.kind == "resync":
                    feed.resume_from(event.id)
                if (event.kind in {"resync", "cluster"} or event.task_id == self.id) and await look():
                    return self.up
        if not ((await self.reload()).up or self.state.terminal):
            raise timed_out(self.view, timeout)
        return self.up

    async def iter_logs(
        self,
        follow: bool = False,
        *,
        after: int | None = None,
        rank: int | None = None,
        search: str | None = None,
        node: str | None = None,
        notice: Notice | None = None,
    ) -> AsyncIterator[LogLine]:
        """Yield its output line by line.

        Args:
            follow: Continue until it has ended, through disconnects.
            after: Id of the last line that is already known.
            rank: Only this rank's lines.
            search: Only lines that contain this text.
            node: Only lines that were written on this agent.
            notice: Called whenever the connection breaks while following.
        """
        async for line in self._lines(follow, after, rank, search, node, notice):
            yield line

    def _log_page(self, **wanted: Any) -> Flow[tuple[list[LogLine], int | None]]:
        return operations.task_logs(self.id, **wanted)

    def _follow_logs(self, after: int | None, notice: Notice | None) -> AsyncIterator[LogLine]:
        return follow(self._session, task_log_feed(self.id, after), self._ended, notice=notice)

    async def outputs(self) -> list[OutputView]:
        """Return the files it has handed over so far."""
        return await self._session.run(operations.task_outputs(self.id))

    async def read_output(self, output: OutputView) -> bytes:
        """Return the bytes of one of its files."""
        return await self._session.run(operations.task_output(self.id, output.digest))

    async def download_outputs(self, folder: str | Path = ".", names: Iterable[str] = ()) -> list[Path]:
        """Download its files to a folder and return their paths; each file is verified by its digest.

        Args:
            folder: Folder to write into.
            names: Only these files; by default all of them.

        Raises:
            DetlabError: It has no file with one of the names.
            StorageError: A file does not match its digest, or its name leads out of the folder.
        """
        chosen = chosen_outputs(self.id, await self.outputs(), names)
        targets = [output_target(Path(folder), output) for output in chosen]
        return [
            write_output(target, output, await self.read_output(output))
            for target, output in zip(targets, chosen, strict=True)
        ]

    async def _ended(self) -> bool:
        return (await self._session.run(operations.task(self.id))).state.terminal
