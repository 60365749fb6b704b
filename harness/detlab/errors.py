"""The exception tree of detlab, shared by the SDK, the harness, the master and the agent.

    Exception
     └─ DetlabError                 user_error          base: message, optional hint, stable code
         ├─ ConfigError             config.invalid      an experiment config with its list of `Problem`s
         ├─ BundleError             bundle.invalid      code that cannot be packed, sent or unpacked
         │   └─ BundleTooLarge      bundle.too_large    over the size cap
         ├─ ResourcesError          resources.impossible  no agent could ever run the request
         ├─ StorageError            storage.failed      a checkpoint store that cannot be read or written
         │   ├─ StorageDenied       storage.denied      this user may not write, or not read, there
         │   ├─ StorageRefused      storage.refused     the store says no: wrong bucket, region or credentials
         │   ├─ StorageAway         storage.away        the store does not answer now, or answers 5xx or 429
         │   └─ CheckpointError     checkpoint.invalid  incomplete, altered or unknown checkpoint
         │       ├─ CheckpointMissing  checkpoint.missing  a committed checkpoint whose files are not there
         │       └─ CheckpointUnreadable  checkpoint.unreadable  one whose files its user lets nobody else read
         ├─ InvalidHP               invalid_hp          user code: these hyperparameters cannot be trained
         ├─ NotInCluster            not_in_cluster      needs a task's environment, found none
         ├─ ClusterNotFound         cluster.not_found   no cluster is configured here
         │   └─ ClusterGuessed      cluster.guessed     nobody named the cluster that would be changed
         ├─ ClusterUnreachable      cluster.unreachable the master does not answer
         │   └─ UntrustedMaster     cluster.untrusted   the certificate of the server is not trusted
         └─ ApiError                api.error           the master answered with an error (HTTP status)
             ├─ AuthError           auth.denied         401: no valid credentials
             ├─ Forbidden           auth.forbidden      403: known, not allowed
             ├─ NotFound            not_found           404
             ├─ Conflict            conflict            409: the state does not allow it
             │   └─ StaleAttempt    stale_attempt       409: a newer attempt of this trial owns the record
             ├─ LimitReached        limit.reached       429: over a user's limit; its code names the limit
             └─ Unavailable         unavailable         503: the master is up but cannot serve

Codes are part of the wire protocol: a reply carries `code`, `message` and `hint`, and `from_reply` turns it
back into the class above. Only the standard library is imported here.

Names of Determined's `determined.errors` are there, too, for `except` clauses: those of an error that can happen here
are the class above it (`OF_DETERMINED`), the rest are classes that nothing raises.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

Level = Literal["error", "warning"]
_OURS = __file__.removesuffix("errors.py")
_SHOWN_FRAMES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or odd, in a config.

    Attributes:
        path: Where, as `searcher.max_trials` or `bind_mounts[0].host_path`; empty for the whole document.
        message: What is wrong, in one line.
        hint: What to do about it, if that is known.
        level: `error` refuses the config, `warning` does not.
    """

    path: str
    message: str
    hint: str | None = None
    level: Level = "error"

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        mark = "warning: " if self.level == "warning" else ""
        tail = f" ({self.hint})" if self.hint else ""
        return f"{mark}{where}{self.message}{tail}"

    def to_dict(self) -> dict[str, str | None]:
        """Return `{path, message, hint, level}`, as `det config check --json` prints it."""
        return dataclasses.asdict(self)


class DetlabError(Exception):
    """Base of all errors that detlab raises on purpose.

    Args:
        message: What happened, where, and the likely cause, for a person.
        hint: The next thing to do, such as a command.
        code: Stable machine name; defaults to the class's own.
    """

    default_code: ClassVar[str] = "user_error"

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the lines of the caller's code, and what happened, not detlab's own calls."""
        mine = [frame for frame in traceback.extract_tb(self.__traceback__) if _is_the_users(frame)]
        shown = mine if len(mine) <= _SHOWN_FRAMES else [mine[0], *mine[1 - _SHOWN_FRAMES :]]
        where = [f"{_in_notebook(one.filename)}, line {one.lineno}\n----> {one.lineno} {one.line}\n" for one in shown]
        return [*where, f"\x1b[0;31m{type(self).__name__}\x1b[0m: {self}"]


def _is_the_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((_OURS, "<frozen")) and f"{os.sep}site-packages{os.sep}" not in frame.filename


def _in_notebook(path: str) -> str:
    """Return the file of some code for a person: of a notebook's cell, the cell as IPython calls it."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = None if shell is None else shell.compile.format_code_name(path)
    return f"File {path}" if named is None else " ".join(named)


