"""MLflow's client inside a trial: each of its requests has the trial's own token, as it is then.

The launcher names this provider in MLFLOW_TRACKING_AUTH, and MLflow finds it as an entry point (`launch/plugins`). The
token is renewed in its file, so that no environment variable could have it; it goes to this cluster's master alone.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab import loopback
from detlab.info import read_token

PROVIDER = "detlab"
_PATIENCE = 10.0


class TaskTokens:
    """The provider, as MLflow makes it."""

    def get_name(self) -> str:
        """Return its name."""
        return PROVIDER

    def get_auth(self) -> TaskTokenAuth:
        """Return what adds the token to a request."""
        return TaskTokenAuth()


class TaskTokenAuth:
    """Adds the token to requests to the master, in the form that `requests` asks for."""

    def __call__(self, request: Any) -> Any:
        """Add the token to a prepared request.

        Raises:
            AuthError: The token cannot be read.
            StrangersPort: Another user of this machine answers at the master's address; nothing was sent.
        """
        if is_below(str(request.url), os.environ.get("DET_MASTER", "")):
            _check_peer(str(request.url))
            request.headers["Authorization"] = f"Bearer {read_token(Path(os.environ['DET_TASK_DIR']))}"
        return request


def is_below(url: str, master: str) -> bool:
    """Whether an address is one of the master's."""
    there, here = urlsplit(url), urlsplit(master)
    path = f"{here.path.rstrip('/')}/"
    return bool(master) and (there.scheme, there.netloc) == (here.scheme, here.netloc) and there.path.startswith(path)


def _check_peer(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in {"127.0.0.1", "localhost", "::1"}:
        return
    with socket.create_connection((parts.hostname, parts.port or 80), _PATIENCE) as connection:
        loopback.check_peer(connection)
