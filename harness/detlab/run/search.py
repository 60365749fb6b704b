"""The task of a custom search: `python -m detlab.run.search` fetches events from the master and answers them.

The class runs in a child process (`detlab.run.search_class`), so that this one can report when it hangs, runs out of
memory or ends the interpreter. This process has the token. A restarted task gets all events again, with the earlier
answers: the class receives them in order, and only new events are answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from detlab.errors import ConfigError, DetlabError, NotInCluster, StaleAttempt
from detlab.info import get_cluster_info
from detlab.run.outputs import TaskRequests, say

WAIT = 20.0
"""Seconds of one long poll."""
_TRACE_SECONDS = 2.0
_END_SECONDS = 2.0
_LINE_BYTES = 1 << 16
"""Bytes of a line of standard error that are remembered; all are passed on."""
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
_LIBRARY = re.compile(r"/detlab/(run|searcher)/|<frozen|/lib(64)?/python3")


class NoAnswer(Exception):
    """The class has no answer to an event; the text is for people."""


class CustomSearchClient(TaskRequests):
    """The two requests to the master."""

    timeout = WAIT + 40.0

    def feed(self, after: int, wait: float) -> dict[str, Any]:
        """Return the events after a number."""
        return self.request(f"task/search?after={after}&timeout_seconds={wait:g}")

    def answer(self, number: int, **said: Any) -> dict[str, Any]:
        """Answer an event.

        Raises:
            ConfigError: The operations are impossible.
        """
        return self.request("task/search", {"number": number, **said})


class SearchClassProcess:
    """The process with the class.

    Args:
        setup: What it needs to create the class.
        command: Starts it; the two descriptors are appended.
    """

    def __init__(self, setup: Mapping[str, Any], command: list[str] | None = None) -> None:
        there, self._in = os.pipe()
        self._out, back = os.pipe()
        words = [*(command or [sys.executable, "-u", "-m", "detlab.run.search_class"]), str(there), str(back)]
        self._process = subprocess.Popen(
            words, pass_fds=(there, back), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        os.close(there)
        os.close(back)
        assert self._process.stderr is not None
        self._errors = Errors(self._process.stderr)
        self._timeout = float(setup["answer_timeout"])
        self._rest = b""
        self._send(setup)

    def _send(self, value: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended: the missing reply shows that
            data = memoryview((json.dumps(value) + "\n").encode())
            while data:
                data = data[os.write(self._in, data) :]

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the class to an event.

        Raises:
            NoAnswer: It raised, took too long, or its process has ended.
        """
        doing = doing_of(event)
        self._send(event)
        line = self._line(time.monotonic() + self._timeout, doing)
        found: dict[str, Any] = json.loads(line)
        if "failure" in found:
            raise NoAnswer(found["failure"])
        return found

    def _line(self, until: float, doing: str) -> bytes:
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            sources: list[int | Errors] = [self._out, self._errors]
            ready = select.select(sources, [], [], left)[0] if left > 0 else []
            if self._errors in ready:
                self._errors.read()
            if self._out in ready:
                got = os.read(self._out, 1 << 16)
                if not got:
                    raise NoAnswer(self._ended(doing))
                self._rest += got
            if not ready:
                raise NoAnswer(self._hangs(doing))
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, doing: str) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its end of the pipe, and runs on
            self._process.kill()
            code = self._process.wait()
        self._errors.drain()
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
            how += ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        else:
            how = f"ended with exit code {code}"
        return "\n".join([f"the process of the class {how} ({doing})", *self._errors.tail(6)])

    def _hangs(self, doing: str) -> str:
        """Return where the class hangs, and end it."""
        self._errors.mark()
        self._process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + _TRACE_SECONDS
        while time.monotonic() < until and not self._errors.traced:
            if select.select([self._errors], [], [], 0.1)[0]:
                self._errors.read()
        frames = self._errors.frames()
        self.close()
        at = f"; it was at {frames[0]}" if frames else ""
        said = f"no answer within searcher.answer_timeout ({self._timeout:g} s){at} ({doing})"
        return "\n".join([said, *frames])

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for one in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(one)
        self._errors.close()


