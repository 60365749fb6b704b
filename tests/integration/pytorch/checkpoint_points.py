"""Processes that are killed at a chosen operation on the files of a checkpoint: what runs in the child.

An operation is what the kernel is asked for below the storage's folder (a file opened for writing, a write, an fsync, a
folder made, a rename, a mode, a removal) and the commit's request to the master, before it is sent and after it was
answered. The hooks are the child's alone: an audit hook of the interpreter, and functions of `os` that raise no event.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from testbed.stores import names_in

PATIENCE = 60.0
"""Seconds that an attempt may take."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MARK = re.compile(r"(\.pending-[^.]+)\.\d+\.")
_FOLDER = re.compile(r"\.unfinished-\d+/")
_PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial\b")
_PATHS = {"os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.chmod": 0, "os.truncate": 0}
"""Audit events, and which of their arguments is the path that tells what they do."""


@dataclass
class Points:
    """Notes operations; dies before the one numbered `at` (from 1; 0: never).

    Args:
        root: The storage's folder.
        at: At which operation.
        cleaning: Whether operations on what earlier attempts left are meant; else those on the new checkpoint.
        torn: Leave the second half of a file out before dying at its fsync, as a machine that dies would.
        names: What was done so far.
    """

    root: Path
    at: int = 0
    cleaning: bool = False
    torn: bool = False
    names: list[str] = field(default_factory=list)
    _old: set[str] = field(default_factory=set)
    _new: str | None = None
    _busy: threading.local = field(default_factory=threading.local)

    def watch(self) -> None:
        """Begin; there is no end but the process's."""
        if self.root.exists():
            self._old = {found for name in names_in(self.root) for found in _UUID.findall(name)}
        sys.addaudithook(self._hear)
        os.fsync = self._told_of("fsync", os.fsync)
        os.write = self._told_of("write", os.write)
        self._watch_commits()

    def _told_of(self, name: str, plain: Any) -> Any:
        def called(descriptor: int, *more: Any) -> Any:
            self._note(name, descriptor)
            return plain(descriptor, *more)

        return called

    def _watch_commits(self) -> None:
        from detlab.core.session import TaskSession

        plain = TaskSession._once

        def once(session: TaskSession, method: str, path: str, body: Any) -> Any:
            committing = (method, path) == ("POST", "task/checkpoints")
            if committing:
                self._count("report", body["uuid"])
            reply = plain(session, method, path, body)
            if committing:
                self._count("answered", body["uuid"])
            return reply

        TaskSession._once = once  # type: ignore[method-assign]

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or any(letter in (mode or "") for letter in "wax+")
            if writes:
                self._note("open", path)
        elif event in _PATHS:
            folder = args[-1] if event in {"os.remove", "os.rmdir"} else -1
            self._note(event.removeprefix("os."), args[_PATHS[event]], folder)

    def _note(self, verb: str, path: Any, folder: int = -1) -> None:
        if getattr(self._busy, "on", False) or not isinstance(path, int | str | os.PathLike):
            return
        self._busy.on = True
        try:
            found = _full(path, folder)
            if found is not None and found.is_relative_to(self.root):
                self._count(verb, found.relative_to(self.root).as_posix(), found)
        finally:
            self._busy.on = False

    def _count(self, verb: str, what: str, path: Path | None = None) -> None:
        uuids = _UUID.findall(what)
        if not uuids or (uuids[0] in self._old) != self.cleaning:
            return
        if not self.cleaning:
            self._new = self._new or uuids[0]
            if uuids[0] != self._new:
                return
        self.names.append(
            f"{verb} " + _PARTIAL.sub(".partial", _FOLDER.sub("", _MARK.sub(r"\1.N.", _UUID.sub("U", what))))
        )
        if len(self.names) == self.at:
            if self.torn and verb == "fsync" and path is not None and path.is_file():
                os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def _full(path: Any, folder: int) -> Path | None:
    if isinstance(path, int):
        return Path(f"/proc/self/fd/{path}").readlink()
    found = Path(os.fsdecode(path))
    if not found.is_absolute():
        start = Path(f"/proc/self/fd/{folder}").readlink() if folder >= 0 else Path.cwd()
        found = start / found
    return found


