"""`det restore`, without its command line.

The archive is unpacked and verified beside the present state; only then does it replace it, completely or not at
all (`moves`). The replaced state is moved aside and never deleted.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL

from detlab.files import sync_directory, write_atomic
from detlab.pasted import word
from detlab_hub.backup.archive import Progress, unpack
from detlab_hub.backup.contents import (
    DATABASES,
    GIVEN_CONFIG,
    OF_ONE_RUN,
    PARTS,
    USERS_FILE,
    BackupManifest,
    DatabaseName,
    config_of,
    database_urls,
)
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.moves import (
    STAGE,
    ArchiveError,
    Intent,
    Move,
    carry_out,
    drop_intent,
    read_intent,
    write_intent,
)
from detlab_hub.embedded.report import read_report
from detlab_hub.embedded.state import StateFolder, read_json
from detlab_hub.store import copies, installation, migrate, relocation
from detlab_hub.store.engine import sqlite_path

Say = Callable[[str], None]
_NO_STATE = {"supervisor.lock", STAGE}
"""Names that may be in a folder that counts as empty."""


@dataclass(frozen=True)
class RestoredBackup:
    """A restore that is done.

    Attributes:
        manifest: The archive's manifest.
        aside: Where the previous state is now; None if there was none.
        database_copy: A copy of the PostgreSQL database's previous content; None if that was empty, or there is none.
        is_copy: Whether it leaves checkpoints alone until it takes over: it replaces no cluster that did not.
    """

    manifest: BackupManifest
    aside: Path | None
    database_copy: Path | None
    is_copy: bool


def restore(
    archive: Path,
    folder: StateFolder,
    *,
    replace: bool,
    config: Path | None,
    say: Say,
    progress: Progress = lambda count: None,
) -> RestoredBackup:
    """Replace the state folder's content by that of an archive.

    Args:
        archive: The file that `det backup` made.
        folder: The state folder.
        replace: Whether an existing state, or database, is moved aside.
        config: A `detlab_config.py` in place of the archive's; it may name another database.
        say: Called with messages about each step.
        progress: Called with the number of bytes of each read.

    Raises:
        DetlabError: Nothing was changed: the archive is damaged, a cluster runs there, there is no room, or there is a
            state and `replace` is False.
    """
    folder.root.mkdir(mode=0o711, parents=True, exist_ok=True)
    _check_stopped(folder)
    with folder.lock():
        return Restoring(archive.absolute(), folder, replace, config, say, progress).run()


def _check_stopped(folder: StateFolder) -> None:
    report = read_report(folder)
    orphans = [
        name for name in names.STOP_ORDER if report and (part := report.parts.get(name)) and part.running is not None
    ]
    if folder.locked or orphans:
        raise ArchiveError(f"a cluster runs on {folder}", hint=f"stop it first: det down --dir {word(folder)}")


class Restoring:
    """One restore, in the steps in which it happens. The caller holds the folder's lock."""

    def __init__(
        self, archive: Path, folder: StateFolder, replace: bool, config: Path | None, say: Say, progress: Progress
    ) -> None:
        self._archive = archive
        self._folder = folder
        self._replace = replace
        self._config = config
        self._say = say
        self._progress = progress
        self._uids = relocation.Uids()
        self._replaced: installation.Installation | None = None
        """That of the database which is replaced."""
        self._stage = folder.root / STAGE
        self._stamp = time.strftime("%Y%m%d-%H%M%S")
        names = (f"before-restore-{self._stamp}{more}" for more in ("", *(f"-{n}" for n in range(2, 1000))))
        self._aside = next(path for name in names if not (path := folder.root / name).exists())

    def run(self) -> RestoredBackup:
        """Do the restore."""
        self._forget_interrupted()
        self._check_empty()
        self._say("Unpacking and verifying the archive …")
        shutil.rmtree(self._stage, ignore_errors=True)
        self._stage.mkdir(mode=0o700)
        try:
            manifest = unpack(self._archive, self._stage, self._progress)
            if self._config is not None:
                shutil.copyfile(self._config, self._stage / "detlab_config.py")
                (self._stage / "detlab_config.py").chmod(0o600)
            urls = self._targets(manifest)
            self._prepare_files(manifest, urls)
            occupants = self._look_into_databases(urls)
            before = [path for path in self._folder.root.iterdir() if path.name not in _NO_STATE]
            self._aside.mkdir(mode=0o700)
            copied = self._copy_occupants(urls, occupants)
            moves = self._moves(manifest, urls)
        except BaseException:
            shutil.rmtree(self._stage, ignore_errors=True)
            shutil.rmtree(self._aside, ignore_errors=True)
            raise
        self._put_in_place(manifest, urls, occupants, moves)
        if not any(self._aside.iterdir()):
            self._aside.rmdir()
        is_copy = self._replaced is None or self._replaced.is_copy
        return RestoredBackup(manifest, self._aside if before and self._aside.exists() else None, copied, is_copy)

    def _forget_interrupted(self) -> None:
        """Finish an earlier restore that only lacks renames; any other one has only touched a database."""
        intent = read_intent(self._folder)
        if intent is not None and intent.waits_for_database:
            drop_intent(self._folder)
        elif intent is not None:
            carry_out(self._folder, intent)

    def _check_empty(self) -> None:
        there = sorted(path.name for path in self._folder.root.iterdir() if path.name not in _NO_STATE)
        if there and not self._replace:
            raise ArchiveError(
                f"{self._folder} is not empty: it holds {', '.join(there[:5])}",
                hint="restore into another folder (--dir), or add --replace: what is there is kept beside it",
            )

    def _targets(self, manifest: BackupManifest) -> dict[DatabaseName, URL]:
        """Return the database addresses in the restored configuration, of the same kinds as those in the archive."""
        if manifest.schema_revision is not None and manifest.schema_revision not in migrate.revisions():
            raise ArchiveError(
                f"the archive's database has schema {manifest.schema_revision}, which this version does not know:"
                f" detlab {manifest.detlab} has written it",
                hint="upgrade: pip install --upgrade 'detlab[hub]'",
            )
        staged = StateFolder(self._stage)
        given = self._stage / GIVEN_CONFIG
        urls = database_urls(self._folder, config_of(staged, given if self._config is None else None))
        for name, url in urls.items():
            kind = "sqlite" if sqlite_path(url) is not None else "postgresql"
            if manifest.databases.get(name) != kind:
                raise ArchiveError(
                    f"the archive has the {name}'s database as {manifest.databases.get(name)}, and the configuration"
                    f" says {kind}",
                    hint="give the configuration that fits it: det restore --config FILE",
                )
        return urls

    def _prepare_files(self, manifest: BackupManifest, urls: dict[DatabaseName, URL]) -> None:
        for name, url in urls.items():
            copy = self._copy_of(name, url)
            if not copy.is_file():
                raise ArchiveError(f"the archive lacks the database of the {name}")
            if sqlite_path(url) is not None:
                copies.check_sqlite(copy)
        self._replaced = installation.read(urls["master"])
        if sqlite_path(urls["master"]) is not None:
            copy = self._copy_of("master", urls["master"])
            copies.free_lease(copy)
            self._relocate(manifest, urls["master"].set(database=str(copy)))
            relocation.keep_trash(urls["master"].set(database=str(copy)), time.time() - manifest.created_at)
            self._settle(urls["master"].set(database=str(copy)))
        self._uids = self._keep_uids(urls["master"])

    def _copy_of(self, name: str, url: URL) -> Path:
        return self._stage / "db" / (DATABASES[name] + copies.suffix(url))

    def _settle(self, url: URL) -> None:
        """Have the restored database be the cluster that it replaces, or a copy that leaves checkpoints alone."""
        installation.write(url, installation.restored(installation.read(url), self._replaced))

    def _relocate(self, manifest: BackupManifest, url: URL) -> None:
        """If checkpoints are restored, make the references to the old folder point to the new one."""
        old, new = Path(manifest.folder) / "checkpoints", self._folder.root / "checkpoints"
        if "checkpoints" in manifest.parts and old != new:
            relocation.move_storage(url, str(old), str(new))

    def _keep_uids(self, url: URL) -> relocation.Uids:
        """Keep the uids that were assigned since the backup: homes and checkpoints of their owners remain here.

        Returns:
            The uids in the database that is replaced.
        """
        there = relocation.uids_in(url)
        here = {**(read_json(self._folder.root / USERS_FILE) or {}), **{row[0]: row[1] for row in there.rows}}
        restored = read_json(self._stage / USERS_FILE) or {}
        taken = set(restored.values())
        more = {name: uid for name, uid in here.items() if name not in restored and uid not in taken}
        if more:
            users = json.dumps({**restored, **more}, indent=1).encode() + b"\n"
            write_atomic(self._stage / USERS_FILE, users, durable=True)
        if sqlite_path(url) is not None:
            relocation.keep_uids(url.set(database=str(self._copy_of("master", url))), there)
        return there

    def _look_into_databases(self, urls: dict[DatabaseName, URL]) -> dict[DatabaseName, copies.Occupant]:
        found: dict[DatabaseName, copies.Occupant] = {}
        for name, url in urls.items():
            path = sqlite_path(url)
            if path is not None:
                if path.exists() and not self._replace:
                    raise ArchiveError(
                        f"the database {path} is there already", hint="add --replace: it is kept beside it"
                    )
                continue
            found[name] = there = copies.occupant(url, time.time())
            if there.holder is not None:
                raise ArchiveError(
                    f"the database {url.render_as_string()} is in use by the master {there.holder!r}",
                    hint="stop that cluster (det down), or name another database: det restore --config FILE",
                )
            if there.tables and not self._replace:
                raise ArchiveError(
                    f"the database {url.render_as_string()} is not empty: it has {len(there.tables)} tables",
                    hint="name another one (det restore --config FILE), or add --replace: it is copied first",
                )
        return found

    def _copy_occupants(
        self, urls: dict[DatabaseName, URL], occupants: dict[DatabaseName, copies.Occupant]
    ) -> Path | None:
        """Copy the content of the PostgreSQL databases that are filled; return the last copy."""
        copied = None
        for name, there in occupants.items():
            if there.tables:
                self._say(f"Copying what is in the database of the {name} …")
                copied = self._aside / (DATABASES[name] + ".dump")
                copies.copy_database(urls[name], copied)
        return copied

    def _put_in_place(
        self,
        manifest: BackupManifest,
        urls: dict[DatabaseName, URL],
        occupants: dict[DatabaseName, copies.Occupant],
        moves: list[Move],
    ) -> None:
        intent = Intent(
            archive=str(self._archive), aside=str(self._aside), waits_for_database=bool(occupants), moves=moves
        )
        write_intent(self._folder, intent)
        for name, there in occupants.items():
            self._say(f"Filling the database of the {name} …")
            try:
                copies.put_back(urls[name], self._copy_of(name, urls[name]), there, leased=name == "master")
            except copies.CannotCopy:
                if name == next(iter(occupants)):
                    drop_intent(self._folder)  # nothing was changed yet
                raise
        if "master" in occupants:
            self._relocate(manifest, urls["master"])
            relocation.keep_trash(urls["master"], time.time() - manifest.created_at)
            relocation.keep_uids(urls["master"], self._uids)
            self._settle(urls["master"])
        if occupants:
            intent = intent.model_copy(update={"waits_for_database": False})
            write_intent(self._folder, intent)
        carry_out(self._folder, intent)

    def _moves(self, manifest: BackupManifest, urls: dict[DatabaseName, URL]) -> list[Move]:
        """Return which names are moved aside, and which take their places."""
        replaced = [name for part in manifest.parts for name in PARTS[part]]
        moves = [move for name, url in urls.items() for move in self._outside(name, url)]
        for name in (*replaced, *OF_ONE_RUN):
            staged, final = self._stage / name, self._folder.root / name
            if staged.exists() or final.exists():
                moves.append(
                    Move(
                        staged=str(staged) if staged.exists() else None,
                        final=str(final),
                        aside=str(self._aside / name),
                    )
                )
        return moves

    def _outside(self, name: str, url: URL) -> list[Move]:
        """Stage a database file that lies outside the state folder's own place beside its final path."""
        path, copy = sqlite_path(url), self._copy_of(name, url)
        if path is None or path == self._folder.root / "db" / copy.name:
            return []
        staged = path.with_name(f".restoring-{path.name}")
        shutil.copyfile(copy, staged)
        staged.chmod(0o600)
        copy.unlink()
        sync_directory(path.parent)
        # Its journal goes with the old one: SQLite would take it for the new one's.
        journals = [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]
        aside = {each: str(each.with_name(f"{each.name}.before-{self._stamp}")) for each in (path, *journals)}
        return [
            *(Move(staged=None, final=str(each), aside=aside[each]) for each in journals if each.exists()),
            Move(staged=str(staged), final=str(path), aside=aside[path]),
        ]
