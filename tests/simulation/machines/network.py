"""The network: requests with replies, and the ordered connections of agents; both with faults.

A request may be lost, its reply may be lost, it may arrive twice, late (and thereby after later ones), or at somebody
who is paused; whoever sent it sees a broken connection or a time-out, and cannot tell which it was. A connection keeps
order, as TCP does: it may be cut, with what is on its way, or stand still for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from simulation.loop import Process, SimLoop
from simulation.machines.faults import Faults

OVERTAKEN = 2.0
"""Seconds after which a request that nothing overtakes arrives all the same."""
PATIENCE = 30.0
"""Seconds after which a request without an answer counts as failed; a long poll waits longer by its own time."""


class Broken(OSError):
    """The connection was refused, or broke."""


@dataclass(frozen=True)
class Request:
    """What is asked of a server."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    bearer: str


Reply = tuple[int, bytes]
Handler = Callable[[Request], Awaitable[Reply]]


@dataclass
class Listener:
    """A server at an address."""

    process: Process
    serve: Handler
    welcome: Callable[[End, str], None]


class Network:
    """Everything between processes."""

    def __init__(self, loop: SimLoop, rng: Any, faults: Faults) -> None:
        self._loop, self._rng, self._faults = loop, rng, faults
        self._listeners: list[Listener] = []
        self._cut_off: dict[str, float] = {}
        self._unfelt: set[str] = set()
        """Machines that are cut off, of which no message was held up by it yet."""
        self._overtaken: list[Callable[[], None]] = []
        """Requests that arrive only after a later one has."""
        self.pipes: list[Pipe] = []

    def listen(self, process: Process, serve: Handler, welcome: Callable[[End, str], None]) -> None:
        """Serve at the one address there is: the master's. The newest listener gets what comes."""
        listener = Listener(process, serve, welcome)
        self._listeners.append(listener)

        def gone() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        process.at_death.append(gone)

    def partition(self, machine: str, seconds: float) -> None:
        """Nothing gets through between a machine and the master."""
        self._cut_off[machine] = self._loop.time() + seconds
        self._unfelt.add(machine)

    def parted(self, machine: str) -> float:
        """Seconds until a message from or to a machine gets through; asked for each, so here the effect shows."""
        seconds = max(0.0, self._cut_off.get(machine, 0.0) - self._loop.time())
        if seconds and machine in self._unfelt:
            self._unfelt.remove(machine)
            self._faults.count("partition")
        return seconds

    def latency(self) -> float:
        """Of one message, in seconds."""
        return 0.0005 + 0.004 * self._rng.random()

    def _server(self) -> Listener | None:
        """Whoever has the address: the newest; an old one that has not noticed yet gets a few."""
        if len(self._listeners) > 1 and self._rng.random() < 0.3:
            return self._rng.choice(self._listeners)
        return self._listeners[-1] if self._listeners else None

    # --- requests

    async def request(self, request: Request, *, patience: float = PATIENCE) -> Reply:
        """Send a request and return the reply.

        Raises:
            Broken: No connection, or it broke.
            TimeoutError: No reply in time.
        """
        machine = self._loop.process().machine
        answer: asyncio.Future[Reply] = self._loop.create_future()
        if self.parted(machine):
            self._loop.note("lost", request.path, machine)
        else:
            fate = self._faults.of_message("request")
            self._loop.note("sends", self._loop.process().name, request.method, request.path, fate)
            if fate in {"drop_request", "delay"}:
                self._faults.count(fate)
            if fate != "drop_request":
                late = self._faults.lateness() if fate == "delay" else 0.0
                self._send(request, answer, machine, "none" if fate == "duplicate" else fate, late)
            if fate == "duplicate":
                unheard: asyncio.Future[Reply] = self._loop.create_future()
                self._send(request, unheard, machine, fate, self._faults.lateness())
            if fate in {"drop_request", "drop_reply"} and self._rng.random() < 0.6:
                # Mostly one notices soon: the connection is reset.
                patience = min(patience, 0.2 + self._rng.random())
        async with asyncio.timeout(patience):
            return await answer

    def _send(
        self,
        request: Request,
        answer: asyncio.Future[Reply],
        machine: str,
        fate: str,
        late: float,
    ) -> None:
        sender = self._loop.process()
        lose_reply = fate in {"drop_reply", "duplicate"}  # of the second copy nobody waits for a reply

        def arrive() -> None:
            server = self._server()
            if server is None:
                sender.call_later(self.latency(), _break, answer)
                return
            if fate == "duplicate":
                self._faults.count(fate)

            def reset() -> None:
                if not lose_reply:
                    sender.call_later(self.latency(), _break, answer)

            async def serve() -> None:
                reply = await server.serve(request)
                if reset in server.process.at_death:
                    server.process.at_death.remove(reset)
                if fate == "drop_reply":
                    self._faults.count(fate)
                if not lose_reply and not self.parted(machine):
                    sender.call_later(self.latency(), _give, answer, reply)

            server.process.at_death.append(reset)
            server.process.spawn(serve())
            waiting, self._overtaken = self._overtaken, []
            for late_one in waiting:
                self._faults.count("reorder")
                self._loop.world.call_later(self.latency(), late_one)

        if fate == "reorder":
            self._hold_back(arrive)
        else:
            self._loop.world.call_later(late + self.latency(), arrive)

    def _hold_back(self, arrive: Callable[[], None]) -> None:
        """Let a request arrive after the next one does, or in a while if there is none."""

        def at_last() -> None:
            if arrive in self._overtaken:
                self._overtaken.remove(arrive)
                self._faults.count("delay")  # nothing came after it
                arrive()

        self._overtaken.append(arrive)
        self._loop.world.call_later(OVERTAKEN, at_last)

    # --- connections

    async def dial(self, token: str) -> End:
        """Open a connection to the server.

        Raises:
            Broken: Nobody listens.
        """
        client = self._loop.process()
        await asyncio.sleep(self.latency())
        server = self._server()
        if server is None or self.parted(client.machine):
            raise Broken("refused")
        pipe = Pipe(self, client, server.process)
        self.pipes.append(pipe)
        latency = self.latency()
        server.process.call_later(latency, server.welcome, pipe.server, token)
        pipe.server._last = self._loop.time() + latency + 1e-6  # what is said on it arrives after it
        return pipe.client