def nurse(orders: Connection) -> None:
    """Fork a process for each list of (function, arguments) that comes, one for each; answer how they ended.

    All that an attempt imports and the certificates that a client reads at its start, which are most of what it costs,
    are there before the first fork.
    """
    import httpcore  # noqa: F401  (an attempt's client imports it)
    import httpx._transports.default as transports
    import trainer_one_weight  # noqa: F401

    certificates = transports.create_ssl_context()
    transports.create_ssl_context = lambda *_, **__: certificates  # type: ignore[assignment]
    gc.freeze()
    with contextlib.suppress(EOFError):
        while True:
            started = [_fork(*what) for what in orders.recv()]
            orders.send([_ended(pid, time.monotonic() + PATIENCE) for pid in started])


def _fork(function: str, arguments: tuple[Any, ...]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            globals()[function](*arguments)
            threading._shutdown()  # type: ignore[attr-defined]
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def _ended(pid: int, give_up: float) -> int | None:
    while time.monotonic() < give_up:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def train(task: str, order: dict[str, Any]) -> None:
    """An attempt of a trial: resume, and train on with a checkpoint every second batch.

    It writes `log.jsonl` (attempt, batch, sample ids, loss, weight) and, if it gets so far, `weight.json` and
    `names-weight.json` (the operations of its first checkpoint).
    """
    points = _begin(task, order)
    from trainer_one_weight import OneWeightTrial
    from trainer_one_weight import train as train_one_weight

    from detlab.pytorch import Batch, LRScheduler

    class Logged(OneWeightTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            metrics = super().train_batch(batch, epoch_idx, batch_idx)
            step, _, ids, loss, weight = self.log[-1]
            with (Path(task) / "log.jsonl").open("a") as file:
                file.write(json.dumps([order["attempt"], step, ids, loss.hex(), weight.hex()]) + "\n")
            return metrics

    fit = {
        "max_length": Batch(order["length"]),
        "checkpoint_period": Batch(2),
        "checkpoint_policy": "none",
        "latest_checkpoint": order["latest"],
    }
    options = {"kind": "range", "shuffle": True, "momentum": 0.9, "noise": 0.3, "gamma": 0.97}
    trial = train_one_weight(trial_class=Logged, fit=fit, step_mode=LRScheduler.StepMode.STEP_EVERY_BATCH, **options)
    _end(task, points, "weight.json", trial.weight.hex())


def store(task: str, order: dict[str, Any], rank: int, size: int) -> None:
    """One rank of an attempt that reads the latest checkpoint, stores the next one and ends."""
    points = _begin(task, order, rank)
    from detlab import core

    places = {"rank": rank, "size": size, "local_rank": rank, "local_size": size, "cross_rank": 0, "cross_size": 1}
    distributed = core.DistributedContext(**places, timeout=30) if size > 1 else core.DummyDistributedContext()
    with core.init(distributed=distributed) as context:
        step = 0
        if order["latest"] is not None:
            with context.checkpoint.restore_path(order["latest"]) as path:
                step = json.loads((path / f"state{rank}.json").read_text())
                assert (path / "deep" / f"part{rank}").read_bytes() == _content(rank, step)
        metadata = {"steps_completed": step + 1}
        if order["how"] == "upload":
            mine = Path(task) / "work" / f"rank{rank}-{order['attempt']}"
            _fill(mine, rank, step + 1)
            context.checkpoint.upload(mine, metadata, shard=size > 1)
        else:
            with context.checkpoint.store_path(metadata, shard=size > 1) as (stage, _):
                _fill(stage, rank, step + 1)
    _end(task, points, f"stored{rank}.json", step + 1)


def _content(rank: int, step: int) -> bytes:
    return f"{rank} {step};".encode() * 1000


def _fill(folder: Path, rank: int, step: int) -> None:
    (folder / "deep").mkdir(parents=True, exist_ok=True)
    (folder / f"state{rank}.json").write_text(json.dumps(step))
    (folder / "deep" / f"part{rank}").write_bytes(_content(rank, step))


def _begin(task: str, order: dict[str, Any], rank: int = 0) -> Points:
    for name in [name for name in os.environ if name.startswith("DET_")]:
        del os.environ[name]
    os.environ["DET_TASK_DIR"] = task
    os.chdir(Path(task) / "work")
    output = os.open(Path(task) / f"output-{order['attempt']}-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import logging

    logging.basicConfig(level=logging.INFO, force=True)
    at = order["at"] if order.get("rank", 0) == rank else 0
    points = Points(Path(order["root"]), at, order.get("cleaning", False), order.get("torn", False))
    points.watch()
    return points


def _end(task: str, points: Points, name: str, value: Any) -> None:
    (Path(task) / name).write_text(json.dumps(value))
    (Path(task) / f"names-{name}").write_text(json.dumps(points.names))
