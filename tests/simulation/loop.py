"""An event loop with virtual time, and the processes that live on it.

Each process has its own queue of ready callbacks: within one process they run in the order in which asyncio promises
to run them (first come, first served), between processes the seed chooses. Time moves only when nobody is ready. A
process can be killed (whatever it had queued never runs), paused (SIGSTOP) and continued, and can have a fuse: it
dies at the so-manieth callback from now, which is to say at any of its awaits.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from greenlet import getcurrent, greenlet

_process: contextvars.ContextVar[Process] = contextvars.ContextVar("simulated_process")
EPOCH = 1_700_000_000.0


class Stuck(AssertionError):
    """Nothing can ever happen any more, or far too much does."""


class Process:
    """A process of the simulated cluster.

    Attributes:
        name: For the trace.
        machine: On which it runs: partitions and clocks go by machine.
    """

    def __init__(self, loop: SimLoop, name: str, machine: str) -> None:
        self.loop, self.name, self.machine = loop, name, machine
        self.alive = True
        self.paused = False
        self._fuse: int | None = None
        self._at_fuse: Callable[[], None] = lambda: None
        self.queue: deque[_Handle] = deque()
        self.at_death: list[Callable[[], None]] = []
        self._jobs = itertools.count(1)
        loop.processes[name] = self

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine in this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        # Named by hand: the names asyncio gives count on from seed to seed.
        return asyncio.Task(work, loop=self.loop, context=context, name=f"{self.name}-{next(self._jobs)}")

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call something in this process, later."""
        context = contextvars.Context()
        context.run(_process.set, self)
        self.loop.call_later(delay, callback, *args, context=context)

    def kill(self) -> None:
        """SIGKILL: nothing of it runs any more, no `finally` either."""
        if not self.alive:
            return
        self.alive = False
        self.queue.clear()
        self.loop.forget(self)
        self.loop.note("dies", self.name)
        for callback in self.at_death:
            callback()

    def light(self, callbacks: int, then: Callable[[], None] = lambda: None) -> None:
        """Die in the place of the so-manieth callback from now; `then` is told, if it comes to that."""
        self._fuse, self._at_fuse = callbacks, then

    @property
    def unburnt(self) -> int:
        """Callbacks that are left of the fuse."""
        return self._fuse or 0

    def burns(self) -> bool:
        """A callback is about to run: whether the process dies in its place."""
        if self._fuse is None:
            return False
        self._fuse -= 1
        if self._fuse > 0:
            return False
        self._fuse = None
        self._at_fuse()
        self.kill()
        return True

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        self.loop.forget(self)

    def resume(self) -> None:
        """SIGCONT: what fell due meanwhile runs now."""
        self.paused = False
        if self.queue and self.alive:
            self.loop.remember(self)


