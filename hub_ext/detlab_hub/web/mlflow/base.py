"""The base of the handlers of MLflow's protocol: its errors, its JSON, and that only tokens open it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from tornado import web

from detlab import errors
from detlab_hub.services.admission.storage_quotas import StorageFull
from detlab_hub.services.base.limits.reached import TooFast
from detlab_hub.services.tracking.experiments import AlreadyExists
from detlab_hub.web.base import RETRY_AFTER, BodyTooLarge, Guarded, error_view
from detlab_hub.web.paths import protocol

H = TypeVar("H", bound=type[Guarded])
TRACKING = "mlflow/api/2.0/mlflow/"
ARTIFACTS = "mlflow/api/2.0/mlflow-artifacts/"
REALM = 'Bearer realm="detlab"'


class NotServed(errors.DetlabError):
    """A part of the protocol that is not here."""

    default_code = "mlflow.not_served"


class NoEndpoint(errors.NotFound):
    """A path that is none of the protocol."""

    default_code = "mlflow.no_endpoint"


CODES: dict[type[Exception], tuple[int, str]] = {
    errors.AuthError: (401, "UNAUTHENTICATED"),
    errors.StaleAttempt: (409, "PERMISSION_DENIED"),
    errors.Forbidden: (403, "PERMISSION_DENIED"),
    NoEndpoint: (404, "ENDPOINT_NOT_FOUND"),
    errors.NotFound: (404, "RESOURCE_DOES_NOT_EXIST"),
    AlreadyExists: (400, "RESOURCE_ALREADY_EXISTS"),
    StorageFull: (400, "RESOURCE_EXHAUSTED"),
    errors.Conflict: (400, "INVALID_STATE"),
    TooFast: (429, "REQUEST_LIMIT_EXCEEDED"),
    errors.LimitReached: (429, "REQUEST_LIMIT_EXCEEDED"),
    errors.Unavailable: (503, "TEMPORARILY_UNAVAILABLE"),
    NotServed: (501, "NOT_IMPLEMENTED"),
    BodyTooLarge: (413, "INVALID_PARAMETER_VALUE"),
    errors.DetlabError: (400, "INVALID_PARAMETER_VALUE"),
    ValidationError: (400, "INVALID_PARAMETER_VALUE"),
}
"""Status and MLflow's code of each exception, by its nearest class. A client repeats what is 429 or 5xx for minutes."""


def code_of(error: BaseException) -> tuple[int, str]:
    """Return the status and MLflow's code of an exception."""
    if isinstance(error, web.HTTPError):
        return error.status_code, "BAD_REQUEST" if error.status_code < 500 else "INTERNAL_ERROR"
    return next((CODES[cls] for cls in type(error).__mro__ if cls in CODES), (500, "INTERNAL_ERROR"))


def message_of(error: BaseException) -> str:
    """Return what is said to a client: the message, what is wrong with each field, and the next step."""
    view = error_view(error)
    problems = "; ".join(f"{one.path}: {one.message}" for one in view.problems[:20] if one.message not in view.message)
    return ". ".join(part.rstrip(".") for part in (view.message, problems, view.hint) if part)


class Message(BaseModel):
    """A message of the protocol: unknown fields are ignored, what is not set is left out, NaN is a text."""

    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings", protected_namespaces=())


class Empty(Message):
    """A reply without content."""


class ProtocolHandler(Guarded):
    """Base of all handlers of the protocol."""

    login_redirect: ClassVar[bool] = False

    def send(self, operation: Any, value: Any) -> None:
        """Write a message without what is not set in it."""
        if operation.encoder is None:
            return
        self.set_header("Content-Type", "application/json")
        self._finish_counted(operation.encoder.dump_json(value, exclude_none=True))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with MLflow's error."""
        error = kwargs.get("exc_info", (None, web.HTTPError(status_code), None))[1]
        status, code = code_of(error)
        self.set_status(status)
        self._note_refusal(error)
        if isinstance(error, TooFast):
            self.set_header("Retry-After", str(error.retry_after))
        if status == 401:
            self.set_header("WWW-Authenticate", REALM)
        if status == 503:
            self.set_header("Retry-After", RETRY_AFTER)
        self.set_header("Content-Type", "application/json")
        self.finish(ErrorMessage(error_code=code, message=message_of(error)).model_dump_json())


class ErrorMessage(Message):
    """Every error."""

    error_code: str
    message: str


def serves(*paths: str) -> Callable[[H], H]:
    """Serve paths of the tracking API by a class."""
    return protocol(*(TRACKING + path for path in paths))


def skipped(token: str) -> int:
    """Return how many items the pages before had, by the token that the last one gave.

    Raises:
        ConfigError: It is none.
    """
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        problem = errors.Problem("page_token", "it is none of a page of this list")
        raise errors.ConfigError([problem], "this page_token is none of a page of this list")
    return int(token)


def token_of(following: int | None) -> str | None:
    """Return the token of the next page; None: there is none."""
    return None if following is None else str(following)
