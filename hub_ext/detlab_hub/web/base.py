"""The base of every handler: headers, authentication, the body limit, and the one table of HTTP statuses."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable
from http import HTTPStatus
from itertools import islice
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError
from tornado import web
from tornado.http1connection import HTTP1Connection

from detlab import errors
from detlab.schemas.wire import API_PREFIX, ErrorView, ProblemView, Wire
from detlab_hub.services import AgentCaller, Caller, EnrolCaller, Services, TaskCaller
from detlab_hub.services.admission.user_limits import UserLimits
from detlab_hub.services.base.access import Hidden, check_may_ask
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.base.limits.reached import Reached, TooFast
from detlab_hub.services.base.threads import Tickets, user_of
from detlab_hub.services.checkpoints.stores import NotTheClusters
from detlab_hub.services.cluster.refusals import Refusals
from detlab_hub.services.tracking.access import Tracker
from detlab_hub.web.auth import Identifier, Recognized
from detlab_hub.web.bodies import BodyLimits, Buffer
from detlab_hub.web.crosssite import misdeclared
from detlab_hub.web.scopes import (
    CHANGING,
    PEOPLE,
    AnyCaller,
    Operation,
    Scope,
    granted,
    needs,
    operation_of,
    scope_name,
)

log = logging.getLogger("detlab.web")

STATUS: dict[type[Exception], int] = {
    errors.AuthError: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.LimitReached: 429,
    errors.Unavailable: 503,
    errors.ConfigError: 422,
    errors.ResourcesError: 422,
    errors.BundleTooLarge: 413,
    errors.BundleError: 422,
    errors.CheckpointError: 422,
    errors.StorageError: 500,
    errors.DetlabError: 400,
    ValidationError: 422,
}
"""HTTP status of each exception, by its nearest class. No number is written anywhere else."""

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PartQuery(Wire):
    """Which part of a list that is made as a whole."""

    skip: int = Field(0, ge=0, lt=2**31)
    """Items of the parts before: the `next` of the part before."""


RowId = Annotated[int, Field(ge=0, lt=2**63)]
"""An id or a cursor in a query: what a database can hold."""

TOKEN_KINDS = {
    "dttask": "of a task",
    "dtrun": "of a notebook run",
    "dtagent": "of an agent",
    "dtenrol": "for enrolment",
    "dthub": "of a spawner",
}
"""The kind of a token by its prefix, in the audit log of refusals."""

RETRY_AFTER = "5"
"""Seconds after which it is worth asking again, when the master is busy or cannot write."""
BODY_LIMIT = 6 * 1024 * 1024
"""Bytes of a JSON body: a batch of records is at most 4 MB."""


REPLIES_PER_USER, REPLIES = 32 * 1024 * 1024, 512 * 1024 * 1024
"""Most bytes of replies that may wait in memory for readers, of one user and of all."""
COUNTED_REPLY = 64 * 1024
"""Bytes of a reply that counts: smaller ones fit into the buffers of the sockets."""
VALUES_LIMIT = 300_000
"""Values of a JSON body: 4 MB of records have fewer."""
MISTAKES = 100
"""Most errors of a request that are listed."""
_QUOTE = ord('"')
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A text, which may hold marks of its own, or what a further value begins with; nothing here is tried twice."""


def has_too_many_values(body: bytes | bytearray) -> bool:
    """Whether a JSON text has more than `VALUES_LIMIT` values, without parsing it."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= VALUES_LIMIT:
        return False
    marks = (1 for found in _MARKS.finditer(body) if body[found.start()] != _QUOTE)
    return sum(islice(marks, VALUES_LIMIT + 1)) > VALUES_LIMIT


STATUS[NotTheClusters] = 409


class BodyTooLarge(errors.DetlabError):
    """A request body over the limit of its route."""

    default_code = "request.too_large"


STATUS[BodyTooLarge] = 413


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an exception: the table's entry of its nearest class, else 500."""
    if type(error) is errors.ApiError:
        return error.status
    if isinstance(error, web.HTTPError):
        return error.status_code
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), 500)


