"""A trial and its launcher: the harness's own code on simulated processes.

The trial trains a seeded curve; it reports through the real Core API objects (`TrainContext` on `Spool`,
`CheckpointContext` on a real store, `PreemptContext` on `PreemptionWatch`, all calls by `TaskSession`). The launcher
delivers with the real `Deliverer`. Both run as if in threads, by `loop.as_thread`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import httpx

from detlab import errors
from detlab.core.checkpoint.context import CheckpointContext
from detlab.core.distributed.context import DummyDistributedContext
from detlab.core.metrics.spool import Spool
from detlab.core.metrics.train import TrainContext
from detlab.core.preemption.context import PreemptContext
from detlab.core.preemption.watch import Pause, PreemptionWatch, StopAsking
from detlab.core.session import TaskSession
from detlab.files import write_atomic
from detlab.info import read_token
from detlab.launch.delivery.sender import Deliverer, DeliveryEnding, Mode, SpoolSource, TransportError
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular, read_mark
from detlab.launch.delivery.tokens import TokenKeeper, life_of
from detlab.launch.ranks.rendezvous import MeetingError
from detlab.launch.task import DirMarks
from detlab.launch.taskdir import TaskDir, read_object, write_json
from detlab.schemas.wire import Launch, PreemptReply
from detlab.storage import ManifestPart
from detlab.storage.posix import PosixStorage
from simulation.loop import Process, as_thread, block
from simulation.machines.gang import PeerLost, meet, part_of
from simulation.machines.network import PATIENCE, Broken, Reply, Request

if TYPE_CHECKING:
    from simulation.machines.node import Node

LENGTH = 4
SAVE_EVERY = 2
URL = "http://master/services/detlab/"
LOOK = 0.3
"""Seconds between two looks at the spool; the launcher's own 50 ms would only cost."""


class Course:
    """How trials train; a world may have another one.

    Attributes:
        look: Seconds between a launcher's looks at the spool.
        asks: Seconds at least between two questions for a preemption that were not answered.
    """

    look = LOOK
    asks = 0.0

    def length(self, trial_id: int) -> int:
        """Steps of a trial."""
        return LENGTH

    def pace(self, seed: int, allocation_id: str) -> float:
        """Seconds of a step."""
        return 0.5 + random.Random(f"{seed} {allocation_id}").random()

    def saves(self, trial_id: int, step: int) -> bool:
        """Whether a trial makes a checkpoint after a step."""
        return step % SAVE_EVERY == 0


def curve(seed: int, step: int) -> float:
    """A learning curve: the same for a trial whatever happens around it."""
    return random.Random(seed).random() + 1.0 / step


class HttpBridge(httpx.BaseTransport):
    """httpx on the simulated network."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and wait."""
        path = request.url.path.removeprefix("/services/detlab/api/v1/")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        asked = Request(request.method, path, dict(request.url.params), request.read(), bearer)
        try:
            status, body = block(self._node.world.network.request(asked))
        except TimeoutError as error:
            raise httpx.ReadTimeout("no answer") from error
        except Broken as error:
            raise httpx.ConnectError(str(error)) from error
        return httpx.Response(status, content=body, request=request)


class PostBridge:
    """The transport of a `Deliverer` on the simulated network."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def post(self, path: str, body: bytes, token: str) -> Reply:
        """See `detlab.launch.delivery.sender.Transport`."""
        path, _, query = path.partition("?")
        asked = Request("POST", path, dict(parse_qsl(query)), body, token)
        try:
            return block(self._node.world.network.request(asked))
        except (TimeoutError, Broken) as error:
            raise TransportError(str(error) or "no answer") from error

    def close(self) -> None:
        """Nothing to close."""


class WatchedSpool(Spool):
    """The real spool; what was appended is noted, and the disk may be full."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(
            trial.directory.spool, clock=trial.node.clock, sleep=lambda seconds: block(asyncio.sleep(seconds))
        )
        self._trial = trial

    def append(self, kind: str, fields: Any) -> int:
        """Append and note it for the promises."""
        seq = super().append(kind, fields)
        self._trial.node.world.promises.reported(self._trial.launch, seq, kind, fields)
        return seq

    def _write(self, fd: int, line: bytes, at: int) -> None:
        if self._trial.node.disk_full:
            self._trial.node.world.faults.count("disk_full_spool")
            self._trial.node.disk_full -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(fd, line, at)


