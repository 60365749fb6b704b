"""A private PostgreSQL server for tests: its own folder, a free loopback port, an unprivileged user.

    python tests/testbed/databases/postgres.py up DIR     start (or find running) and print its URL
    python tests/testbed/databases/postgres.py down DIR   stop and remove it

Both do no harm when done twice. PostgreSQL refuses to run as root, so root starts it as `nobody`.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from detlab.testing.ports import free_port

if TYPE_CHECKING:
    import psycopg

PREFIX = "detlab-postgres-"
USER = "postgres"
MEMORY = Path("/dev/shm")
"""Where a server that need not survive the machine keeps its files: copying a database and dropping it, which each test
does, takes half the processor time that it takes on a disk, or less."""
ROOM = 2 * 2**30
"""Bytes that must be free there; containers often have 64 MB. The log alone may grow to 1 GB."""
DURABLE = "durable"
"""A file of this name in a server's folder: its commits reach the disk."""
_maintenance: dict[Path, psycopg.Connection] = {}
"""One open connection to each server that was asked for something, by its folder: a process of psql takes 20 times as
long as what it asks for."""


class CannotRun(Exception):
    """There is no PostgreSQL here; the message begins with `cannot run here because`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot run here because {why}")


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server."""

    directory: Path
    port: int
    password: str

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str) -> None:
        """Run one statement in the maintenance database."""
        import psycopg  # not by those who only start a server

        if self.directory not in _maintenance:
            _maintenance[self.directory] = psycopg.connect(self.url(), autocommit=True)
        _maintenance[self.directory].execute(statement.encode())

    @contextmanager
    def database(self, name: str, template: str = "template1") -> Iterator[str]:
        """The URL of a database, copied from another that nobody uses meanwhile; dropped at the end.

        Dropped at once although the server goes anyway: its files never reach the disk then, and autovacuum does not
        walk through hundreds of databases.
        """
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def dump(self, database: str) -> str:
        """A database as SQL that any version's `load` takes: no settings of this one, no commands of its client."""
        text = self._client("pg_dump", "--inserts", "--no-owner", "--no-privileges", database)
        of_version = ("SET ", "\\", "--", "SELECT pg_catalog.set_config")
        return "\n".join(line for line in text.splitlines() if line and not line.startswith(of_version)) + "\n"

    def load(self, database: str, path: Path) -> None:
        """Run a file of SQL in a database."""
        self._client("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", str(path))

    def processes(self) -> list[int]:
        """Ids of its processes, the one that started the others first."""
        first = int((self.directory / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        others = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii").split()
        return [first, *map(int, others)]

    def start_again(self) -> None:
        """Start it on its port, after it was killed."""
        if (connection := _maintenance.pop(self.directory, None)) is not None:
            connection.close()
        if _running_port(self.directory) == self.port:
            return
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            # Where nobody reaps it, the dead server looks alive to the next, which would refuse to start.
            (self.directory / "data" / "postmaster.pid").unlink(missing_ok=True)
            _start(self.directory, self.port)
            if _running_port(self.directory) == self.port:
                return
            time.sleep(0.3)  # a process of the dead server still holds its memory
        raise CannotRun("PostgreSQL did not start again; see its log")

    def _client(self, program: str, *arguments: str) -> str:
        environment = {"PATH": os.environ.get("PATH", ""), "PGPASSWORD": self.password, "PGCLIENTENCODING": "UTF8"}
        done = subprocess.run(
            [binary(program), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} {arguments}: {done.stderr.strip()}")
        return done.stdout


def binary(name: str) -> str:
    """Return the path of a PostgreSQL program; Debian keeps them out of PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3].split(".")[0])
    )
    if found:
        return str(found[-1])
    on_path = shutil.which(name)
    if on_path is None:
        raise CannotRun(f"PostgreSQL's {name} is not installed (Debian: apt-get install postgresql)")
    return on_path


def up(directory: Path | None = None, *, durable: bool = False) -> Server:
    """Return the running server of `directory` (default: a new one), starting it if need be.

    Args:
        directory: Its folder. A new one is in memory where there is room, unless commits are to reach the disk.
        durable: Whether its commits reach the disk, as a site's do; for benches.

    Raises:
        CannotRun: PostgreSQL is missing, or does not start; the message has the end of its log.
    """
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=None if durable else _quick_folder()))
    directory = directory.absolute()
    data = directory / "data"
    binary("initdb")
    if not (data / "PG_VERSION").exists():
        _initialise(directory)
        if durable:
            (directory / DURABLE).touch()
    password = (directory / "password").read_text(encoding="ascii")
    for _ in range(5):
        port = _running_port(directory)
        if port is not None:
            return Server(directory, port, password)
        _start(directory, free_port())
    log = (directory / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
    raise CannotRun("PostgreSQL did not start:\n" + "\n".join(log))


def down(directory: Path) -> None:
    """Stop the server of `directory` and remove the folder."""
    if (connection := _maintenance.pop(directory, None)) is not None:
        connection.close()
    if _running_port(directory) is not None:
        _run(directory, [binary("pg_ctl"), "-D", str(directory / "data"), "-m", "immediate", "-w", "stop"])
    shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """Take down servers whose test run was killed before it could do so."""
    folders = (Path(tempfile.gettempdir()), MEMORY)
    for owner in itertools.chain.from_iterable(folder.glob(f"{PREFIX}*/owner") for folder in folders):
        pid = owner.read_text(encoding="ascii").strip()
        if owner.stat().st_uid == os.getuid() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            down(owner.parent)


def _quick_folder() -> Path | None:
    """Where new servers' folders go; None is the place of temporary files."""
    writable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if writable and shutil.disk_usage(MEMORY).free >= ROOM else None


def _initialise(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "owner").write_text(str(os.getpid()), encoding="ascii")
    password = directory / "password"
    password.write_text(secrets.token_hex(16), encoding="ascii")
    directory.chmod(0o700)
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        os.chown(password, nobody.pw_uid, nobody.pw_gid)
    password.chmod(0o600)
    _run(
        directory,
        [
            *(binary("initdb"), "-D", str(directory / "data"), "-U", USER, "--no-sync", "-E", "UTF8"),
            *("--locale=C.UTF-8", "-A", "scram-sha-256", f"--pwfile={password}"),
        ],
    )


def _start(directory: Path, port: int) -> None:
    safe = "on" if (directory / DURABLE).exists() else "off"
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": directory,
        # A throw-away server: the machine's crash is no case here, that of our processes is.
        "fsync": safe,
        "synchronous_commit": safe,
        "full_page_writes": safe,
        "max_connections": 100,
        "shared_buffers": "64MB",
    }
    options = " ".join(f"-c {key}={value}" for key, value in settings.items())
    command = [binary("pg_ctl"), "-D", str(directory / "data"), "-w", "-t", "30", "-l", str(directory / "log")]
    _run(directory, [*command, "-o", options, "start"], check=False)


def _run(directory: Path, command: list[str], *, check: bool = True) -> None:
    """Run a server program as an unprivileged user. Its output must not be a pipe: the server inherits it."""
    account = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command,
            cwd=directory,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            **account,
        )
        output.seek(0)
        if check and done.returncode != 0:
            raise CannotRun(f"{command[0]} failed: {output.read().strip()}")


def _running_port(directory: Path) -> int | None:
    """Return the port if the server of `directory` answers."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        port = int(lines[3])
    except (OSError, ValueError, IndexError):
        return None
    ready = subprocess.run(
        [binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)], capture_output=True, check=False
    )
    return port if ready.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 2 or not re.fullmatch("up|down", arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments[0] == "down":
            down(Path(arguments[1]))
        else:
            print(up(Path(arguments[1])).url())
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