class Errors:
    """The child's standard error, passed on and remembered.

    Args:
        pipe: What it writes into.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._rest = bytearray()
        self._mark = 0

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._pipe.fileno()

    def read(self) -> bool:
        """Pass on the available output; return False at the end."""
        got = os.read(self._pipe.fileno(), 1 << 16)
        if got:
            sys.stderr.buffer.write(got)
            sys.stderr.flush()
            *lines, rest = got.split(b"\n")
            for line in lines:
                self._begun(line)
                self._lines.append(self._rest.decode(errors="replace"))
                self._rest.clear()
            self._begun(rest)
            keep = max(0, len(self._lines) - 500)
            self._lines, self._mark = self._lines[keep:], max(0, self._mark - keep)
        return bool(got)

    def _begun(self, part: bytes) -> None:
        """Append to the current line up to its limit: a progress bar may write without an end of line for hours."""
        self._rest += part[: max(0, _LINE_BYTES - len(self._rest))]

    def drain(self) -> None:
        """Read what has been written; not to the end: a process that the class started may keep the pipe open."""
        until = time.monotonic() + _END_SECONDS
        while time.monotonic() < until and select.select([self], [], [], 0)[0] and self.read():
            pass

    def tail(self, count: int) -> list[str]:
        """Return the last lines."""
        return self._lines[-count:]

    def mark(self) -> None:
        """Look for a stack from here on."""
        self._mark = len(self._lines)

    @property
    def traced(self) -> bool:
        """Whether a stack was written since the mark."""
        return any('"' in line and "run_module" in line for line in self._lines[self._mark :])

    def frames(self) -> list[str]:
        """Return the frames of the class itself in the stack since the mark, innermost first."""
        found = [_FRAME.match(line) for line in self._lines[self._mark :]]
        places = [
            (one["file"], f"{Path(one['file']).name}, line {one['line']}, in {one['name']}") for one in found if one
        ]
        return [shown for file, shown in places if not _LIBRARY.search(file)][:6]

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()


def run(master: CustomSearchClient, *, wait: float = WAIT, command: list[str] | None = None) -> int:
    """Answer events until the search is over; return the exit code of the task."""
    feed = master.feed(0, 0.0)
    if feed["over"]:
        say(f"{feed['why']}")
        return 0
    child = SearchClassProcess(feed["setup"], command)
    failure, told = "", 0
    try:
        while not feed["over"]:
            for event in feed["events"]:
                told = event["number"]
                if not failure:
                    try:
                        said = child.answer(event)
                    except NoAnswer as error:
                        failure = str(error)
                        say(f"{failure}")
                if failure and event["operations"] is None:
                    master.answer(told, failure=failure)
                    return 1
                if not failure:
                    reply = _post(master, event, said)
                    if reply["over"]:
                        say(f"{reply['why']}")
                        return 1 if reply.get("refused") else 0
            feed = master.feed(told, wait)
    except StaleAttempt as error:
        say(f"{error}")
        return 0
    finally:
        child.close()
    say(f"{feed['why']}")
    return 0


def doing_of(event: Mapping[str, Any]) -> str:
    """Name an event, for people; the master replaces the trial's id by its number."""
    about = f" of trial {event['trial']}" if event.get("trial") else ""
    return f"event {event['number']}: {event['type']}{about}"


def _post(master: CustomSearchClient, event: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    number = event["number"]
    if event["operations"] is not None:
        if said.get("differs"):
            say(
                f"the class now answers event {number} ({event['type']}) differently from before its restart;"
                " the earlier answer stands. Draw random numbers from a generator that is seeded with"
                " searcher_state.seed."
            )
        return {"over": False}
    try:
        return master.answer(number, operations=said["operations"])
    except ConfigError as error:
        wrong = [problem.message for problem in error.problems] or [str(error)]
        first = f"the answer of the class is impossible: {wrong[0]} ({doing_of(event)})"
        text = "\n".join([first, *wrong[1:]])
        say(f"{text}")
        return {**master.answer(number, failure=text), "refused": True, "over": True}


def main() -> int:
    """Run the search of this task."""
    info = get_cluster_info()
    if info is None:
        raise NotInCluster("this program runs inside the task of a custom search: DET_TASK_DIR is not set")
    try:
        return run(CustomSearchClient(info))
    except DetlabError as error:
        say(f"{error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
