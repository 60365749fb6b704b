"""What can be imported, and the account of an import: what became of each leaf of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from detlab.errors import Problem
from detlab.schemas.expconf.raw.paths import Path, render

Outcome = Literal["kept", "changed", "left_out", "not_needed", "added"]

NEEDLESS = ("not needed", "says what", "it is the default")
"""How the reasons begin for which nothing is lost."""

NO_COUNTERPART = "unknown here: it has no counterpart"
"""Why a leaf is left out that no rule names."""


@dataclass(frozen=True)
class FileLeaf:
    """A value of the file that is not a mapping or a list with something in it."""

    path: Path
    value: Any


def leaves(value: Any, path: Path = ()) -> Iterator[FileLeaf]:
    """Yield the leaves of a parsed file; an empty mapping or list is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield FileLeaf(path, value)


@dataclass(frozen=True)
class ImportNote:
    """What became of a leaf, or of all leaves below a place.

    Attributes:
        path: Place in the file; empty for what was added.
        outcome: `kept` (it means the same), `changed`, `left_out`, `not_needed` (left out, and nothing is lost), or
            `added` (the file does not say it).
        to: Place in the config; empty if it was left out.
        why: What differs, or why it was left out or added.
    """

    path: str
    outcome: Outcome
    to: str = ""
    why: str = ""

    def __str__(self) -> str:
        place = f"{self.path} -> {self.to}" if self.path and self.to else self.path or self.to
        return f"{place}: {self.why}" if self.why else place


@dataclass(frozen=True)
class Imported:
    """A converted file.

    Attributes:
        kind: Of what kind it was, as in `KINDS`.
        title: That kind as messages call it.
        config: The raw experiment config.
        notes: What became of each leaf, in the order of the file; then what was added.
        to_do: What is left to do by hand.
        problems: Warnings of the config's own check.
    """

    kind: str
    title: str
    config: dict[str, Any]
    notes: tuple[ImportNote, ...]
    to_do: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def with_outcome(self, outcome: Outcome) -> list[ImportNote]:
        """Return the notes of one outcome."""
        return [note for note in self.notes if note.outcome == outcome]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, as `det config import --json` prints it."""
        return {
            "kind": self.kind,
            "config": self.config,
            "notes": [asdict(note) for note in self.notes],
            "to_do": list(self.to_do),
            "problems": [problem.to_dict() for problem in self.problems],
        }


def _without(path: Path, why: str) -> ImportNote:
    return ImportNote(render(path), "not_needed" if why.startswith(NEEDLESS) else "left_out", "", why)


@dataclass
class Ledger:
    """A file that is being converted.

    `kept`, `changed` and `left_out` say what became of a leaf; the last word counts. `all_notes` has a note for
    every leaf.

    Args:
        raw: The parsed file.
        targets: Where a leaf goes, by the shape of its path.
        reasons: Why a leaf is left out, by the shape of its path or of a place above it.
        shape: Makes a place's shape: which key of the format it is, however the file names its parts.
    """

    raw: dict[str, Any]
    targets: Mapping[str, str]
    reasons: Mapping[str, str]
    shape: Callable[[Path], str]
    to_do: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _notes: dict[Path, ImportNote] = field(default_factory=dict)
    _added: list[ImportNote] = field(default_factory=list)

    def at(self, path: Path) -> Any:
        """Return the value at a place; None if there is none."""
        value: Any = self.raw
        for part in path:
            if isinstance(part, int):
                value = value[part] if isinstance(value, list) and part < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value

    def mapping(self, path: Path) -> dict[str, Any]:
        """Return the mapping at a place; an empty one, and a problem, if something else is there."""
        value = self.at(path)
        if value is not None and not isinstance(value, dict):
            self.mistake(path, "must be a mapping")
        return value if isinstance(value, dict) else {}

    def items(self, path: Path) -> list[Any]:
        """Return the list at a place; an empty one, and a problem, if something else is there."""
        value = self.at(path)
        if value is not None and not isinstance(value, list):
            self.mistake(path, "must be a list")
        return value if isinstance(value, list) else []

    def text(self, path: Path) -> str | None:
        """Return the text at a place; None, and a problem, if something else is there."""
        value = self.at(path)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.mistake(path, "must be a text that is not empty")
            return None
        return value

    def kept(self, path: Path, to: str | None = None) -> None:
        """Say that a leaf means the same in the config."""
        self._note(path, "kept", to)

    def changed(self, path: Path, why: str, to: str | None = None) -> None:
        """Say that a leaf is in the config, and what differs."""
        self._note(path, "changed", to, why)

    def left_out(self, path: Path, why: str | None = None) -> None:
        """Say that a leaf is not in the config; by default the format's reason for it."""
        self._notes[path] = _without(path, why or self._reason(path))

    def added(self, to: str, why: str) -> None:
        """Say that the config has something that the file does not say."""
        self._added.append(ImportNote("", "added", to, why))

    def mistake(self, path: Path, message: str, hint: str | None = None) -> None:
        """Say that the file itself is wrong."""
        self.problems.append(Problem(render(path), message, hint))

    def all_notes(self) -> tuple[ImportNote, ...]:
        """Return a note for each leaf in the order of the file; leaves left out for one reason share a note."""
        found: dict[Path, ImportNote] = {}
        for leaf in leaves(self.raw):
            place = self._covering(leaf.path)
            found[place] = self._notes.get(place) or _without(place, self._reason(place))
        return (*found.values(), *self._added)

    def _note(self, path: Path, outcome: Outcome, to: str | None, why: str = "") -> None:
        target = self.targets[self.shape(path)]  # a KeyError: the format's table lacks the key
        self._notes[path] = ImportNote(render(path), outcome, target if to is None else to, why)

    def _covering(self, path: Path) -> Path:
        """Return the place whose note speaks for a leaf: the nearest that has a note, else one that has a reason."""
        places = [path[:length] for length in range(len(path), 0, -1)]
        for place in places:
            if place in self._notes:
                return place
        return next((place for place in places if self.shape(place) in self.reasons), path)

    def _reason(self, path: Path) -> str:
        for length in range(len(path), 0, -1):
            reason = self.reasons.get(self.shape(path[:length]))
            if reason:
                return reason
        return NO_COUNTERPART


@dataclass(frozen=True)
class ImportKind:
    """A kind of file that can be imported: the object of an entry point in `detlab.imports`.

    Attributes:
        title: What it is called in messages.
        marks: How it is recognised, for messages.
        recognises: Whether a parsed file is of this kind.
        ledger: Makes the ledger of such a file.
        convert: Makes a raw experiment config of a ledger's file, and notes each leaf.
        nearly: Says what is wrong with a file that nothing recognises and that comes close to this kind.
        older_yaml: Whether the tool reads YAML 1.1, where `1e-5` is a text.
    """

    title: str
    marks: str
    recognises: Callable[[dict[str, Any]], bool]
    ledger: Callable[[dict[str, Any]], Ledger]
    convert: Callable[[Ledger], dict[str, Any]]
    nearly: Callable[[dict[str, Any]], Problem | None] = lambda raw: None
    older_yaml: bool = False
