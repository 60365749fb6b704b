"""Ask the master for a trial's hyperparameters when its job runs, then start `detlab.launch.elsewhere`.

A job or a pod may wait for long in a queue that is not the master's. What a search draws when it runs, and not when it
was handed over, has the results of all trials until then. An agent sends the text of this module along (`python -c`):
the detlab of the job's image may be of an earlier version, which knows nothing of the question.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from detlab.launch.elsewhere import LEAVE, NOT_SET_UP, PATIENCE, PIN_FILE, VARIABLE, NotSetUp, Parcel, main
from detlab.loopback.connections import LoopbackConnection
from detlab.trust import tls_context

WAIT = 20.0
"""Seconds that one question waits at the master for the answer."""
_TIMEOUT = 60.0
_PAUSE = 2.0
"""Seconds until the master is asked again while it is away."""
_OVER = {400, 403, 404, 409, 422}
"""Answers that stay as they are."""


class EndedBeforeStart(BaseException):
    """The job is to end before its task has begun."""


def with_point(parcel: Parcel) -> Parcel:
    """Return a parcel with the trial's hyperparameters, for which this waits as long as the master answers.

    Raises:
        NotSetUp: The attempt is over, or the master is away for too long.
    """
    launch, token = parcel.contents.launch, parcel.contents.token
    master, pinned = str(launch["info"]["master_url"]), parcel.contents.files.get(PIN_FILE)
    until, said = time.monotonic() + PATIENCE, ""
    while time.monotonic() < until:
        try:
            status, content = _ask(master, pinned, token)
        except (OSError, http.client.HTTPException) as error:
            status, content = 0, str(error).encode()
        reply = _object(content)
        if status == http.HTTPStatus.OK and "ready" in reply:
            if reply["ready"]:
                info = {**launch["info"], "hparams": reply["hparams"]}
                told = {**launch, "info": info, "point_due": False}
                return replace(parcel, contents=replace(parcel.contents, launch=told))
            until = time.monotonic() + PATIENCE
            continue
        said = f"status {status}: {content[:500]!r}"
        if status in _OVER and "code" in reply:  # else it is what a proxy says in the master's stead
            break
        time.sleep(_PAUSE)
    raise NotSetUp(f"no hyperparameters for this trial: the master at {master} answers {said}")


def _ask(master: str, pinned: str | None, token: str) -> tuple[int, bytes]:
    parts = urlsplit(f"{master.rstrip('/')}/api/v1/task/point?timeout_seconds={WAIT:g}")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = tls_context(master, pinned)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT, context=context)
    else:
        connection = LoopbackConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", f"{parts.path}?{parts.query}", body=b"{}", headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _end(number: int, frame: FrameType | None) -> None:
    raise EndedBeforeStart


def _leave_soon(number: int, frame: FrameType | None) -> None:
    os.environ[LEAVE] = "1"  # it begins, and is asked to leave then


def _say(arguments: Sequence[str], report: dict[str, Any]) -> None:
    """Leave the report where the batch system reads it."""
    if "--exit-file" not in arguments[:-1]:
        return
    path = Path(arguments[arguments.index("--exit-file") + 1])
    try:
        path.write_text(json.dumps({**report, "ended_at": time.time()}), encoding="ascii")
    except OSError as error:
        sys.stderr.write(f"{path}: {error}\n")


def run(arguments: Sequence[str]) -> int:
    """Get the hyperparameters of the trial whose parcel is in the environment, run it, and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, _end)
    signal.signal(signal.SIGUSR2, _leave_soon)
    try:
        os.environ[VARIABLE] = with_point(Parcel.decode(os.environ[VARIABLE])).encode()
        return main(arguments)
    except EndedBeforeStart:
        _say(arguments, {"exit_code": -signal.SIGTERM, "message": "ended before it started"})
        return 128 + signal.SIGTERM
    except NotSetUp as error:
        _say(arguments, {"exit_code": None, "reason": "setup", "message": str(error)[:600]})
        return NOT_SET_UP


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
