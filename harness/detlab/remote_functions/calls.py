"""Calls that run on the cluster: waiting for them, what they print, their results, their ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, overload

from detlab.client.task_facts import task_log_feed, timed_out
from detlab.client.tasks import Task
from detlab.client.transport.feeds import follow
from detlab.errors import DetlabError
from detlab.remote_functions.failures import RemoteError, ResultNotTrusted, raised
from detlab.remote_functions.interrupts import after_kill, ask, can_ask, kill_and_wait
from detlab.remote_functions.outcome import CellOutcome, how_it_ended, read_outcome
from detlab.remote_functions.output import CellOutput, shown
from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire import AllocationState, LogLine, TrialState
from detlab.visible import visible

TAIL_LINES = 20


def print_line(text: str) -> None:
    """Print a line about a call, apart from what the call prints."""
    # A notebook shows what is on stderr as an error.
    stream = sys.stdout if type(sys.stdout).__module__.startswith("ipykernel.") else sys.stderr
    stream.write(visible(text, keep="\t") + "\n")
    stream.flush()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class CallInterrupted(DetlabError, KeyboardInterrupt):
    """Waiting for a call was interrupted; the message says whether the call was killed or continues."""

    default_code = "remote.interrupted"
    killed = False


class RemoteCall:
    """One call of a remote function.

    Args:
        task: In which it runs.
        name: Of the function, for what is said about it.
        variable: The output that is its result.
        trust: Whether a result that is a pickle may be read.
    """

    def __init__(self, task: Task, name: str, variable: str, *, trust: bool = False) -> None:
        self.task = task
        self.name = name
        self._variable = variable
        self._trust = trust
        self._after: int | None = None
        self._aside: list[str] = []
        self._said = ""

    @property
    def id(self) -> str:
        """Id of its task: `det task logs ID`, `det task kill ID`."""
        return self.task.id

    @property
    def state(self) -> TrialState:
        """State of its task, asked for now."""
        return self.task.reload().state

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state.terminal

    def cancel(self) -> None:
        """End it at once, or take it out of the queue; harmless if it has ended."""
        if not self.done():
            self.task.kill()

    def logs(self) -> list[str]:
        """Return what it has printed so far."""
        return [line.text for line in self.task.logs()]

    def result(self, timeout: float | None = None, *, stream: bool = True, trust: bool | None = None) -> Any:
        """Wait for the end, and return what the function returned.

        Plain data, arrays, tables and tensors come back as what they are. Anything else is a pickle, and reading it
        runs code of whatever made it: that is done only if you say so.

        An interrupt asks whether to kill it, to stop waiting, or to continue; it is killed where nobody can be asked.

        Args:
            timeout: Seconds to wait at most; None: to the end.
            stream: Whether to print what it prints, from where an earlier wait stopped.
            trust: Whether the result may be read if it is a pickle; None: as `remote` was told.

        Raises:
            RemoteError: The function raised, or its task ended without a result.
            ResultNotTrusted: The result is a pickle, and `trust` is not set.
            CallInterrupted: It was interrupted, and killed or left running.
            TimeoutError: It has not ended in time; it continues.
        """
        self._wait(timeout, stream)
        trusted = self._trust if trust is None else trust
        outcome = read_outcome(self.task, own=trusted)
        if outcome.error is not None:
            raise raised(outcome.error, self.id)
        if not outcome.reported:
            raise self._ended()
        if self._variable not in outcome.values:
            raise self._unread(outcome, trusted)
        return outcome.values[self._variable]

    def exception(self, timeout: float | None = None, *, stream: bool = True) -> RemoteError | None:
        """Wait for the end, and return what `result` would raise of the function; None if it returned."""
        self._wait(timeout, stream)
        outcome = read_outcome(self.task, own=False)
        if outcome.error is not None:
            return raised(outcome.error, self.id)
        return None if outcome.reported else self._ended()

    def __repr__(self) -> str:
        return f"<RemoteCall {self.name}: {self.id}, {self.task.state.value.lower()}>"

    # --- waiting

    def _wait(self, timeout: float | None, stream: bool) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        output = CellOutput(_write, f"det task logs {self.id}")
        while True:
            try:
                self._follow(deadline, output if stream else None)
                break
            except KeyboardInterrupt:
                output.flush()
                self._interrupted()
            finally:
                output.flush()
        output.close()
        if not self.task.reload().state.terminal:
            raise TimeoutError(f"{self.name}(): {timed_out(self.task.view, timeout)}")

    def _follow(self, deadline: float | None, output: CellOutput | None) -> None:
        """Follow it until it has ended, or the deadline."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not self.task.state.terminal:
            self.task.await_up(left, tell=self._tell if output is not None else None)
        for line in follow(
            self.task._session, task_log_feed(self.id, self._after), self.task._ended, deadline=deadline
        ):
            self._after = line.id
            self._take(line, output)

    def _take(self, line: LogLine, output: CellOutput | None) -> None:
        if line.stdtype != "stdout":
            self._aside = [*self._aside, line.text][-TAIL_LINES:]
        elif output is not None:
            output.add(line.text)
            if output.due:
                output.flush()

    def _tell(self, view: TaskView) -> None:
        """Say once why it waits, and where it runs."""
        said = status_of(view)
        if said and said != self._said:
            self._said = said
            print_line(f"{self.name}: {view.id} {said}")

    def _interrupted(self) -> None:
        answer = ask(self.id) if can_ask() else "k"
        if answer == "s":
            raise CallInterrupted(
                f"stopped waiting; {self.id} continues",
                hint=f"result() waits again; to kill it: det task kill {self.id}",
            ) from None
        if answer == "k":
            kill_and_wait(self.task)
            problem = CallInterrupted(after_kill(self.task))
            problem.killed = True
            raise problem from None

    # --- the end

    def _ended(self) -> RemoteError:
        view = self.task.view
        tail = "\n".join(shown(text) for text in self._aside)
        failure = view.failure
        hint = failure.hint if failure is not None and failure.hint else f"det task logs {view.id}"
        error = RemoteError(f"{self.name} ({view.id}) {visible(how_it_ended(view), keep='')}", hint=hint)
        error.kind, error.remote_traceback, error.task_id = "RemoteError", tail, view.id
        return error

    def _unread(self, outcome: CellOutcome, trusted: bool) -> DetlabError:
        kind = outcome.pickled.get(self._variable)
        if kind is not None and not trusted:
            return ResultNotTrusted(
                f"the result of {self.name} is a pickle ({visible(kind, keep='')}): reading it runs code",
                hint="result(trust=True) if you trust what has run in the task; or return arrays and plain data",
            )
        said = "; ".join(visible(problem, keep="") for problem in outcome.problems) or "the task handed over none"
        return RemoteError(f"{self.name} ({self.id}) has ended, and its result cannot be read: {said}")