@dataclass
class End:
    """One end of a connection, as tornado's WebSocket client shows it."""

    pipe: Pipe
    process: Process
    other: End | None = None
    close_code: int | None = None
    close_reason: str | None = None
    on_message: Callable[[str | None], None] | None = None
    """Called with each message; None: the other end has closed."""
    _arrived: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    _last: float = 0.0

    async def write_message(self, message: str) -> None:
        """Send; what the other end never gets is nobody's to know."""
        self.say(message)

    def say(self, message: str) -> None:
        """`write_message` without waiting."""
        self.pipe.carry(self, message)

    async def read_message(self) -> str | None:
        """The next message; None: closed."""
        return await self._arrived.get()

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close: the other end learns of it."""
        self.pipe.close(self, code, reason)

    def take(self, message: str | None) -> None:
        """A message is here."""
        if self.on_message is not None:
            self.on_message(message)
        else:
            self._arrived.put_nowait(message)


class Pipe:
    """An ordered connection between an agent and a master."""

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self._network = network
        self.client, self.server = End(self, client), End(self, server)
        self.client.other, self.server.other = self.server, self.client
        self.open = True
        self._stalled_until = 0.0
        client.at_death.append(self.cut)
        server.at_death.append(self.cut)

    def carry(self, sender: End, message: str | None) -> None:
        """Bring a message to the other end, after those before it."""
        network, other = self._network, sender.other
        if not self.open or other is None:
            return
        loop = network._loop
        fate = network._faults.of_message("connection") if message is not None else "none"
        if fate != "none":
            network._faults.count(fate)
        if fate == "cut":
            self.cut()
            return
        if fate == "stall":
            self._stalled_until = loop.time() + network._faults.lateness()
        held = network.parted(self.client.process.machine)
        at = max(loop.time() + held + network.latency(), self._stalled_until, other._last)
        other._last = at + 1e-6
        other.process.call_later(at - loop.time(), self._arrive, other, message)

    def _arrive(self, end: End, message: str | None) -> None:
        if self.open or message is None:
            end.take(message)

    def close(self, sender: End, code: int | None, reason: str | None) -> None:
        """Close from one end."""
        if not self.open:
            return
        other = sender.other
        assert other is not None
        other.close_code, other.close_reason = code, reason
        self.carry(sender, None)
        self._end()

    def cut(self) -> None:
        """Break: both ends learn of it, what is on its way is lost. Behind a partition the master learns late."""
        if not self.open:
            return
        network = self._network
        network._loop.note("cut", self.client.process.name)
        self._end()
        for end in (self.client, self.server):
            held = network.parted(self.client.process.machine)
            end.process.call_later(held + network.latency(), end.take, None)

    def _end(self) -> None:
        self.open = False
        if self in self._network.pipes:
            self._network.pipes.remove(self)


def _give(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():
        answer.set_result(reply)


def _break(answer: asyncio.Future[Reply]) -> None:
    if not answer.done():
        answer.set_exception(Broken("the connection broke"))
        answer.exception()  # whoever asked may have given up: then nobody wants to know