class FragileStorage(PosixStorage):
    """The real store; the process may die while a checkpoint is being made."""

    def __init__(self, root: Path, trial: Trial) -> None:
        super().__init__(root)
        self._trial = trial

    def upload(self, source: Path, uuid: str, *, selector: Any = None) -> ManifestPart:
        """Copy; a process that dies here leaves a file cut short."""
        part = super().upload(source, uuid, selector=selector)
        if self._trial.dies_saving == "files":
            staged = self.stage(uuid) / next(iter(part.files))
            staged.write_bytes(staged.read_bytes()[:-3])
            self._die()
        return part

    def publish(self, uuid: str, metadata: Any, part: ManifestPart | None = None) -> Any:
        """Publish; a process that dies here leaves half a manifest, or a checkpoint that nobody committed."""
        if self._trial.dies_saving == "manifest":
            (self.stage(uuid) / "manifest.json").write_bytes(b'{"files": {"state.js')
            self._die()
        manifest = super().publish(uuid, metadata, part)
        if self._trial.dies_saving == "commit":
            self._die()
        return manifest

    def _die(self) -> None:
        self._trial.dies_saving = None
        self._trial.node.world.faults.count("trial_killed_torn_checkpoint")
        self._trial.end(-9)
        block(asyncio.get_running_loop().create_future())


class Watcher:
    """What the preemption thread does, as a coroutine around the same `PreemptionWatch`."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._watch = PreemptionWatch()
        self._known = asyncio.Event()

    def start(self) -> None:
        """Ask for ever."""
        self._trial.process.spawn(self._poll())

    def close(self) -> None:
        """The process ends anyway."""

    def should_preempt(self, first_answer: float = 5.0) -> bool:
        """See `PreemptionWatcher.should_preempt`."""
        block(_within(self._known, first_answer))
        if self._watch.fatal is not None:
            raise self._watch.fatal
        return self._watch.preempted

    async def _poll(self) -> None:
        while not isinstance(step := self._watch.next_step(), StopAsking):
            if isinstance(step, Pause):
                await asyncio.sleep(max(step.seconds, self._trial.node.world.course.asks))
            else:
                await self._ask(step.seconds)
            if self._watch.reply is not None or self._watch.fatal is not None:
                self._known.set()

    async def _ask(self, seconds: float) -> None:
        token = read_token(self._trial.directory.root)
        asked = Request("GET", "task/preempt", {"timeout_seconds": f"{seconds:g}"}, b"", token)
        try:
            status, body = await self._trial.node.world.network.request(asked, patience=seconds + PATIENCE)
        except (TimeoutError, Broken) as error:
            self._watch.failed(errors.ClusterUnreachable(str(error)))
            return
        if status == 200:
            self._watch.replied(PreemptReply.model_validate_json(body))
        else:
            self._watch.failed(errors.from_reply(status, json.loads(body)))


async def _within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Trial:
    """The user's process."""

    def __init__(self, node: Node, launch: Launch, directory: TaskDir) -> None:
        self.node, self.launch, self.directory = node, launch, directory
        self.process = Process(node.world.loop, f"trial {part_of(launch)}", node.name)
        self.exit_code: int | None = None
        self.dies_saving: str | None = None
        self.pace = node.world.course.pace(node.world.seed, launch.allocation_id)

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._run())

    def end(self, code: int) -> None:
        """The process is gone."""
        if self.process.alive:
            self.exit_code = code
            self.process.kill()

    async def _run(self) -> None:
        try:
            code = await as_thread(self._main)
        except errors.DetlabError as error:
            self.node.world.note("fails", self.process.name, error.code)
            code = 1
        except (MeetingError, PeerLost) as error:
            self.node.world.note("fails", self.process.name, error)
            code = 1
        self.end(code)

    def _main(self) -> int:
        """What a user writes with the Core API; a command only takes its time."""
        if "detlab.run.collect" in self.launch.entrypoint:
            return self.node.world.collect(self)
        if self.launch.kind != "trial":
            block(asyncio.sleep(float(self.launch.environment["LENGTH"])))
            return 0
        info, loop = self.launch.info, self.node.world.loop
        ring = self.node.world.ring_of(self.launch)
        if ring is not None:
            ring.join(info.container_rank, self)
            meet(self, PostBridge(self.node))
            self.node.world.promises.met(self.launch, whole=ring.whole)
            if info.container_rank > 0:
                ring.wait_for_the_chief()
                return 0
        session = TaskSession(
            URL,
            self.directory.root,
            transport=HttpBridge(self.node),
            sleep=lambda seconds: block(asyncio.sleep(seconds)),
            clock=loop.time,
        )
        ranks, spool = DummyDistributedContext(), WatchedSpool(self)
        train = TrainContext(spool, session, ranks, None)  # it writes no event files
        saved = CheckpointContext(ranks, FragileStorage(self.node.world.checkpoints, self), session, spool)
        saved._trial_id = info.trial_id  # no leftovers are looked for, but ids are of the trial, as the master wants
        preempt = PreemptContext(session, ranks, make_watcher=lambda: Watcher(self)).start()  # no thread
        first = 0
        if info.latest_checkpoint is not None:
            with saved.restore_path(info.latest_checkpoint) as path:
                first = int(json.loads((path / "state.json").read_bytes())["step"])
        self.node.world.promises.resumed(self.launch, first)
        course, trial_id = self.node.world.course, info.trial_id or 0
        length = int(self.launch.environment.get("LENGTH") or course.length(trial_id))
        for step in range(first + 1, length + 1):
            block(asyncio.sleep(self.pace))
            if ring is not None:
                ring.step()
            metrics = {"loss": curve(info.trial_seed or 0, step), "mark": float(self.launch.run * 1000 + step)}
            train.report_validation_metrics(step, metrics)
            leave = preempt.should_preempt()
            if leave or course.saves(trial_id, step):
                self._save(saved, step)
            if leave:
                break
        if ring is not None:
            ring.over = True
        return 0

    def _save(self, saved: CheckpointContext, step: int) -> None:
        folder = self.directory.root / "saving"
        folder.mkdir(exist_ok=True)
        (folder / "state.json").write_text(json.dumps({"step": step, "trial": self.launch.info.trial_id}))
        saved.upload(folder, {"steps_completed": step})


