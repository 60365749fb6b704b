"""The file that `support-bundle` writes: texts without secrets, of a bounded size, that replaces none half-way."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.cli.output.redaction import Redactor
from detlab.errors import DetlabError
from detlab.schemas.wire.base import encode_floats

MOST_BYTES = 8 << 20
"""Of one file in it."""
MOST_CHARS = 10_000
"""Of one line."""


@dataclass
class SupportArchive:
    """A support bundle while it is collected. It is written at the end, when all secrets have been seen.

    Attributes:
        folder: The name of the folder that all of it is in.
        redactor: Takes secrets out.
        files: What is in it, once it is written: name, bytes, and whether a part was left out.
    """

    folder: str
    redactor: Redactor
    files: list[dict[str, Any]] = field(default_factory=list)
    _found: list[tuple[str, Any, bool]] = field(default_factory=list)

    def add_json(self, name: str, value: Any) -> None:
        """Add a JSON value; of one that is too long, its beginning as text."""
        self._found.append((name, encode_floats(value), False))

    def add_lines(self, name: str, lines: Iterable[str]) -> None:
        """Add lines of text, the last ones if they are too many; they may be more than the memory holds."""
        kept, size, cut = deque[str](), 0, False
        for line in lines:
            short = line[:MOST_CHARS]
            cut |= len(short) < len(line)
            kept.append(short)
            size += len(short) + 1
            while size > MOST_BYTES:
                size -= len(kept.popleft()) + 1
                cut = True
        self._found.append((name, "".join(f"{line}\n" for line in kept), cut))

    def write(self, archive: tarfile.TarFile) -> None:
        """Write all of it: a secret that the last file shows is masked in the first one, too."""
        for name, value, _ in self._found:
            self._text(name, value)
        for name, value, cut in self._found:
            data = self._text(name, value).encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{self.folder}/{name}")
            entry.size = min(len(data), MOST_BYTES)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(data[:MOST_BYTES]))
            self.files.append({"name": name, "bytes": entry.size, "cut": cut or len(data) > MOST_BYTES})

    def _text(self, name: str, value: Any) -> str:
        if name.endswith(".json"):
            return json.dumps(self.redactor.value(value), indent=2, ensure_ascii=False)
        return self.redactor.text(value)


@contextmanager
def support_archive(path: Path, folder: str, redactor: Redactor) -> Iterator[SupportArchive]:
    """Write a support bundle: under another name first, readable by its owner alone.

    Raises:
        DetlabError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                collected = SupportArchive(folder, redactor)
                yield collected
                collected.write(archive)
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DetlabError(f"{path} cannot be written: {error.strerror or error}") from error