def error_view(error: BaseException) -> ErrorView:
    """Return the body that reports an exception to a caller; an unexpected exception reveals nothing of itself."""
    match error:
        case errors.ConfigError():
            problems = [ProblemView(**problem.to_dict()) for problem in error.problems]
            return ErrorView(code=error.code, message=error.headline, hint=error.hint, problems=problems)
        case errors.ApiError():
            problems = [ProblemView(**problem.to_dict()) for problem in error.problems]
            return ErrorView(code=error.code, message=error.message, hint=error.hint, problems=problems)
        case errors.DetlabError():
            return ErrorView(code=error.code, message=error.message, hint=error.hint)
        case ValidationError() if error.error_count() > MISTAKES:
            return ErrorView(
                code="request.invalid",
                message=f"the request is not valid for this route: it has {error.error_count():,} errors",
            )
        case ValidationError():
            found = [
                ProblemView(path=".".join(str(part) for part in item["loc"]), message=item["msg"])
                for item in error.errors(include_url=False, include_context=False, include_input=False)
            ]
            return ErrorView(code="request.invalid", message="the request is not valid for this route", problems=found)
        case web.HTTPError():
            phrase = error.reason or HTTPStatus(error.status_code).phrase
            return ErrorView(code=f"http.{error.status_code}", message=phrase)
    return ErrorView(
        code="internal",
        message="the master failed to answer; its log says why",
        hint="Whoever runs the master finds it in .detlab/logs/master.log where `det up` started it, else in its"
        " service's log",
    )


