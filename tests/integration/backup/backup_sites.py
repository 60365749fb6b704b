"""A state folder as a cluster leaves it, on either database, without the cluster."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine, text

from detlab_hub.backup.restoring import RestoredBackup, restore
from detlab_hub.backup.writing import Backup, BackupOptions, backup
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.store import Store
from detlab_hub.store.engine import parse_url
from testbed.databases.store_rows import add_experiment, add_trial


def quiet(message: str) -> None:
    """What is said on the way is no matter here."""


@dataclass
class Site:
    """A state folder, the address of its database, and what is in both."""

    folder: StateFolder
    url: str
    experiments: int = 2

    @property
    def root(self) -> Path:
        return self.folder.root

    def backup(self, file: Path, **options) -> Backup:
        return backup(self.folder, BackupOptions(file=file, **options), quiet)

    def restore(self, file: Path, *, replace: bool = False, config: Path | None = None) -> RestoredBackup:
        return restore(file, self.folder, replace=replace, config=config, say=quiet)

    def ask(self, statement: str) -> list[tuple]:
        return ask(self.url, statement)

    def open(self) -> Store:
        return Store.open(self.url, holder="a master")

    def tree(self) -> dict[str, bytes | None]:
        """Every file, but the lock, with its content; folders as None."""
        found = sorted(self.root.rglob("*"))
        return {
            str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes()
            for path in found
            if path.name != "supervisor.lock"
        }


def ask(url: str, statement: str) -> list[tuple]:
    with create_engine(parse_url(url), poolclass=NullPool).connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def make_site(root: Path, url: str | None) -> Site:
    """A folder with everything in it that a cluster has."""
    folder = StateFolder(root)
    folder.create()
    (root / "db" / "cluster_id").write_text("c0ffee")
    if url is not None:
        folder.config_file.write_text(f"c.DetHub.db_url = {url!r}\n")
    address = url or f"sqlite:///{root}/db/detlab.sqlite"
    with sqlite3.connect(root / "db" / "jupyterhub.sqlite") as hub:
        hub.execute("CREATE TABLE users (name TEXT)")
        hub.execute("INSERT INTO users VALUES ('ada')")
    hub.close()
    folder.make_secrets(["ada"], "ada")
    folder.write_plan(StartPlan(1, 2, 3, 4, "ada"))
    (folder.root / "users.json").write_text(json.dumps({"ada": 20000}))
    folder.certificate_file.write_text("a certificate")
    folder.key_file.write_text("its key")
    (root / "bundles" / "ab").mkdir()
    (root / "bundles" / "ab" / "abcd").write_bytes(b"code" * 1000)
    (root / "outputs").mkdir()
    (root / "outputs" / "ef01").write_bytes(b"output")
    (root / "checkpoints" / "uuid-1").mkdir()
    (root / "checkpoints" / "uuid-1" / "model.pt").write_bytes(b"weights")
    (root / "homes" / "ada").mkdir()
    (root / "homes" / "ada" / "notes.txt").write_text("mine")
    (root / "agent" / "token").write_text("an agent's key")
    folder.log("master").write_text("a log")
    site = Site(folder, address)
    store = site.open()
    for _ in range(site.experiments):
        experiment = store.write_sync(add_experiment)
        store.write_sync(lambda s, e=experiment: add_trial(s, e))
    store.close()
    return site