class ConfigError(DetlabError):
    """An experiment config that cannot be used; `problems` holds every mistake, warnings included."""

    default_code = "config.invalid"

    def __init__(
        self,
        problems: Iterable[Problem],
        message: str | None = None,
        *,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        self.problems = list(problems)
        errors = [problem for problem in self.problems if problem.level == "error"]
        noun = "error" if len(errors) == 1 else "errors"
        headline = message or f"the experiment config has {len(errors)} {noun}"
        lines = [headline, *(f"  {problem}" for problem in errors)]
        super().__init__("\n".join(lines), hint=hint, code=code)
        self.headline = headline


class BundleError(DetlabError):
    """The code of an experiment cannot be packed, sent or unpacked."""

    default_code = "bundle.invalid"


class BundleTooLarge(BundleError):
    """The code of an experiment is over the size cap."""

    default_code = "bundle.too_large"


class ResourcesError(DetlabError):
    """No agent of this cluster could ever run what was asked for."""

    default_code = "resources.impossible"


class StorageError(DetlabError):
    """A checkpoint store cannot be read or written."""

    default_code = "storage.failed"


class StorageDenied(StorageError):
    """The operating system does not let this process write to a checkpoint store, or read from it."""

    default_code = "storage.denied"


class StorageRefused(StorageError):
    """A checkpoint store says no, and would again: no such bucket, another region, wrong or expired credentials."""

    default_code = "storage.refused"


class StorageAway(StorageError):
    """A checkpoint store does not answer now, or says that it cannot: what was asked of it may be asked again."""

    default_code = "storage.away"


class CheckpointError(StorageError):
    """A checkpoint is incomplete, altered, or unknown."""

    default_code = "checkpoint.invalid"


class CheckpointMissing(CheckpointError):
    """Files of a checkpoint are not where it was stored."""

    default_code = "checkpoint.missing"


class CheckpointUnreadable(CheckpointError):
    """Files of a checkpoint are where it was stored, and belong to a user who lets nobody else read them."""

    default_code = "checkpoint.unreadable"


class InvalidHP(DetlabError):
    """Raise in training code: these hyperparameters cannot be trained, draw others.

    Args:
        msg: Why, for the trial's card; also the attribute `msg`.
        hint: As for `DetlabError`.
        code: As for `DetlabError`.

    Raises:
        TypeError: The message is not a string.
    """

    default_code = "invalid_hp"

    def __init__(
        self, msg: str = "these hyperparameters are invalid", *, hint: str | None = None, code: str | None = None
    ) -> None:
        if not isinstance(msg, str):
            raise TypeError(f"the message of InvalidHP must be a string, not {type(msg).__name__}: {msg!r}")
        super().__init__(msg, hint=hint, code=code)
        self.msg = msg


class NotInCluster(DetlabError):
    """The call needs a task's environment, and this process has none."""

    default_code = "not_in_cluster"


class ClusterNotFound(DetlabError):
    """Neither environment, folder nor login names a cluster."""

    default_code = "cluster.not_found"


class ClusterGuessed(ClusterNotFound):
    """A cluster was found that nobody named here: it may be read, and is not changed."""

    default_code = "cluster.guessed"


class ClusterUnreachable(DetlabError):
    """The master does not answer."""

    default_code = "cluster.unreachable"


class UntrustedMaster(ClusterUnreachable):
    """Somebody answers at the master's address whose certificate is not the pinned one, or not believed."""

    default_code = "cluster.untrusted"


class ApiError(DetlabError):
    """The master answered with an error.

    Attributes:
        status: HTTP status code.
        problems: Config problems the reply carried, if any.
    """

    default_code = "api.error"
    default_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        hint: str | None = None,
        code: str | None = None,
        problems: Iterable[Problem] = (),
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.status = self.default_status if status is None else status
        self.problems = list(problems)


class AuthError(ApiError):
    """The token is missing, wrong or expired."""

    default_code = "auth.denied"
    default_status = 401


class Forbidden(ApiError):
    """The caller is known, but may not do this."""

    default_code = "auth.forbidden"
    default_status = 403


class NotFound(ApiError):
    """There is no such thing, or the caller may not know of it."""

    default_code = "not_found"
    default_status = 404


class Conflict(ApiError):
    """The state of the thing does not allow the call."""

    default_code = "conflict"
    default_status = 409


class StaleAttempt(Conflict):
    """A newer attempt of the trial owns what an older one tried to write."""

    default_code = "stale_attempt"


class LimitReached(ApiError):
    """A user asks for more than one may; the code says of what, such as `limit.requests`.

    Attributes:
        retry_after: Seconds after which it may be asked again, where the master says so.
    """

    default_code = "limit.reached"
    default_status = 429
    retry_after: int | None = None


class Unavailable(ApiError):
    """The master runs but cannot serve now."""

    default_code = "unavailable"
    default_status = 503


def _family(base: type[DetlabError]) -> Iterable[type[DetlabError]]:
    yield base
    for child in base.__subclasses__():
        yield from _family(child)


def master_said(body: bytes) -> Mapping[str, Any] | None:
    """Return an error reply of the master, for `from_reply`; None if somebody before it wrote it: a proxy, the Hub.

    The master's errors are JSON objects with a `code` and a `message`. What answers in its place, while it starts or
    while a restarted proxy does not know the route to it, writes pages or JSON without a code.

    Args:
        body: Of a reply that is no success, as it came.
    """
    try:
        said = json.loads(body)
    except ValueError:  # not JSON, or not text at all
        return None
    if not isinstance(said, Mapping) or not isinstance(said.get("code"), str) or "message" not in said:
        return None
    return said


def from_reply(status: int, body: Mapping[str, Any]) -> DetlabError:
    """Return the exception for an error reply of the master.

    Args:
        status: HTTP status code.
        body: The decoded JSON body: `code`, `message`, `hint`, `problems`, each optional.
    """
    code = str(body.get("code") or "")
    message = str(body.get("message") or f"the master answered with status {status}")
    hint = body.get("hint")
    hint = str(hint) if hint else None
    problems = [
        Problem(
            path=str(item.get("path", "")),
            message=str(item.get("message", "")),
            hint=item.get("hint"),
            level="warning" if item.get("level") == "warning" else "error",
        )
        for item in body.get("problems") or []
    ]
    if code == ConfigError.default_code:
        return ConfigError(problems or [Problem("", message)], message, hint=hint, code=code)
    by_code = {cls.default_code: cls for cls in _family(DetlabError) if "default_code" in vars(cls)}
    named = by_code.get(code)
    if named is not None and not issubclass(named, ApiError):
        return named(message, hint=hint, code=code)
    kinds: tuple[type[ApiError], ...] = (AuthError, Forbidden, NotFound, Conflict, LimitReached, Unavailable)
    by_status = {cls.default_status: cls for cls in kinds}
    api = named if named is not None and issubclass(named, ApiError) else by_status.get(status, ApiError)
    return api(message, status=status, hint=hint, code=code or None, problems=problems)


OF_DETERMINED: Mapping[str, type[DetlabError]] = MappingProxyType(
    {
        "APIException": ApiError,
        "CheckpointNotFound": CheckpointMissing,
        "CheckpointStateException": CheckpointError,
        "ForbiddenException": Forbidden,
        "InvalidCheckpointException": CheckpointError,
        "InvalidConfigurationException": ConfigError,
        "InvalidDataTypeException": DetlabError,
        "InvalidExperimentException": DetlabError,
        "InvalidModelException": DetlabError,
        "MasterNotFoundException": ClusterUnreachable,
        "MultipleDownloadsFailed": StorageError,
        "NoDirectStorageAccess": StorageError,
        "NotFoundException": NotFound,
        "ProxiedDownloadFailed": StorageError,
        "UnauthenticatedException": AuthError,
    }
)
"""Determined's names for errors that can happen here."""


class _Unraised(Exception):
    """Base of Determined's errors of its own machinery, which nothing here raises but where it is said."""


class EnterpriseOnlyError(_Unraised):
    """Determined's, where its paid edition was missing."""


class InternalException(_Unraised):
    """Determined's, about itself; the trainer's error before training has started is one, too."""


class SkipWorkloadException(_Unraised):
    """Determined's, of its old harness."""


class StopLoadingImplementation(_Unraised):
    """Determined's, of its old harness."""


class WorkerError(_Unraised):
    """Determined's, of its old harness."""


class WorkerFinishedGracefully(_Unraised):
    """Determined's, of its old harness."""


def __getattr__(name: str) -> Any:
    if name in OF_DETERMINED:
        return OF_DETERMINED[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