class Guarded(Recognized):
    """Base of all handlers: default deny, security headers, `ErrorView` bodies.

    A subclass defines its verbs with `needs`; one without makes the class definition fail.
    """

    login_redirect: ClassVar[bool] = False
    """Whether an anonymous browser is sent to the Hub to log in (pages) or refused (the API)."""
    body_limit: int = BODY_LIMIT
    _stream_request_body = True  # bodies are read only after `prepare` has let the caller in

    caller: AnyCaller | None = None
    known_as: str | None = None
    """The user of the session, before the request is known to come from the user."""
    _refusal: Exception | None = None
    _to_login = False
    _begun = False
    """Whether the body has come and the verb was called, which ends in `on_finish` even when the client has gone."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for verb in cls.SUPPORTED_METHODS:
            own = cls.__dict__.get(verb.lower())
            if own is None:
                continue
            declared = getattr(own, "operation", None)
            if not isinstance(declared, Operation):
                raise TypeError(f"{cls.__name__}.{verb.lower()} declares no scope: decorate it with needs(...)")
            reads = declared.reads or Scope.PUBLIC in declared.scopes
            if verb in CHANGING and declared.action is None and not reads:
                raise TypeError(f"{cls.__name__}.{verb.lower()} names no action: needs(..., action=Action....)")
            public, people = Scope.PUBLIC in declared.scopes, bool(PEOPLE & declared.scopes)
            wrong = misdeclared(declared.cross_site, verb, public=public, people=people)
            if wrong:
                raise TypeError(
                    f"{cls.__name__}.{verb.lower()} cannot be {declared.cross_site!s} to other sites: {wrong}"
                )

    def initialize(self) -> None:
        """Take the Hub's authenticator from the application instead of the process-wide instance."""
        self.hub_auth = self.settings["identifier"].hub
        self._buffer: Buffer | None = None
        self._received = 0

    def set_default_headers(self) -> None:
        """Send the security headers with every reply, errors included."""
        for name, value in SECURITY_HEADERS.items():
            self.set_header(name, value)
        self.clear_header("Server")

    @property
    def services(self) -> Services:
        """The use cases."""
        found: Services = self.settings["services"]
        return found

    @property
    def body_limits(self) -> BodyLimits:
        """How slowly bodies may come, and how much of them may wait in memory."""
        found: BodyLimits = self.settings["bodies"]
        return found

    @property
    def operation(self) -> Operation:
        """The declaration of this request's verb.

        Raises:
            tornado.web.HTTPError: 405, this route does not serve the verb.
        """
        found = operation_of(type(self), self.request.method or "")
        if found is None:
            raise web.HTTPError(405)
        return found

    async def prepare(self) -> None:
        """Admit the caller, or not, before anything of the body is kept.

        A refusal is only noted here and raised by `admitted`, when the body has been read and dropped: tornado closes
        a connection that is answered earlier, which a proxy that keeps it open takes for a fault of ours.
        """
        try:
            await self._let_in()
        except Exception as error:  # a bug too waits until the body is read; `admitted` raises it, which logs it
            self._refusal = error
        self.limit_time()

    def limit_time(self) -> None:
        """Set the deadline of the body; past it the connection is closed."""
        connection = self.request.connection
        if isinstance(connection, HTTP1Connection):
            connection.set_body_timeout(self.body_limits.seconds)

    async def _let_in(self) -> None:
        operation = self.operation
        if Scope.PUBLIC not in operation.scopes:
            await self.authorise(operation)
        said = self.request.headers.get("Content-Length", "0")
        length = int(said) if said.isdigit() else 0
        if length > self.body_limit:
            raise self.too_large()
        if operation.body is not None and self.caller is not None:  # nothing else reads it: it is dropped
            buffer = Buffer(self.body_limits.memory, user_of(self.caller))
            buffer.reserve(length)
            self._buffer = buffer

    def admitted(self) -> bool:
        """Whether the verb may run; False when the browser has been sent to log in.

        Raises:
            DetlabError: The caller was refused.
        """
        self._begun = True
        if self._refusal is not None:
            raise self._refusal
        if self._to_login:
            self.redirect(str(self.get_login_url()))
        return not self._to_login

    def on_finish(self) -> None:
        """Release the memory that the body is charged for."""
        super().on_finish()
        self._drop_body()

    def on_connection_close(self) -> None:
        """Release the memory of a body that has not come whole."""
        super().on_connection_close()
        if not self._begun:
            self._drop_body()

    def _drop_body(self) -> None:
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    async def authorise(self, operation: Operation) -> None:
        """Find out who calls and whether they may call this verb.

        Raises:
            AuthError: The caller is not known.
            TooFast: They call too often.
            Forbidden: They lack the scope.
        """
        identifier: Identifier = self.settings["identifier"]
        self.caller = await identifier.identify(self, operation.cross_site)
        if self.caller is None:
            if self.login_redirect:
                self._to_login = True
                return
            raise errors.AuthError(
                "no valid token came with the request",
                hint="Send 'Authorization: Bearer TOKEN'; det login stores one for the command line.",
            )
        self.services[UserLimits].limiter.request(self.caller)
        if not granted(self.caller) & operation.scopes:
            wanted = " or ".join(sorted(scope_name(scope) for scope in operation.scopes))
            raise errors.Forbidden(
                f"this needs the scope {wanted}", hint="Ask an administrator of the Hub for a token that has it."
            )
        if operation.action is not None:
            check_may_ask(self.caller, operation.action)

    def get_current_user(self) -> str | None:
        """Return the caller's name for tornado and the Hub's XSRF code, which only ask whether there is one."""
        return self.caller.name if isinstance(self.caller, Caller) else None

    @property
    def person(self) -> Caller:
        """The caller, on a verb that only people may call.

        Raises:
            Forbidden: The caller is not a person.
        """
        if not isinstance(self.caller, Caller):
            raise errors.Forbidden("this is for people, by a token of the Hub")
        return self.caller

    @property
    def task(self) -> TaskCaller:
        """The caller, on a verb of the task API.

        Raises:
            Forbidden: The caller is not a task.
        """
        if not isinstance(self.caller, TaskCaller):
            raise errors.Forbidden("this is for tasks, by their task token")
        return self.caller

    @property
    def tracker(self) -> Tracker:
        """The caller, a user or a task, on a verb by which runs log.

        Raises:
            Forbidden: It is a program of another kind.
        """
        if not isinstance(self.caller, Caller | TaskCaller):
            raise errors.Forbidden("this is for people and trials, by their tokens")
        return self.caller

    @property
    def agent(self) -> AgentCaller:
        """The caller, on a verb of agents.

        Raises:
            Forbidden: The caller is not an agent.
        """
        if not isinstance(self.caller, AgentCaller):
            raise errors.Forbidden("this is for agents, by their own key")
        return self.caller

    @property
    def enrolment(self) -> EnrolCaller:
        """The caller, where an agent enrols.

        Raises:
            Forbidden: The caller has no enrolment token.
        """
        if not isinstance(self.caller, EnrolCaller):
            raise errors.Forbidden("this is for enrolling agents, by an enrolment token")
        return self.caller

    @property
    def hub(self) -> HubCaller:
        """The caller, on a verb of the Hub's spawners.

        Raises:
            Forbidden: The caller is not a spawner of the Hub.
        """
        if not isinstance(self.caller, HubCaller):
            raise errors.Forbidden("this is for the Hub's spawners, by their own token")
        return self.caller

    def too_large(self) -> errors.DetlabError:
        """Return the refusal of a body over this route's limit."""
        return BodyTooLarge(f"the body is larger than the {self.body_limit:,} bytes this route takes")

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Collect the body of a caller who was let in, up to the limits; the rest is read and dropped."""
        self._received += len(chunk)
        if self._buffer is None:
            return None
        if self._received > self.body_limit:
            self._drop_body()  # `body` refuses
            return None
        try:
            self._buffer.add(chunk)
        except errors.Unavailable as error:
            self._refusal = error
            self._drop_body()
        return None

    @property
    def body(self) -> bytes | bytearray:
        """The whole body.

        Raises:
            BodyTooLarge: It was sent in chunks and passed the limit.
        """
        if self._received > self.body_limit:
            raise self.too_large()
        return self._buffer.data if self._buffer is not None else b""

    def read_body(self, model: type[BaseModel]) -> BaseModel:
        """Parse the JSON body; an empty one is an empty object.

        Raises:
            BodyTooLarge: It has too many values: each takes a hundred bytes of memory, whatever it is.
        """
        body = self.body or b"{}"
        if has_too_many_values(body):
            raise BodyTooLarge(f"the body has more than the {VALUES_LIMIT:,} values that are read")
        return model.model_validate_json(body)

    def read_query(self, model: type[BaseModel]) -> BaseModel:
        """Parse the query string; a field that is a list takes repeats, commas, and JSON (for names with commas)."""
        raw: dict[str, Any] = {}
        for name, info in model.model_fields.items():
            values = self._query_texts(name)
            if not values:
                continue
            if takes_list(info.annotation):
                raw[name] = [part for value in values for part in _parts(value)]
            else:
                raw[name] = values[-1]
        return model.model_validate(raw)

    def _query_texts(self, name: str) -> list[str]:
        """Return a parameter's values as they were sent: tornado would change control characters in metric names.

        Raises:
            HTTPError: It is not UTF-8.
        """
        try:
            return [value.decode() for value in self.request.query_arguments.get(name, [])]
        except UnicodeDecodeError as error:
            raise web.HTTPError(400, f"the parameter {name} is not UTF-8") from error

    def send(self, operation: Operation, value: Any) -> None:
        """Write a handler's return value as strict JSON.

        Args:
            operation: The verb, with the status and the encoder of its reply.
            value: What the handler returned.
        """
        if operation.encoder is None:
            if operation.status == 204:
                self.set_status(204)
            return
        self.set_header("Content-Type", "application/json")
        if self.get_status() == 200:  # else the handler has chosen one
            self.set_status(operation.status)
        self._finish_counted(operation.encoder.dump_json(value))

    def _finish_counted(self, body: bytes) -> None:
        """Send a reply; a large one counts against its reader until it has left the process.

        Raises:
            Unavailable: The reader has asked for more than they read.
        """
        if len(body) < COUNTED_REPLY or self.caller is None:
            self.finish(body)
            return
        replies: Tickets = self.settings["replies"]
        user = user_of(self.caller)
        replies.take(user, len(body))
        self.finish(body).add_done_callback(lambda _: replies.release(user, len(body)))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an `ErrorView`."""
        error = kwargs.get("exc_info", (None, web.HTTPError(status_code), None))[1]
        self.set_status(status_of(error))
        self._note_refusal(error)
        if isinstance(error, TooFast):
            self.set_header("Retry-After", str(error.retry_after))
        if self.get_status() == 401:
            self.set_header("WWW-Authenticate", 'Bearer realm="detlab"')
        if self.get_status() == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", RETRY_AFTER)
        self.set_header("Content-Type", "application/json")
        self.finish(error_view(error).model_dump_json())

    def _note_refusal(self, error: Any) -> None:
        """Record refused access of callers that are known or show a token, and reached limits."""
        if isinstance(error, Reached):
            self.services[UserLimits].note(error)
            return
        if not isinstance(error, errors.AuthError | errors.Forbidden | Hidden):
            return
        actor = _actor_of(self)
        if actor is None:
            return
        prefix: str = self.settings["prefix"]
        path = urlsplit(self.request.uri or "").path.removeprefix(prefix).removeprefix(API_PREFIX)
        self.services[Refusals].note(
            actor=actor,
            verb=self.request.method or "",
            route=self.settings["templates"].get(type(self), "-"),
            path=path,
            reason=f"not theirs, told {error.code}" if isinstance(error, Hidden) else error.code,
            address=self.request.remote_ip or "-",
        )

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what the master did wrong with its traceback; what the caller did wrong, or the database, in one line."""
        where = f"{self.request.method} {urlsplit(self.request.uri or '').path}"
        if value is not None and (status_of(value) < 500 or isinstance(value, errors.Unavailable)):
            log.info("%s: %s", where, str(value).replace("\n", " "))
        else:
            log.error("%s failed", where, exc_info=(typ, value, tb))


class NoSuchRoute(Guarded):
    """Everything else under the prefix."""

    @needs("public", cross_site="open")
    async def get(self) -> None:
        """Refuse."""
        raise errors.NotFound(
            f"there is no route {urlsplit(self.request.uri or '').path}", hint="openapi.json lists them."
        )

    head = post = put = patch = delete = options = get


def _actor_of(handler: Guarded) -> str | None:
    """Return the name of a refused caller for the audit log; None: the request has nothing that could be a token."""
    match handler.caller:
        case Caller(name=name):
            return name
        case TaskCaller(allocation_id=allocation):
            return f"task {allocation}"
        case AgentCaller(agent_id=agent):
            return f"agent {agent}"
        case HubCaller():
            return "the Hub's spawner"
        case EnrolCaller():
            return "an enrolment token"
    if handler.known_as is not None:
        return handler.known_as
    said = handler.request.headers.get("Authorization", "").split()
    if not said:
        return None
    kind = TOKEN_KINDS.get(said[-1].partition("_")[0], "of the Hub")
    return f"an unknown token {kind}"


def access_log(handler: web.RequestHandler) -> None:
    """Log a request without its query (a browser's XSRF token may be there) and with its caller."""
    status = handler.get_status()
    quiet = status < 400
    match getattr(handler, "caller", None):
        case Caller(name=name):
            who, quiet = name, quiet and handler.request.method in {"GET", "HEAD"}
        case TaskCaller(allocation_id=allocation):
            who = f"task {allocation}"
        case AgentCaller(agent_id=agent):
            who = f"agent {agent}"
        case HubCaller():
            who, quiet = "hub", quiet and handler.request.method in {"GET", "HEAD"}
        case _:
            who, quiet = "-", False
    level = logging.ERROR if status >= 500 else logging.DEBUG if quiet else logging.INFO
    path = urlsplit(handler.request.uri or "").path
    taken = 1000 * handler.request.request_time()
    log.log(level, "%d %s %s (%s) %.1f ms", status, handler.request.method, path, who, taken)


def takes_list(annotation: object) -> bool:
    """Say whether a field of this type may be a list: it is one, or a union that has one."""
    origin = get_origin(annotation)
    if list in {annotation, origin}:
        return True
    return origin in {Union, UnionType, Annotated} and any(takes_list(part) for part in get_args(annotation))


def _parts(value: str) -> list[str]:
    """Return the texts of a list in a query: `a,b`, or `["a,b","c"]` where a text may hold a comma."""
    if value.startswith('["'):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if isinstance(found, list) and all(isinstance(part, str) for part in found):
            return found
    return [part for part in value.split(",") if part]
