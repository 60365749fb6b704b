"""Users' regular expressions, matched outside of the master with bounded work; log policies of incoming lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from detlab.errors import DetlabError, Unavailable
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.lifecycle import log_policies
from detlab_hub.services.lifecycle.log_policies import Finding, Policy
from detlab_hub.services.logs import match_worker
from detlab_hub.store.tables import AllocationRow, ExperimentRow

_log = logging.getLogger(__name__)
_WORKER = Path(match_worker.__file__)
WALL_SECONDS = 20.0
"""A worker that has not answered by then is ended, too: its machine is busy, or it hangs."""
EXIT_SECONDS = 2.0
"""A worker that answers no more has ended by then, or is ended."""
ANSWER_BYTES = 1 << 22
POLICY_SECONDS = 0.25
"""Processor time that one policy may take for the lines of one batch, a thousand at most."""
BATCH_SECONDS = 1.0
"""The same for all policies of an experiment together; each has its share of it."""
POLICY_CHARS = 4000
"""Characters of a line that policies match."""
MOST_REMEMBERED = 10_000
"""Cached attempts with policies, attempts that were warned of slow ones, and experiments that have such."""
Check = Callable[[Session], object]
"""Raises where a batch will not be taken."""


class PatternTooSlow(DetlabError):
    """A regular expression takes too long, or too much memory, for the lines that it is tried on."""

    default_code = "logs.regex_slow"


class Matcher:
    """A process that matches; started when it is needed, one question at a time.

    Attributes:
        closed: Whether it gives no answer any more.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.closed = False

    async def match(self, pattern: str, texts: Sequence[str], seconds: float) -> list[int]:
        """Return which of the texts the pattern is found in.

        Args:
            pattern: Of Python's `re`.
            texts: Where to look.
            seconds: Processor time that it may take.

        Raises:
            PatternTooSlow: It took more, or all memory that it may have.
            Unavailable: There is no answer, for a reason that is not the pattern's.
        """
        question = await asyncio.to_thread(_question, pattern, texts, seconds)
        async with self._turn:
            answer, code = await self._answer(question)
            if answer is None and code not in (-signal.SIGPROF, match_worker.HOPELESS):
                # It was dead already, or was killed.
                answer, code = await self._answer(question)
        if answer is not None:
            found: list[int] = json.loads(answer)
            return found
        lines = f"{len(texts)} lines"
        hint = "no (a+)+, no .* in the middle of another repetition; or a plain --search beside it"
        if code == -signal.SIGPROF:
            raise PatternTooSlow(
                f"the regular expression {pattern[:100]!r} took more than {seconds:g} s for {lines}", hint=hint
            )
        if code == match_worker.HOPELESS:
            raise PatternTooSlow(
                f"the regular expression {pattern[:100]!r} takes more memory than it may for {lines}, or is invalid",
                hint=hint,
            )
        raise Unavailable(f"the process that matches regular expressions ended ({code}) and gave no answer")

    async def close(self) -> None:
        """Kill the process; waiting requests get no answer."""
        self.closed = True
        await self._end()

    async def _answer(self, question: bytes) -> tuple[bytes | None, int | None]:
        """Return the answer, or None and how the process ended that gave none.

        Raises:
            Unavailable: It cannot be started, takes too long without much of the processor, or is not wanted any more.
        """
        try:
            return await asyncio.wait_for(self._ask(question), WALL_SECONDS), None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None, await self._end(EXIT_SECONDS)
        except (TimeoutError, OSError) as error:
            await self._end()
            raise Unavailable(f"regular expressions cannot be matched now: {error or 'the machine is busy'}") from error
        except BaseException:  # the caller was cancelled amid an answer: the next request must not read the rest of it
            await self._end()
            raise

    async def _ask(self, question: bytes) -> bytes:
        if self._process is None and not self.closed:
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
        if self.closed or self._process is None:
            await self._end()
            raise Unavailable("this master is stopping")
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None
        assert writer is not None
        writer.write(question)
        await writer.drain()
        return await reader.readuntil(b"\n")

    async def _end(self, patience: float = 0.0) -> int | None:
        """End the process, which may do so by itself for a while, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if patience:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), patience)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        return await process.wait()


def _question(pattern: str, texts: Sequence[str], seconds: float) -> bytes:
    return json.dumps({"pattern": pattern, "texts": list(texts), "seconds": seconds}).encode() + b"\n"


class PolicyMatcher:
    """Matches log policies against incoming lines, before they are written."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._matcher = Matcher()
        self._known: dict[str, tuple[int, tuple[Policy, ...]]] = {}
        self._given_up: dict[tuple[int, str], str] = {}
        """Why, by experiment and pattern: what took too long is not tried again."""
        self._told: set[tuple[str, str]] = set()
        """(allocation, pattern): its trial has the warning."""

    async def match(self, allocation_id: str, batch: RecordBatch, check: Check) -> list[Finding]:
        """Return what the policies of an attempt's experiment find in a batch, each at most once.

        A pattern that takes too long is given up for the experiment, once what is returned here has been `written`.

        Args:
            allocation_id: Of the attempt that sends it, or says so.
            batch: What came.
            check: Raises where the sender must not write there: no stranger has others' patterns tried on his text.

        Raises:
            Unavailable: This master is stopping; the next one looks at the batch.
        """
        if batch.stream != "logs":
            return []
        experiment_id, policies = await self._policies(allocation_id)
        lines = [record for record in batch.records if isinstance(record, LogRecord)] if policies else []
        if not lines:
            return []
        tried = [one for one in policies if one.literal is None and (experiment_id, one.pattern) not in self._given_up]
        if tried:
            await self._shell.read(check)
        found = [_literal(policy, lines) for policy in policies if policy.literal is not None]
        found += await self._tried(tried, lines)
        for policy in policies:
            why = self._given_up.get((experiment_id, policy.pattern))
            if why is not None and (allocation_id, policy.pattern) not in self._told:
                found.append(Finding(policy, "", 0.0, given_up=why))
        return [finding for finding in found if finding is not None]

    def written(self, allocation_id: str, findings: Sequence[Finding]) -> None:
        """The matches are written: an abandoned policy is not tried again, and its trial is not warned again."""
        experiment_id, _ = self._known.get(allocation_id, (0, ()))
        for finding in findings if experiment_id else ():
            if not finding.given_up:
                continue
            if max(len(self._given_up), len(self._told)) >= MOST_REMEMBERED:
                self._given_up.clear()
                self._told.clear()
            if (experiment_id, finding.policy.pattern) not in self._given_up:
                _log.warning("experiment %d: a log policy is given up: %s", experiment_id, finding.given_up)
                self._given_up[experiment_id, finding.policy.pattern] = finding.given_up
            self._told.add((allocation_id, finding.policy.pattern))

    async def close(self) -> None:
        """End the process that matches."""
        await self._matcher.close()

    async def _tried(self, policies: Sequence[Policy], lines: Sequence[LogRecord]) -> list[Finding | None]:
        texts = [line.text[:POLICY_CHARS] for line in lines] if policies else []
        found: list[Finding | None] = []
        for policy in policies:
            try:
                hits = await self._matcher.match(
                    policy.pattern, texts, min(POLICY_SECONDS, BATCH_SECONDS / len(policies))
                )
            except PatternTooSlow as error:
                found.append(Finding(policy, "", 0.0, given_up=error.message))
            except Unavailable as error:
                if self._matcher.closed:
                    raise
                # Output matters more than its policies: it is stored, and policies match the lines that follow.
                _log.warning("log policies have not been matched against %d lines: %s", len(lines), error.message)
                break
            else:
                found.append(Finding(policy, lines[hits[0]].text, lines[hits[0]].time) if hits else None)
        return found

    async def _policies(self, allocation_id: str) -> tuple[int, tuple[Policy, ...]]:
        known = self._known.get(allocation_id)
        if known is None:

            def read(s: Session) -> tuple[int, tuple[Policy, ...]] | None:
                row = s.get(AllocationRow, allocation_id)
                if row is None:
                    return None
                experiment = None if row.experiment_id is None else s.get(ExperimentRow, row.experiment_id)
                return row.experiment_id or 0, () if experiment is None else log_policies.policies_of(experiment.config)

            known = await self._shell.read(read)
            if known is None:
                return 0, ()
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[allocation_id] = known
        return known


def _literal(policy: Policy, lines: Sequence[LogRecord]) -> Finding | None:
    text = policy.literal or ""
    line = next((line for line in lines if line.text.find(text, 0, POLICY_CHARS) >= 0), None)
    return None if line is None else Finding(policy, line.text, line.time)
