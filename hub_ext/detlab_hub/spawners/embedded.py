"""Notebook servers of the embedded cluster: local processes with the magics preloaded and a token of their own.

Whom a server runs as is decided by who ran `det up`:

- an ordinary user: the operator's own server runs as that user, in their own home. Other Hub users may log in and use
  the API, but get no server, since it could only run as the operator and read the operator's files;
- root: every Hub user, the operator included, gets the uid that their tasks have, from the same map
  (`users.json`), and a home in `homes/`. No server runs as root.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from jupyterhub.spawner import SimpleLocalProcessSpawner, SpawnException
from traitlets import Dict, Integer, List, Unicode

from detlab.launch.identity import Identity, IdentityError, UserIds


def magics_startup() -> Path | None:
    """Return the file that preloads the magics in a kernel, without importing it; None if they are not installed."""
    spec = importlib.util.find_spec("detlab_magics")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "startup.py"
        if path.exists():
            return path
    return None


class EmbeddedSpawner(SimpleLocalProcessSpawner):
    """Starts `jupyterhub-singleuser` on this machine, as the user that the module's text says."""

    state_dir = Unicode(help="The cluster's state folder.").tag(config=True)
    operator = Unicode(help="Hub user who runs the cluster.").tag(config=True)
    operator_workdir = Unicode("", help="Where the operator's server opens, if it runs as the operator.").tag(
        config=True
    )
    user_map = Dict(Integer(), key_trait=Unicode(), help="Hub user -> uid, by the operator.").tag(config=True)
    server_command = List(
        Unicode(), [sys.executable, "-m", "jupyterhub.singleuser"], help="Command of a notebook server."
    ).tag(config=True)
    cluster_url = Unicode(help="Public address of the Hub, for DET_URL.").tag(config=True)

    @property
    def identity(self) -> Identity | None:
        """Whom the server runs as; None for the user of this process."""
        if os.getuid() != 0:
            return None
        try:
            return UserIds(Path(self.state_dir) / "users.json", mapped=self.user_map).identity_for(self.user.name)
        except IdentityError as error:
            raise SpawnException(f"{error}", reason="identity") from error

    def _home(self) -> Path:
        identity = self.identity
        if identity is None:
            return Path.home()
        return identity.home or Path(self.state_dir) / "homes" / self.user.name

    async def start(self) -> Any:
        """Start the server.

        Raises:
            SpawnException: This cluster cannot keep the user apart from the operator, or has no uid for the user.
        """
        if self.identity is None and self.user.name != self.operator:
            raise SpawnException(
                f"This cluster was started by {self.operator}, who is not root: a notebook server for"
                f" {self.user.name} would run as {self.operator}. Start the cluster as root to serve several users.",
                reason="not_root",
            )
        home, identity = self._home(), self.identity
        self.home_dir = str(home)
        # traits that are set here stay for the next start, so that each is set on every way through
        if identity is None:
            self.cmd = list(self.server_command)
            self.popen_kwargs = {"cwd": str(home)}
            self.notebook_dir = self.operator_workdir
        else:
            _make_home(home, identity)
            self.cmd = [*_become(identity, home), *self.server_command]
            self.popen_kwargs = {"cwd": "/"}
            self.notebook_dir = str(home)
        return await super().start()

    def get_env(self) -> dict[str, str]:
        """Return the server's environment: the Hub's, the cluster's address, and the magics' start-up file."""
        env: dict[str, str] = super().get_env()
        env["DET_URL"] = self.cluster_url
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        startup = magics_startup()
        if startup is not None:
            own = env.get("PYTHONSTARTUP") or (os.environ.get("PYTHONSTARTUP") if self.identity is None else None)
            if own and own != str(startup):
                env["DETLAB_CHAIN_PYTHONSTARTUP"] = own
            env["PYTHONSTARTUP"] = str(startup)
        return env

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """Return the environment with the user's own name and home."""
        env = super().user_env(env)
        env["HOME"] = str(self._home())
        return env

    def make_preexec_fn(self, name: str) -> Any:
        """Return nothing to be run in the child: the home exists, and `become` changes the user."""
        return None


def _make_home(home: Path, identity: Identity) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != identity.uid:
        os.chown(home, identity.uid, identity.gid)
    home.chmod(0o700)


def _become(identity: Identity, home: Path) -> list[str]:
    """Return what comes before a command to run it as somebody else."""
    ids = ["--uid", str(identity.uid), "--gid", str(identity.gid)]
    return [sys.executable, "-m", "detlab.launch.become", *ids, "--reach-rw", str(home), "--"]
