"""Regular expressions of users, matched outside of the master with bounded work; log policies of lines that come in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services import logpolicies
from detlab_hub.services.logpolicies import Finding, Policy
from detlab_hub.services.shell import Shell
from detlab_hub.store.tables import AllocationRow, ExperimentRow

_log = logging.getLogger(__name__)
_WORKER = Path(__file__).with_name("match_worker.py")
WALL_SECONDS = 20.0
"""A worker that has not answered by then is ended, too: its machine is busy, or it hangs."""
ANSWER_BYTES = 1 << 22
POLICY_SECONDS = 0.25
"""Processor time that one policy may take for the lines of one batch, a thousand at most."""
POLICY_CHARS = 4000
"""Of a line that policies look at."""
MOST_REMEMBERED = 10_000
"""Attempts whose policies are remembered, and experiments whose slow policies are."""


class PatternTooSlow(DetlabError):
    """A regular expression takes too long for the lines that it is tried on."""

    default_code = "logs.regex_slow"


class Matcher:
    """A process that matches; started when it is needed, one question at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def match(self, pattern: str, texts: Sequence[str], seconds: float) -> list[int]:
        """Return which of the texts the pattern is found in.

        Args:
            pattern: Of Python's `re`.
            texts: Where to look.
            seconds: Processor time that it may take.

        Raises:
            PatternTooSlow: It took more, or all memory that it may have.
        """
        question = json.dumps({"pattern": pattern, "texts": list(texts), "seconds": seconds}).encode() + b"\n"
        async with self._turn:
            try:
                answer = await asyncio.wait_for(self._ask(question), WALL_SECONDS)
            except BaseException as error:
                await self._end()
                if isinstance(error, TimeoutError | OSError | asyncio.IncompleteReadError):
                    raise PatternTooSlow(
                        f"the regular expression {pattern[:100]!r} took more than {seconds:g} s for {len(texts)} lines",
                        hint="no (a+)+, no .* in the middle of another repetition; or a plain --search beside it",
                    ) from error
                raise
        found: list[int] = json.loads(answer)
        return found

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _ask(self, question: bytes) -> bytes:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(_WORKER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
                limit=ANSWER_BYTES,
            )
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(question)
        await writer.drain()
        return await reader.readuntil(b"\n")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()


class PolicyLooks:
    """Looks for what log policies look for, in lines on their way in and before they are written."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._matcher = Matcher()
        self._known: dict[str, tuple[int, tuple[Policy, ...]]] = {}
        self._given_up: set[tuple[int, str]] = set()
        """(experiment, pattern) of those that took too long."""

    async def look(self, allocation_id: str, batch: RecordBatch) -> list[Finding]:
        """Return what the policies of an attempt's experiment find in a batch, each at most once.

        A pattern that takes too long is given up for the experiment: its finding says so.
        """
        if batch.stream != "logs":
            return []
        experiment_id, policies = await self._policies(allocation_id)
        lines = [record for record in batch.records if isinstance(record, LogRecord)] if policies else []
        found = []
        for policy in policies:
            if lines and (experiment_id, policy.pattern) not in self._given_up:
                finding = await self._find(experiment_id, policy, lines)
                found += [] if finding is None else [finding]
        return found

    async def close(self) -> None:
        """End the process that matches."""
        await self._matcher.close()

    async def _find(self, experiment_id: int, policy: Policy, lines: Sequence[LogRecord]) -> Finding | None:
        if policy.literal is not None:
            line = next((line for line in lines if policy.literal in line.text), None)
            return None if line is None else Finding(policy, line.text, line.time)
        texts = [line.text[:POLICY_CHARS] for line in lines]
        try:
            found = await self._matcher.match(policy.pattern, texts, POLICY_SECONDS)
        except PatternTooSlow as error:
            _log.warning("experiment %d: a log policy is given up: %s", experiment_id, error.message)
            if len(self._given_up) >= MOST_REMEMBERED:
                self._given_up.clear()
            self._given_up.add((experiment_id, policy.pattern))
            return Finding(policy, "", 0.0, given_up=error.message)
        return Finding(policy, lines[found[0]].text, lines[found[0]].time) if found else None

    async def _policies(self, allocation_id: str) -> tuple[int, tuple[Policy, ...]]:
        known = self._known.get(allocation_id)
        if known is None:

            def read(s: Session) -> tuple[int, tuple[Policy, ...]]:
                row = s.get(AllocationRow, allocation_id)
                if row is None or row.experiment_id is None:
                    return 0, ()
                experiment = s.get(ExperimentRow, row.experiment_id)
                return row.experiment_id, () if experiment is None else logpolicies.policies_of(experiment.config)

            known = await self._shell.read(read)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[allocation_id] = known
        return known