class _Handle(asyncio.TimerHandle):
    """A callback of a process, with or without a time."""

    __slots__ = ("process",)

    def __init__(self, when: float, callback: Any, args: Any, loop: SimLoop, context: Any, process: Process) -> None:
        # What the bases do, without asking for a context or a trace of the source: every callback is one of these.
        self._when, self._scheduled = when, False
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self.process = process


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. `rng` chooses whose turn it is."""

    def __init__(self, rng: Any, note: Callable[..., None]) -> None:
        self._rng = rng
        self.note = note
        self._now = 1000.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._serial = itertools.count()
        self._active: list[Process] = []
        self._stopped = False
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None
        self.errors: list[str] = []
        self.processes: dict[str, Process] = {}
        self.threads_wait = False
        """Whether what runs in an executor may wait (`block`): a provider of machines takes its time."""
        self.world = Process(self, "world", "world")

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        process = (context or contextvars.copy_context()).get(_process, self.world)
        return asyncio.Task(coro, loop=self, name=name or f"{process.name}-{next(process._jobs)}", context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> _Handle:
        if context is None:
            context = contextvars.copy_context()
        process = context.get(_process, self.world)
        handle = _Handle(self._now, callback, args, self, context, process)
        self._ready(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> _Handle:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> _Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(when, callback, args, self, context, context.get(_process, self.world))
        heapq.heappush(self._timers, (when, next(self._serial), handle))
        return handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """No threads: the call is made at once, its result comes in a later turn."""
        if self.threads_wait and executor is None:
            return self.create_task(as_thread(lambda: func(*args)))
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # it is the future's
            self.call_soon(_fail, future, error)
        else:
            self.call_soon(_settle, future, result)
        return future

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """asyncio's own loop counts them here; ours drops them when their time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that failed unseen in a living process is a defect; a future that nobody awaits any more is none."""
        task = context.get("future") or context.get("task")
        if isinstance(task, asyncio.Task):
            owner = self.processes.get(task.get_name().rpartition("-")[0])
            if owner is not None and owner.alive:
                self.errors.append(f"{context.get('message')}: {task.get_name()}: {context.get('exception')!r}")

    # --- turns

    def process(self) -> Process:
        """The process whose callback runs."""
        return _process.get(self.world)

    def remember(self, process: Process) -> None:
        if process not in self._active:
            self._active.append(process)

    def forget(self, process: Process) -> None:
        if process in self._active:
            self._active.remove(process)

    def _ready(self, handle: _Handle) -> None:
        process = handle.process
        if not process.alive:
            return
        if not process.queue and not process.paused:
            self._active.append(process)
        process.queue.append(handle)

    def stop(self) -> None:
        """End `run_forever` after this callback."""
        self._stopped = True

    def run_forever(self, limit: int = 400_000) -> None:
        """Run until `stop`."""
        self._stopped = False
        asyncio._set_running_loop(self)
        try:
            while not self._stopped:
                self._turn()
                if self.steps > limit:
                    raise Stuck(f"{limit} callbacks and no end")
        finally:
            asyncio._set_running_loop(None)

    def _turn(self) -> None:
        active = self._active
        while not active:
            self._advance()
        index = self._rng.randrange(len(active)) if len(active) > 1 else 0
        process = active[index]
        handle = process.queue.popleft()
        if not process.queue:
            active.pop(index)
        if handle._cancelled:
            return
        if process.burns():
            return
        self.steps += 1
        try:
            handle._context.run(handle._callback, *handle._args)
        except Exception as error:  # as asyncio does; here it fails the seed
            if process.alive:
                self.errors.append(f"{process.name}: {error!r}")
        self.after_step()

    def _advance(self) -> None:
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise Stuck("everybody waits for ever")
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            handle = heapq.heappop(self._timers)[2]
            if not handle._cancelled:
                self._ready(handle)

    def dispose(self) -> None:
        """Put the coroutines of the dead away; what they do in their `finally` reaches nobody any more."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # they are meant to be pending
            coroutine = task.get_coro()
            assert coroutine is not None
            with suppress(BaseException):  # the last words of the dead, SystemExit and GreenletExit among them
                coroutine.close()
        self._timers.clear()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


# --- blocking code on the loop


async def as_thread(function: Callable[[], Any]) -> Any:
    """Run code that blocks (through `block`) like a thread, without one: unchanged synchronous code on the loop."""
    thread = greenlet(function)
    thread.gr_context = contextvars.copy_context()
    result = _resume(thread)
    while not thread.dead:
        try:
            value = await result
        except Exception as error:  # thrown into the thread that waits
            result = _resume(thread, error=error)
        else:
            result = _resume(thread, value)
    return result


def _resume(thread: greenlet, *values: Any, error: Exception | None = None) -> Any:
    thread.parent = getcurrent()
    return thread.throw(error) if error is not None else thread.switch(*values)


def block(waiting: Any) -> Any:
    """Wait for an awaitable from code that `as_thread` runs."""
    if isinstance(asyncio._get_running_loop(), SimLoop) is False:
        raise SystemExit  # the world is being put away
    return getcurrent().parent.switch(waiting)
