"""Imports what a script writes for TensorBoard while it runs, in a thread of its own."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from detlab.core.event_files.finding import NoEventFile, age_order, in_folders, open_in, rank_of, writer_of
from detlab.core.event_files.following import MOST_AT_ONCE, EventFile
from detlab.core.event_files.summaries import LoggedEvent
from detlab.media import EncodedMedia, Media, MediaError, kinds
from detlab.schemas.wire.logged_names import near_key

logger = logging.getLogger("detlab.core")
POLL = 1.0
"""Seconds between two looks at the files that are known."""
SEARCH_SHARE = 30.0
"""A search is made again after so many times the seconds that it took."""
END_SECONDS = 60.0
"""That the end of a task waits at most for what is left to be read."""
MOST_FILES = 1_000
MOST_BYTES = 4 * 1024**3
"""Of all files of one attempt."""
MOST_NAMES = 5_000
"""Metrics of different names."""
MOST_STEPS = 2**53
MOST_MEDIA = 20_000
"""Objects of one attempt."""
ALL_OF_KEY, TENTH_OF_KEY = 500, 5_000
"""Of one key so many objects are kept; then each tenth, up to so many; then each hundredth."""
_MOST_WARNINGS = 20
_CLOCKS = 0.5
"""Seconds by which a clock may be put back while it is read: all are of one machine."""
_TRAINER_TAGS = "detlab/"
"""Begin of the tags by which the trainer's own event files have what it reports."""
_GROUPS = {
    **dict.fromkeys(("train", "training"), "training"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation"), "validation"),
    "test": "test",
}
"""Names of folders that say what is in them, with what stands before their tags."""
_MOMENT = re.compile(r"[0-9]{9,11}(\.[0-9]+)?")
"""The time at which `add_hparams` was called, by which it names a folder: another one in each trial."""


class ImportTarget(Protocol):
    """Where values go. What it raises ends nothing: it is said once."""

    def metrics(self, step: int, values: dict[str, float], at: float) -> None:
        """Take numbers of one step, written at a time (seconds since the epoch)."""
        ...

    def media(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        """Take one object."""
        ...


class EventImport:
    """Finds event files, reads them as they grow, and hands on what they say. Nothing of it raises.

    Only files are read that were begun since `since`: what a script brings along, or an earlier attempt has written, is
    not imported again. Of a file that was copied the first one counts.

    Args:
        target: Takes what is found.
        folders: Where to look for files.
        say: Writes a line for the user.
        since: Seconds since the epoch.
        processes: Returns those whose open files are looked at, too, wherever these are.
        own: A folder whose `detlab/` tags are the trainer's, which reports the same itself.
        clock: Seconds since the epoch.
        poll: Seconds between two looks.
    """

    def __init__(
        self,
        target: ImportTarget,
        folders: Sequence[Path],
        say: Callable[[str], None],
        *,
        since: float,
        processes: Callable[[], Iterable[int]] = lambda: (),
        own: Path | None = None,
        clock: Callable[[], float] = time.time,
        poll: float = POLL,
    ) -> None:
        self._target = target
        self._folders = [Path(folder) for folder in folders]
        self._say = say
        self._since = since
        self._processes = processes
        self._own = own
        self._clock = clock
        self._poll = poll
        self._known: set[Path] = set()
        self._waiting: dict[Path, EventFile] = {}
        """Files without a first event."""
        self._followed: dict[Path, tuple[EventFile, str]] = {}
        self._places: dict[Path, str] = {} if own is None else {own / "rank0": ""}
        """Folder -> what stands before the tags of its files."""
        self._has_main = False
        """Whether there is a folder whose tags stand alone."""
        self._copies: set[tuple[str, float]] = set()
        self._names: dict[str, str] = {}
        self._kept: Counter[str] = Counter()
        self._media = 0
        self._bytes = 0
        self._said: set[str] = set()
        self._next_search = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event-files", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, timeout: float = END_SECONDS) -> bool:
        """Read what is left and end; return whether that was done within `timeout` seconds."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            self._warn("late", f"what was left could not be read within {timeout:g} s")
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._poll):
                self.look()
            while self.look(last=True):
                pass
        except Exception as error:  # the training is not to end for its curves
            logger.debug("the import of event files has ended", exc_info=True)
            self._warn("all", f"it has ended: {type(error).__name__}: {error}")

    def look(self, *, last: bool = False) -> bool:
        """Look for files and read what is new; return whether anything was.

        Args:
            last: Search now, however long the last search took.
        """
        self._search(now=last)
        before = self._bytes
        for path in sorted(self._waiting, key=age_order):
            self._begin(self._waiting[path])
        for file, prefix in list(self._followed.values()):
            self._read(file, prefix)
        return self._bytes > before

    # --- which files ------------------------------------------------------------------------------------------

    def _search(self, *, now: bool) -> None:
        began = time.monotonic()
        if began < self._next_search and not now:
            return
        found: dict[Path, int | None] = {path: writer_of(path) for path in in_folders(self._folders)}
        found.update(open_in(self._processes()))
        for path, process in found.items():
            self._take(path, process)
        self._next_search = began + self._poll + SEARCH_SHARE * (time.monotonic() - began)

    def _take(self, path: Path, process: int | None) -> None:
        if path in self._known:
            return
        if len(self._known) >= 10 * MOST_FILES or len(self._followed) + len(self._waiting) >= MOST_FILES:
            self._warn("files", f"there are more than {MOST_FILES:,} event files: further ones are not read")
            return
        self._known.add(path)
        if process is None or rank_of(process) in {None, 0}:  # each rank writes the same, as a rule
            self._waiting[path] = EventFile(path)

    def _begin(self, file: EventFile) -> None:
        """Read a file's first event, and decide whether it is followed."""
        before = file.offset
        first = next(iter(self._events(file, 1)), None)
        self._bytes += file.offset - before
        if first is None:
            if file.is_over:
                self._waiting.pop(file.path, None)
                self._tell(file)
            return
        self._waiting.pop(file.path, None)
        begun = file.begun or 0.0
        if 0.0 < begun < self._since - _CLOCKS:
            self._warn("old", f"{_shown(file.path)} was begun before this run: it is not imported")
            return
        if begun and (file.path.name, begun) in self._copies:
            return
        self._copies.add((file.path.name, begun))
        prefix = self._place(file.path.parent)
        self._followed[file.path] = (file, prefix)
        self._import(file, prefix, [first])

    def _place(self, folder: Path) -> str:
        """Return what stands before the tags of a folder's files: nothing, if it is the only one."""
        known = self._places.get(folder)
        if known is not None:
            return known
        above = next((parent for parent in folder.parents if parent in self._places), None)
        if above is not None:
            below = (part for part in folder.relative_to(above).parts if not _MOMENT.fullmatch(part))
            parts = (self._places[above], *below)
        else:
            said = _GROUPS.get(folder.name.lower())
            parts = (said if said is not None else folder.name if self._has_main else "",)
            self._has_main = self._has_main or said is None
        self._places[folder] = "/".join(part for part in parts if part)
        return self._places[folder]

    # --- what they say ----------------------------------------------------------------------------------------

    def _read(self, file: EventFile, prefix: str) -> None:
        if file.is_over:
            return
        if self._bytes >= MOST_BYTES:
            self._warn("bytes", f"{MOST_BYTES // 2**30} GiB were read: what is written from now on is not imported")
            return
        before = file.offset
        self._import(file, prefix, self._events(file, MOST_AT_ONCE))
        self._bytes += file.offset - before
        self._tell(file)

    def _events(self, file: EventFile, most: int) -> Iterable[LoggedEvent]:
        try:
            yield from file.events(most)
        except NoEventFile as error:
            self._give_up(file)
            self._warn("kind", f"{_shown(file.path)} is {error}: it is not read")
        except FileNotFoundError:
            self._give_up(file)
        except OSError as error:
            self._give_up(file)
            self._warn("disk", f"{_shown(file.path)} cannot be read: {error.strerror or error}")

    def _give_up(self, file: EventFile) -> None:
        self._waiting.pop(file.path, None)
        self._followed.pop(file.path, None)

    def _import(self, file: EventFile, prefix: str, events: Iterable[LoggedEvent]) -> None:
        """Hand on what events say; numbers of one step that follow each other are one report."""
        skip = _TRAINER_TAGS if self._own is not None and file.path.is_relative_to(self._own) else None
        numbers: dict[str, float] = {}
        step, at = 0, 0.0
        for event in events:
            here = min(max(0, event.step), MOST_STEPS)
            for tag, value in event.values.items():
                if skip is not None and tag.startswith(skip):
                    continue
                if isinstance(value, list):
                    self._take_media(f"{prefix}/{tag}" if prefix else tag, here, value)
                    continue
                name = self._name(prefix, tag)
                if name is None:
                    continue
                if numbers and (here != step or name in numbers):
                    self._send(step, numbers, at)
                    numbers = {}
                step, at = here, event.time
                numbers[name] = value
        if numbers:
            self._send(step, numbers, at)

    def _name(self, prefix: str, tag: str) -> str | None:
        whole = f"{prefix}/{tag}" if prefix else tag
        known = self._names.get(whole)
        if known is None:
            if len(self._names) >= MOST_NAMES:
                self._warn("names", f"there are more than {MOST_NAMES:,} tags: further ones are not imported")
                return None
            known = self._names[whole] = near_key(whole)
        return known

    def _send(self, step: int, values: dict[str, float], at: float) -> None:
        now = self._clock()
        try:
            # A clock of the script's own making, or none, is no time of a report.
            self._target.metrics(step, values, at if self._since - _CLOCKS <= at <= now + _CLOCKS else now)
        except Exception as error:  # a full disk, a name that is none: the rest goes on
            self._warn("metrics", f"metrics were not kept: {type(error).__name__}: {error}")

    def _take_media(self, tag: str, step: int, values: Sequence[Media]) -> None:
        key = tag[: kinds.MOST_KEY]
        if not self._is_kept(key):
            return
        for place, one in enumerate(values[: kinds.MOST_AT_ONCE]):
            if self._media >= MOST_MEDIA:
                self._warn("media", f"{MOST_MEDIA:,} images and other objects were imported: further ones are not")
                return
            try:
                self._target.media(key, step, place, one.encode())
                self._media += 1
            except MediaError as error:
                self._warn(f"media {key}", f"{key[:80]!r} was not kept: {error.message}")
            except Exception as error:  # the disk
                self._warn("media disk", f"{key[:80]!r} was not kept: {type(error).__name__}: {error}")

    def _is_kept(self, key: str) -> bool:
        """Whether the next object of a key is kept: of thousands, some will do."""
        if len(self._kept) >= MOST_NAMES and key not in self._kept:
            self._warn("names", f"there are more than {MOST_NAMES:,} tags: further ones are not imported")
            return False
        self._kept[key] += 1
        count = self._kept[key]
        each = 1 if count <= ALL_OF_KEY else 10 if count <= TENTH_OF_KEY else 100
        if each > 1:
            self._warn(
                "often", f"{key[:80]!r} has more than {ALL_OF_KEY} objects: each tenth, later each hundredth is kept"
            )
        return count % each == 0

    # --- what is said -----------------------------------------------------------------------------------------

    def _tell(self, file: EventFile) -> None:
        for about, trouble in file.troubles():
            self._warn(about, f"{_shown(file.path)}: {trouble}")
        if file.left_out:
            known = ", ".join(sorted(file.left_out))[:300]
            self._warn("left out", f"values of these kinds are in TensorBoard alone: {known}")

    def _warn(self, about: str, what: str) -> None:
        if about not in self._said and len(self._said) < _MOST_WARNINGS:
            self._said.add(about)
            plain = "".join(one if one.isprintable() else "\ufffd" for one in what)
            self._say(f"detlab: import from TensorBoard: {plain} (said once; the training goes on)")


def _shown(path: Path) -> str:
    return str(path)[-200:]
