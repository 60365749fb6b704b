"""Putting a restored state in the place of another, by renames that a crash may interrupt.

The renames are written to an intent log first. From then on the restore is rolled forward: `det up`, or
another `det restore`, finishes an interrupted one. Before that, the old state is not touched.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from detlab.errors import DetlabError
from detlab.files import sync_directory, write_atomic
from detlab.pasted import word
from detlab_hub.embedded.state import StateFolder

STAGE = ".restoring"
"""Folder in which an archive is unpacked, inside the state folder: on the same disk, and out of the way."""


class ArchiveError(DetlabError):
    """An archive cannot be made, or must not be restored."""

    default_code = "backup.failed"


class Move(BaseModel):
    """One name: the existing file is moved aside, the unpacked one takes its place.

    Attributes:
        staged: The unpacked file; None if nothing takes the place.
        final: The place.
        aside: Where the existing file is moved.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    staged: str | None
    final: str
    aside: str


class Intent(BaseModel):
    """A restore that has been decided.

    Attributes:
        archive: The archive that is restored, for messages.
        aside: The folder with the previous state.
        waits_for_database: A PostgreSQL database is being filled; whether that has succeeded is not known.
        moves: In their order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    archive: str
    aside: str
    waits_for_database: bool
    moves: list[Move]


def read_intent(folder: StateFolder) -> Intent | None:
    """Return the restore that was interrupted in this folder, None if there is none.

    Raises:
        ArchiveError: The intent log cannot be read."""
    path = folder.restore_note
    try:
        return Intent.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, OSError, ValueError) as error:
        raise ArchiveError(f"{path} cannot be read: {error}", hint=f"inspect it, and {folder.root / STAGE}") from error


def write_intent(folder: StateFolder, intent: Intent) -> None:
    """Decide on a restore; the decision is on the disk when this returns."""
    write_atomic(folder.restore_note, json.dumps(intent.model_dump(), indent=1).encode() + b"\n", durable=True)


def drop_intent(folder: StateFolder) -> None:
    """Forget a restore that is finished or not yet begun, and remove what was unpacked for it."""
    (folder.restore_note).unlink(missing_ok=True)
    shutil.rmtree(folder.root / STAGE, ignore_errors=True)


def carry_out(folder: StateFolder, intent: Intent) -> None:
    """Do the remaining renames."""
    Path(intent.aside).mkdir(mode=0o700, exist_ok=True)
    for move in intent.moves:
        _carry_out(move)
    for parent in {Path(move.final).parent for move in intent.moves}:
        sync_directory(parent)
    drop_intent(folder)


def _carry_out(move: Move) -> None:
    staged = None if move.staged is None else Path(move.staged)
    final, aside = Path(move.final), Path(move.aside)
    if staged is not None and not os.path.lexists(staged):
        return  # it has happened
    if os.path.lexists(final) and not os.path.lexists(aside):
        final.rename(aside)
    if staged is not None:
        staged.rename(final)


def finish_interrupted(folder: StateFolder) -> bool:
    """Finish a restore that a crash interrupted; return whether there was one.

    Raises:
        ArchiveError: It must be repeated, since it is unknown whether a database was filled.
    """
    if not (folder.restore_note).exists():
        return False
    with folder.lock():
        intent = read_intent(folder)
        if intent is None:
            return False
        if intent.waits_for_database:
            raise ArchiveError(
                f"a restore into {folder} was interrupted while its database was filled",
                hint=f"do it again: det restore --replace --dir {word(folder)} {word(intent.archive)}",
            )
        carry_out(folder, intent)
        return True
