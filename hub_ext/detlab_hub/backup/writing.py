"""`det backup`, without its command line."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import detlab
from detlab.files import sync_directory
from detlab.pasted import word
from detlab_hub.backup.archive import ArchiveWriter, Progress, verify
from detlab_hub.backup.contents import (
    DATABASES,
    FORMAT,
    GIVEN_CONFIG,
    PARTS,
    BackupManifest,
    Part,
    config_of,
    database_urls,
)
from detlab_hub.embedded.moves import ArchiveError
from detlab_hub.embedded.state import StateFolder
from detlab_hub.store import copies
from detlab_hub.store.engine import sqlite_path

Say = Callable[[str], None]
_LABELS: dict[Part, str] = {
    "state": "the configuration",
    "secrets": "secrets and certificates",
    "code": "code and outputs of tasks",
    "checkpoints": "checkpoints",
}


@dataclass(frozen=True)
class BackupOptions:
    """The options of `det backup`.

    Attributes:
        file: The archive to make; None for a name with the cluster's id and the time, in the current folder.
        secrets: Copy tokens, passwords and keys of certificates.
        code: Copy bundles of code and the outputs of tasks.
        checkpoints: Copy the checkpoints that lie in the state folder.
        config: A configuration file to read after the folder's own; None for the one of the last `det up --config`.
    """

    file: Path | None = None
    secrets: bool = True
    code: bool = True
    checkpoints: bool = False
    config: Path | None = None

    @property
    def parts(self) -> list[Part]:
        """The parts to copy."""
        wanted: dict[Part, bool] = {
            "state": True,
            "secrets": self.secrets,
            "code": self.code,
            "checkpoints": self.checkpoints,
        }
        return [part for part, yes in wanted.items() if yes]


@dataclass(frozen=True)
class Backup:
    """An archive that has been made and verified."""

    file: Path
    size: int
    manifest: BackupManifest


def backup(folder: StateFolder, options: BackupOptions, say: Say, progress: Progress = lambda count: None) -> Backup:
    """Copy the state of a cluster, running or not, into one archive that only its maker may read.

    Args:
        folder: The state folder.
        options: The options of `det backup`.
        say: Called with messages about each step.
        progress: Called with the number of bytes of each read.

    Raises:
        DetlabError: There is no cluster, no room, or a database cannot be copied. Nothing is left behind then.
    """
    if not (folder.root / "db").is_dir():
        raise ArchiveError(f"{folder} is not the state folder of a cluster", hint="name it: det backup --dir FOLDER")
    cluster_id = _cluster_id(folder)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = (options.file or Path(f"detlab-{cluster_id}-{stamp}.tar.gz")).absolute()
    if target.exists() or target.is_symlink():
        raise ArchiveError(f"{target} exists already", hint="name another file, or remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=".detlab-backup-", dir=target.parent) as made:
            work = Path(made)
            partial = work / "archive"
            _write(folder, options, cluster_id, partial, say, progress)
            say("Verifying the archive …")
            manifest = verify(partial)
            partial.rename(target)
    except OSError as error:
        raise ArchiveError(
            f"{target} cannot be written: {error.strerror or error}",
            hint=f"df -h {word(target.parent)}; ls -ld {word(target.parent)}",
        ) from error
    sync_directory(target.parent)
    return Backup(target, target.stat().st_size, manifest)


def _cluster_id(folder: StateFolder) -> str:
    try:
        return (folder.root / "db" / "cluster_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return "cluster"


def _write(
    folder: StateFolder, options: BackupOptions, cluster_id: str, partial: Path, say: Say, progress: Progress
) -> None:
    plan = folder.read_plan()
    given = options.config or (Path(plan.config) if plan is not None and plan.config else None)
    urls = database_urls(folder, config_of(folder, given))
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        writer = ArchiveWriter(file, progress)
        schema = None
        for name, url in urls.items():
            # The databases first: what they refer to is on the disk before they do.
            say(f"Copying the database of the {name} …")
            copy = partial.with_name(DATABASES[name] + copies.suffix(url))
            copies.copy_database(url, copy)
            if name == "master":
                schema = copies.schema_of(url.set(database=str(copy)) if sqlite_path(url) is not None else url)
            writer.add_file(copy, f"db/{copy.name}")
            copy.unlink()
        _add_parts(writer, folder, options, given, say)
        writer.finish(
            BackupManifest(
                format=FORMAT,
                detlab=detlab.__version__,
                schema_revision=schema,
                cluster_id=cluster_id,
                created_at=time.time(),
                parts=options.parts,
                databases={
                    name: "sqlite" if sqlite_path(url) is not None else "postgresql" for name, url in urls.items()
                },
                folder=str(folder.root),
                members=writer.members,
            )
        )
        file.flush()
        os.fsync(file.fileno())


def _add_parts(
    writer: ArchiveWriter, folder: StateFolder, options: BackupOptions, given: Path | None, say: Say
) -> None:
    if (folder.root / "db" / "cluster_id").exists():
        writer.add_file(folder.root / "db" / "cluster_id", "db/cluster_id")
    if given is not None and given.exists():
        writer.add_file(given.resolve(), GIVEN_CONFIG)
    for part in options.parts:
        say(f"Copying {_LABELS[part]} …")
        for name in PARTS[part]:
            path = folder.root / name
            if name in {"db", GIVEN_CONFIG}:
                continue
            if path.is_dir():
                writer.add_tree(path, name, skip=_is_unfinished)
            elif path.exists():
                writer.add_file(path, name)


def _is_unfinished(name: str) -> bool:
    """Whether a folder of the checkpoint storage is still being written."""
    return name.startswith(".")


def report_of(made: Backup) -> dict[str, object]:
    """Return the output of `det backup --json`."""
    told = made.manifest.model_dump(mode="json", exclude={"members", "format"})
    return {"file": str(made.file), "size": made.size, "files": len(made.manifest.members), **told}
