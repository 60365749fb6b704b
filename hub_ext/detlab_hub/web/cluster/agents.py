"""Routes of agents: enrolment, their WebSocket, and output spooled by launchers that died."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from detlab.errors import DetlabError, Forbidden
from detlab.schemas.wire import (
    AgentMessage,
    AgentView,
    EnrolReply,
    EnrolRequest,
    Hello,
    MasterMessage,
    PersonRequest,
    RecordAck,
    RecordBatch,
    Refused,
    Wire,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.agents.agents import Agents as AgentsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs

log = logging.getLogger("detlab.web")

_MESSAGE: TypeAdapter[Any] = TypeAdapter(AgentMessage)
REASON_BYTES = 120
"""The protocol of WebSockets allows 123."""
_FIELDS_SHOWN = 3


def said_of(error: ValidationError) -> str:
    """Name the first wrong fields, and what is wrong with them: a message of megabytes can have as many errors."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:_FIELDS_SHOWN]
    return "; ".join(f"{'.'.join(map(str, one['loc']))[:60]}: {one['type']}" for one in found)


def _cut(reason: str) -> str:
    return reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")


class EnrolmentRequest(PersonRequest):
    """For how long the token should work."""

    ttl: float = Field(3600.0, gt=0, le=30 * 86400)
    """Seconds."""


class EnrolmentToken(Wire):
    """A token by which agents may enrol."""

    token: str
    expires_at: float


class RecordsQuery(Wire):
    """The allocation of the records."""

    allocation_id: str
    node: str = ""
    """Which of the agent's nodes had the launcher."""


@route("agents", relayed=True)
class Agents(Guarded):
    """All agents."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> list[AgentView]:
        """List the agents and what their slots do."""
        return await self.services[AgentsService].list(self.person)


@route("agents/enrolments")
class Enrolments(Guarded):
    """Enrolment tokens."""

    @needs("admin", cross_site="xsrf", action=Action.ENROLMENT_CREATE)
    async def post(self, body: EnrolmentRequest) -> EnrolmentToken:
        """Make an enrolment token for a new agent."""
        made = await self.services[AgentsService].create_enrolment(self.person, body.ttl)
        return EnrolmentToken.model_validate(made, from_attributes=True)


@route("agents/enrol")
class Enrol(Guarded):
    """Enrolling."""

    @needs("enrol", cross_site="token", action=Action.AGENT_ENROL)
    async def post(self, body: EnrolRequest) -> EnrolReply:
        """Exchange an enrolment token for the agent's own key."""
        return await self.services[AgentsService].enrol(self.enrolment, body)


@route("agents/records")
class AgentRecords(Guarded):
    """Records that an agent delivers for a launcher that died."""

    @needs("agent", cross_site="token", action=Action.AGENT_RECORDS)
    async def post(self, query: RecordsQuery, body: RecordBatch) -> RecordAck:
        """Take what a dead launcher left in its spool."""
        return await self.services[AgentsService].records(self.agent, query.allocation_id, body, query.node)


@route("agents/connect")
class Connect(Guarded, WebSocketHandler):
    """The connection of one agent. Authenticated before the upgrade, like everything else."""

    hello_wait = 10.0
    """Seconds that the first message may take."""

    def initialize(self) -> None:
        """Begin without a session."""
        super().initialize()
        self._session: Any = None
        self._timer: asyncio.TimerHandle | None = None

    @needs("agent", cross_site="token")
    async def get(self) -> None:
        """Connect as an agent (WebSocket): Hello first, then messages both ways."""
        if "Origin" in self.request.headers:
            raise Forbidden("this is for agents, not for browsers")
        await WebSocketHandler.get(self)

    def open(self, *args: str, **kwargs: str) -> None:
        """Start the time limit for the agent's Hello."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.hello_wait, self.close, 4008, "no hello")

    async def on_message(self, message: str | bytes) -> None:
        """Hand a message to the session; the first one must be Hello and makes it."""
        try:
            parsed = _MESSAGE.validate_json(message)
            if self._session is not None:
                await self._session.receive(parsed)
            elif isinstance(parsed, Hello):
                await self._greet(parsed)
            else:
                self.close(4002, "the first message must be hello")
        except ValidationError as error:
            log.warning("agent %s: an invalid message: %s", self.agent.agent_id, said_of(error))
            self.close(4002, _cut(f"not a message of this protocol: {said_of(error)}"))
        except DetlabError as error:
            log.warning("agent %s: %s", self.agent.agent_id, error)
            if self._session is None:
                self.say(Refused(message=str(error)))
            self.close(4003, _cut(error.message))

    async def _greet(self, hello: Hello) -> None:
        if self._timer is not None:
            self._timer.cancel()
        session = self.services[AgentsService].connect(self.agent, hello, self.say)
        self._session = await session if asyncio.iscoroutine(session) else session
        self._session.on_hang_up(functools.partial(self.close, 4004, "removed by an administrator"))
        if self.ws_connection is None:  # it left while we were greeting
            await self._hang_up()

    def say(self, message: MasterMessage) -> None:
        """Send a message to the agent; a disconnected one gets it after its next Hello."""
        assert isinstance(message, BaseModel)
        try:
            self.write_message(message.model_dump_json())
        except WebSocketClosedError:
            log.debug("agent %s left before %s", self.agent.agent_id, message.type)

    def on_close(self) -> None:
        """Tell the session that its connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self.settings["background"](self._hang_up())

    async def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            result = session.closed()
            if asyncio.iscoroutine(result):
                await result