class _NoLogs:
    """In the place of the log spool: this trial prints nothing."""

    def committed(self, end: int) -> bool:
        """Nothing is ever emptied."""
        return False


class Marks(DirMarks):
    """The launcher's marks; what is acknowledged is noted for the promises."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__(launcher.directory, _NoLogs())
        self._launcher = launcher

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Note and go on."""
        self._launcher.node.world.promises.acknowledged(part_of(self._launcher.launch), shipper.acked)
        super().committed(shipper, reader)

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nobody but its writers touches a spool."""
        raise AssertionError(reader.damage)

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """No record of these trials may be refused."""
        self._launcher.node.world.loop.errors.append(f"refused: {refusals}")


class Launcher:
    """The process between agent and trial."""

    def __init__(self, node: Node, launch: Launch, directory: TaskDir) -> None:
        self.node, self.launch, self.directory = node, launch, directory
        self.process = Process(node.world.loop, f"launcher {part_of(launch)}", node.name)
        self.trial = Trial(node, launch, directory)

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._run())

    async def _run(self) -> None:
        trial_gone = asyncio.Event()
        self.trial.process.at_death.append(lambda: self.process.call_later(0.001, trial_gone.set))
        self.trial.start()
        deliverer = self._make_deliverer()
        delivery = asyncio.create_task(as_thread(deliverer.run))
        await trial_gone.wait()
        deliverer.ask(Mode.FINISH)
        await delivery
        delivered = deliverer.ending in {DeliveryEnding.DELIVERED, DeliveryEnding.FENCED}
        write_json(self.directory.exit, {"exit_code": self.trial.exit_code, "delivered": delivered})
        self.node.world.promises.delivered(self.launch, deliverer.ending)
        self.process.kill()

    def _make_deliverer(self) -> Deliverer:
        loop = self.node.world.loop
        mark = read_mark(self.directory.acked("metrics"))
        reader = SpoolReader(lambda: open_regular(self.directory.stream("metrics")), after=mark)
        return Deliverer(
            lambda: PostBridge(self.node),
            f"task/records?node={node}" if (node := self.launch.info.container_rank) else "task/records",
            [SpoolSource(reader, StreamShipper("metrics", acked=mark))],
            TokenKeeper(
                read_token(self.directory.root),
                loop.time() + life_of(self.launch.token_life, self.launch.token_expires_at, self.node.clock()),
                loop.time(),
            ),
            Marks(self),
            renew_path="task/token",
            on_token=lambda token: write_atomic(self.directory.token, token.encode()),
            on_fenced=lambda message: self.trial.end(-9),
            clock=loop.time,
            wall=self.node.clock,
            pause=lambda seconds: block(asyncio.sleep(max(seconds, self.node.world.course.look))),
        )


def written_exit(directory: TaskDir) -> dict[str, Any] | None:
    """What the launcher wrote last."""
    return read_object(directory.exit)
