"""A real cluster for tests: `det up` in a folder of its own, on a free port, and `det down` at the end.

    with running_cluster(tmp_path, slots=2) as cluster:
        cluster.url, cluster.token, cluster.service

It is the real thing: JupyterHub, proxy, master, agent and supervisor as processes. Nothing of the user's own
environment is used: HOME and the XDG folders are in the test's folder, DET_* variables are gone.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from detlab.testing.ports import free_port
from testbed import forked_det

UP_SECONDS = 90
UNLIMITED = "".join(
    f"c.UserLimits.{name} = 0\n"
    for name in (
        *("requests_per_second", "task_requests_per_second", "submissions_per_minute", "submissions_per_hour"),
        *("queued_jobs", "zero_slot_tasks", "upload_gb_per_day", "metric_names", "log_lines_per_second"),
        "min_priority",
    )
)
"""Configuration without limits of users, for those who measure how much a master can take."""


@dataclass
class Cluster:
    """One cluster in a folder; not started by being made."""

    root: Path
    port: int = field(default_factory=free_port)
    slots: int = 2
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of all parts."""
    wrap: Sequence[str] = ()
    """Put before every `det`, such as what makes it run as another user."""

    @property
    def folder(self) -> Path:
        """The state folder."""
        return self.root / ".detlab"

    @property
    def url(self) -> str:
        """Public address of the Hub."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> str:
        """Public address of the service; ends with a slash."""
        return f"{self.url}/services/detlab/"

    @property
    def token(self) -> str:
        """The operator's Hub token (custom:detlab:admin)."""
        return (self.folder / "secrets" / "user_token").read_text().strip()

    @property
    def user(self) -> str:
        """The operator's Hub name."""
        return str(self.plan["operator"])

    @property
    def password(self) -> str:
        """The operator's password."""
        return (self.folder / "secrets" / "admin_password").read_text().strip()

    @property
    def plan(self) -> dict[str, Any]:
        """Ports and users of the last start."""
        plan: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        return plan

    @property
    def report(self) -> dict[str, Any]:
        """What the supervisor says about itself and its parts."""
        report: dict[str, Any] = json.loads((self.folder / "supervisor.json").read_text())
        return report

    @property
    def uids(self) -> dict[str, int]:
        """The uid of each user whose tasks ran, from the master's database, which is SQLite."""
        with closing(sqlite3.connect(f"file:{self.folder}/db/detlab.sqlite?mode=ro", uri=True)) as database:
            return dict(database.execute("SELECT owner, uid FROM user_uids"))

    def pid(self, part: str) -> int | None:
        """Process id of a part, or of the `supervisor`."""
        report = self.report
        found = report["pid"] if part == "supervisor" else report["parts"][part]["pid"]
        return None if found is None else int(found)

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which `det` finds this cluster and nothing else."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "JUPYTER", "XDG_"))}
        home = self.root / "home"
        home.mkdir(exist_ok=True)
        # A process with torch loaded beside each of dozens of clusters would only take time: tests ask for it.
        return {**kept, "HOME": str(home), "DETLAB_WARM_POOL": "0", **self.extra}

    def command(self, *arguments: str) -> list[str]:
        """The command line of `det`."""
        return [*self.wrap, sys.executable, "-c", "from detlab.cli import main; main()", *arguments]

    def det(self, *arguments: str, timeout: float = 120, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run `det` as a person would, in the folder that holds the state folder."""
        if not self.wrap:
            with suppress(forked_det.CannotFork):
                done = forked_det.run(arguments, cwd=self.root, env=self.environment, timeout=timeout)
                if check:
                    done.check_returncode()
                return done
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=check,
        )

    def up(self, *arguments: str, timeout: float = UP_SECONDS) -> subprocess.CompletedProcess[str]:
        """`det up` on this port with these slots."""
        return self.det("up", "--port", str(self.port), "--slots", str(self.slots), *arguments, timeout=timeout + 30)

    def down(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`det down`."""
        return self.det("down", *arguments)

    def client(self, token: str | None = None) -> httpx.Client:
        """An HTTP client of the API (through the proxy) with the operator's token or another one."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=f"{self.service}api/v1/", headers=headers, trust_env=False, timeout=30)

    def hub(self) -> httpx.Client:
        """An HTTP client of the Hub's own API with the operator's token."""
        headers = {"Authorization": f"token {self.token}"}
        return httpx.Client(base_url=f"{self.url}/hub/api/", headers=headers, trust_env=False, timeout=30)

    def make_token(self, *scopes: str, user: str | None = None) -> str:
        """A Hub token of a user (default: the operator) with just these scopes."""
        name = user or self.user
        with self.hub() as hub:
            reply = hub.post(f"users/{name}/tokens", json={"scopes": list(scopes), "expires_in": 3600})
            reply.raise_for_status()
            return str(reply.json()["token"])

    def logs(self, lines: int = 40) -> str:
        """The ends of all logs, for a failing test's message."""
        found = []
        for path in sorted((self.folder / "logs").glob("*.log")):
            found += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join([*found, "--- queue", self._queue()])

    def _queue(self) -> str:
        """What waits, and why; or why that is not known."""
        try:
            with self.client() as api:
                return api.get("queue", timeout=5).text
        except (OSError, httpx.HTTPError) as error:
            return repr(error)


LASTING = "c.DetHub.gc_delay = 86400.0\n"
"""Tests look at checkpoints whenever they like: experiments that have ended are collected when a test asks for it."""


@contextmanager
def running_cluster(
    root: Path, *, slots: int = 2, config: str = "", extra: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Start a cluster, hand it out, stop it.

    Args:
        root: A folder of the test's own; the state folder is `.detlab` in it.
        slots: CPU slots of its agent.
        config: Text of `detlab_config.py`, if any.
        extra: Further environment variables.
        more: Further arguments of `det up`.
    """
    cluster = Cluster(root, slots=slots, extra=extra or {})
    cluster.folder.mkdir(parents=True, exist_ok=True)
    (cluster.folder / "detlab_config.py").write_text(f"{LASTING}{config}")
    started = cluster.up(*more)
    if started.returncode != 0:
        raise RuntimeError(f"det up failed:\n{started.stdout}{started.stderr}\n{cluster.logs()}")
    try:
        yield cluster
    finally:
        stopped = cluster.down("--timeout", "0")  # nobody resumes its trials: they need not save
        if stopped.returncode != 0:
            print(stopped.stdout, stopped.stderr, cluster.logs(), sep="\n")