class RemoteCalls(Sequence[RemoteCall]):
    """Several calls, in order; what `map` returns.

    Args:
        calls: They run at the same time, as far as there are slots.
    """

    def __init__(self, calls: Sequence[RemoteCall]) -> None:
        self._calls = list(calls)

    @overload
    def __getitem__(self, index: int) -> RemoteCall: ...

    @overload
    def __getitem__(self, index: slice) -> RemoteCalls: ...

    def __getitem__(self, index: int | slice) -> RemoteCall | RemoteCalls:
        """Return one call, or some of them."""
        return RemoteCalls(self._calls[index]) if isinstance(index, slice) else self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[RemoteCall]:
        return iter(self._calls)

    def __repr__(self) -> str:
        return (
            f"<RemoteCalls: {len(self)} of {self._calls[0].name.partition(' ')[0]}>" if self else "<RemoteCalls: none>"
        )

    def results(
        self,
        timeout: float | None = None,
        *,
        stream: bool = True,
        trust: bool | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Wait for all, and return their results in order.

        Args:
            timeout: Seconds to wait at most for all of them; None: to the end.
            stream: Whether to print what they print, one after the other.
            trust: As `RemoteCall.result`.
            return_exceptions: Whether the error of a call takes the place of its result, instead of being raised.

        Raises as `RemoteCall.result` does, for the first that failed; the others continue. An interrupt that kills one
        kills all.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        return [self._result(call, deadline, return_exceptions, stream=stream, trust=trust) for call in self._calls]

    def _result(self, call: RemoteCall, deadline: float | None, kept: bool, **how: Any) -> Any:
        try:
            return call.result(None if deadline is None else max(0.0, deadline - time.monotonic()), **how)
        except CallInterrupted as problem:
            if problem.killed:
                self.cancel()
            raise
        except (RemoteError, ResultNotTrusted) as problem:
            if kept:
                return problem
            raise

    def cancel(self) -> None:
        """End all that have not ended."""
        for call in self._calls:
            call.cancel()


def status_of(view: TaskView) -> str:
    """Return where a task stands: why it waits, or where it runs; nothing while that is not known."""
    if view.state.terminal:
        return ""
    if view.allocation_state in {None, AllocationState.PENDING}:
        place = f", position {view.place}" if view.place else ""
        reason = f": {view.pending_reason}" if view.pending_reason else ""
        return f"waits for {view.slots_needed} slot{'' if view.slots_needed == 1 else 's'}{place}{reason}"
    word = "runs" if view.allocation_state is AllocationState.RUNNING else "starts"
    stage = f": {view.stage_message}" if view.stage_message else ""
    return f"{word}{f' on {view.agent_id}' if view.agent_id else ''}{stage}"
