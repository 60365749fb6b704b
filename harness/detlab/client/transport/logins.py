"""The file of `det login`: one token per cluster, and which cluster is the current one.

The file is `auth.json` in the user's configuration folder, readable by its owner only, replaced atomically.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.files import write_atomic
from detlab.pasted import word


def user_config_folder() -> Path:
    """Return the folder of this user's detlab configuration."""
    import platformdirs

    return platformdirs.user_config_path("detlab")


def user_state_folder() -> Path:
    """Return the folder where commands leave notes for one another, such as which cluster was started last."""
    import platformdirs

    return platformdirs.user_state_path("detlab")


@dataclass(frozen=True, slots=True)
class Logins:
    """The login file.

    Attributes:
        path: Where it is; it need not exist.
    """

    path: Path

    @classmethod
    def default(cls) -> Logins:
        """Return the file of this user."""
        return cls(user_config_folder() / "auth.json")

    def current(self) -> tuple[str, str] | None:
        """Return (service URL, token) of the last login, or None."""
        data = self._read()
        url = data.get("current")
        token = self.token(url) if isinstance(url, str) else None
        return (url, token) if isinstance(url, str) and token else None

    def token(self, url: str) -> str | None:
        """Return the token that was stored for exactly this service URL, or None."""
        clusters = self._read().get("clusters")
        entry = clusters.get(url) if isinstance(clusters, dict) else None
        token = entry.get("token") if isinstance(entry, dict) else None
        return token if isinstance(token, str) and token else None

    def certificate(self, url: str) -> str | None:
        """Return the certificate (PEM) that was pinned for exactly this service URL, or None."""
        clusters = self._read().get("clusters")
        entry = clusters.get(url) if isinstance(clusters, dict) else None
        found = entry.get("certificate") if isinstance(entry, dict) else None
        return found if isinstance(found, str) and found else None

    def store(self, url: str, token: str, certificate: str | None = None) -> None:
        """Remember the token and the pinned certificate of a cluster and make that cluster the current one."""
        data = self._read()
        clusters = data.get("clusters")
        known = clusters if isinstance(clusters, dict) else {}
        entry = {"token": token, **({"certificate": certificate} if certificate else {})}
        self._write({"current": url, "clusters": {**known, url: entry}})

    def forget(self, url: str | None = None) -> bool:
        """Drop one cluster (default: the current one); return whether there was something to drop."""
        data = self._read()
        current = data.get("current")
        clusters = data.get("clusters")
        known = dict(clusters) if isinstance(clusters, dict) else {}
        if known.pop(url or current, None) is None:
            return False
        left = current if current in known else next(iter(known), None)
        self._write({"current": left, "clusters": known})
        return True

    def _read(self) -> dict[str, Any]:
        try:
            if self.path.stat().st_uid not in {os.getuid(), 0}:
                return {}
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return {}
        except ValueError as error:
            raise DetlabError(
                f"the login file {self.path} is damaged: {error}",
                hint=f"Remove it and log in again: rm {word(self.path)}",
            ) from error
        return data if isinstance(data, dict) else {}

    def _write(self, data: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self.path, json.dumps(data, indent=2).encode() + b"\n")
