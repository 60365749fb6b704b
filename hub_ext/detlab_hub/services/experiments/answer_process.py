"""Processes that compute for the master what it must not import: one of each, started when first needed.

They read a line of JSON for each question and write one for each answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from contextlib import suppress
from typing import Any

from detlab_hub.core.searchers import Question
from detlab_hub.core.searchers.suggesting import to_json

PATIENCE = 30.0
"""Seconds that an answer may take."""
IDLE = 600.0
"""Seconds without a question after which the process ends: with torch it holds some hundred megabytes."""
MOST_BYTES = 16 << 20
"""Most bytes of an answer."""
_LAST_LINES = 20
_END = 5.0


class LineProcess:
    """Answers questions one at a time; a process that takes too long or ends is replaced for the next one.

    Args:
        module: What `python -m` runs: it answers each line of its input with one, `{"error": ...}` if it failed.
        patience: Seconds that an answer may take, the start of the process included.
        idle: Seconds without a question after which the process ends.
    """

    def __init__(self, module: str, patience: float = PATIENCE, idle: float = IDLE) -> None:
        self.patience = patience
        self._module = module
        self._idle = idle
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._printed: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, raw: bytes) -> dict[str, Any]:
        """Answer a question.

        Args:
            raw: The question, a line of JSON.

        Raises:
            TimeoutError: It took more than `patience`.
            ChildProcessError: It failed, or the process ended without an answer; with its last line.
        """
        async with self._turn:
            self._stop_timer()
            told: dict[str, Any] | None = None
            try:
                async with asyncio.timeout(self.patience):
                    told = await self._told(raw)
            finally:
                if told is None:  # its next line would be the answer to this question
                    await self._end()
            self._timer = asyncio.get_running_loop().call_later(self._idle, self._end_idle)
        if "error" in told:
            raise ChildProcessError(told["error"])
        return told

    async def _told(self, raw: bytes) -> dict[str, Any]:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(ConnectionError):  # it ended: the missing answer shows that
            process.stdin.write(raw + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            code = await process.wait()
            if self._reader is not None:
                await self._reader
            raise ChildProcessError(self._printed[-1] if self._printed else f"it ended with code {code}")
        told: dict[str, Any] = json.loads(line)
        return told

    async def _start(self) -> asyncio.subprocess.Process:
        self._printed.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_BYTES,
        )
        assert self._process.stderr is not None
        self._reader = asyncio.create_task(self._read(self._process.stderr))
        return self._process

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(1 << 16):
            self._printed.extend(line for line in chunk.decode(errors="replace").splitlines() if line.strip())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_idle(self) -> None:
        """End it by closing its input, unless a question arrived meanwhile."""
        if self._process is not None and self._process.stdin is not None and not self._turn.locked():
            self._process.stdin.close()
            self._process = None

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=_END)

    async def close(self) -> None:
        """End the process, also while it answers."""
        self._stop_timer()
        await self._end()


class AnswerProcess(LineProcess):
    """Answers the questions of searches.

    Args:
        patience: Seconds that an answer may take, the start of the process included.
        idle: Seconds without a question after which the process ends.
    """

    def __init__(self, patience: float = PATIENCE, idle: float = IDLE) -> None:
        super().__init__("detlab_hub.core.searchers.suggesting", patience, idle)

    async def __call__(self, searcher: str, question: Question) -> list[dict[str, Any]]:
        """Answer a question.

        Args:
            searcher: The method's name.
            question: What it asks.

        Raises:
            TimeoutError: It took more than `patience`.
            ChildProcessError: The method raised, or the process ended without an answer; with its last line.
        """
        points: list[dict[str, Any]] = (await self.ask(await asyncio.to_thread(to_json, searcher, question)))["points"]
        return points
