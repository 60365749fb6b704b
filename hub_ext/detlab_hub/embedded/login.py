"""Login to the embedded Hub: one generated password per user; users without one cannot log in."""

from __future__ import annotations

from pathlib import Path
from secrets import compare_digest
from typing import Any

from jupyterhub.auth import Authenticator
from traitlets import Dict, Unicode


class GeneratedPasswords(Authenticator):
    """Each allowed user has a password of 256 random bits in a file that only the operator can read.

    Unlike a shared password it does not let one user in as another.
    """

    password_files = Dict(
        key_trait=Unicode(), value_trait=Unicode(), help="User name -> file that holds the password."
    ).tag(config=True)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        """Return the user whose password this is, or None."""
        name = str(self.normalize_username(data["username"]))
        path = self.password_files.get(name)
        if path is None:
            compare_digest(b"nobody", data["password"].encode())
            return None
        wanted = Path(path).read_text(encoding="ascii").strip()
        if not wanted or not compare_digest(wanted.encode(), data["password"].encode()):
            return None
        return {"name": name, "admin": name in self.admin_users}
