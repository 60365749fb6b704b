"""Packing code: a context directory, includes and in-memory files as one content-addressed tar.gz.

The digest is that of the files (`detlab.schemas.bundles`): times, owners and every mode bit but the executable one are
dropped, and how the archive is packed does not matter. Only regular files travel; notebooks travel without outputs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from detlab.client.bundling.ignore import IGNORE_FILE, IgnoreRules
from detlab.client.bundling.notebooks import as_shipped
from detlab.errors import BundleError, BundleTooLarge
from detlab.schemas.bundles import BundleEntry, digest_of

MOST_BYTES = 95 * 1024 * 1024
"""Size of all files together, before compression."""
MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle.

    Attributes:
        path: POSIX path below the task's working directory.
        size: Bytes.
    """

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """Code, ready to be uploaded.

    Attributes:
        digest: `tree:<hex>` of the files (see `detlab.schemas.bundles`).
        data: The tar.gz.
        files: What is in it, sorted by path.
        replaced: Paths of the directory that an include or an in-memory file replaced.
    """

    digest: str
    data: bytes = field(repr=False)
    files: tuple[BundleFile, ...]
    replaced: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files, before compression."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a member's bytes come from."""

    size: int
    executable: bool
    path: Path | None = None
    content: bytes | None = None

    def read(self) -> bytes:
        if self.content is not None:
            return self.content
        assert self.path is not None
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise BundleError(f"{self.path} cannot be read: {error.strerror or error}") from error


class _Walk:
    """Collects the files below a root, following symbolic links that stay inside it."""

    def __init__(self, root: Path, rules: IgnoreRules, prefix: str = "") -> None:
        self.root = root
        self.real_root = root.resolve()
        self.rules = rules
        self.prefix = prefix
        self.found: dict[str, _Source] = {}
        self.refused: list[str] = []

    def run(self) -> dict[str, _Source]:
        self._directory(self.root, "", (self.real_root,))
        if self.refused:
            lines = "\n".join(f"  {line}" for line in self.refused[:10])
            more = f"\n  … and {len(self.refused) - 10} more" if len(self.refused) > 10 else ""
            raise BundleError(
                f"{self.root} holds files that cannot be uploaded:\n{lines}{more}",
                hint=f"Name these paths in {self.root / IGNORE_FILE} to leave them out",
            )
        return self.found

    def _directory(self, folder: Path, relative: str, above: tuple[Path, ...]) -> None:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self.refused.append(f"{relative or '.'}: {error.strerror}")
            return
        for entry in entries:
            name = f"{relative}/{entry.name}" if relative else entry.name
            # git judges a symbolic link as a file, wherever it leads.
            plain_directory = entry.is_dir(follow_symlinks=False)
            if self.rules.ignores(name, directory=plain_directory):
                continue
            if plain_directory and self.rules.leaves_out_download(Path(entry.path), name):
                continue
            self._entry(Path(entry.path), name, entry.is_symlink(), above)

    def _entry(self, path: Path, name: str, link: bool, above: tuple[Path, ...]) -> None:
        try:
            name.encode("utf-8")
            status = path.stat()
            real = path.resolve() if link else path
        except UnicodeEncodeError:
            self.refused.append(f"{name!r}: the name is not UTF-8")
            return
        except (OSError, RuntimeError) as error:
            self.refused.append(f"{name}: {'a broken link' if link else error}")
            return
        if link and not real.is_relative_to(self.real_root):
            self.refused.append(f"{name}: a link that leads out of the directory, to {real}")
        elif stat.S_ISDIR(status.st_mode):
            real = path.resolve()
            if (path / "secrets" / "user_token").exists():
                return  # a cluster's state folder under another name: its secrets do not travel
            if real in above:
                self.refused.append(f"{name}: a link in a circle")
            else:
                self._directory(path, name, (*above, real))
        elif stat.S_ISREG(status.st_mode):
            self._file(path, name, status)

    def _file(self, path: Path, name: str, status: os.stat_result) -> None:
        if len(self.found) >= MOST_FILES:
            raise BundleTooLarge(
                f"{self.root} holds more than {MOST_FILES:,} files",
                hint=f"Name what the trials do not need in {self.root / IGNORE_FILE}, one pattern per line",
            )
        executable = bool(status.st_mode & stat.S_IXUSR)
        self.found[f"{self.prefix}{name}"] = _Source(status.st_size, executable, path=path)


def build_bundle(
    root: str | Path | None = None,
    *,
    includes: Iterable[str | Path] = (),
    files: Mapping[str, bytes | str] | None = None,
    only: Collection[str] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Bundle:
    """Pack code.

    Args:
        root: Context directory; its content becomes the working directory of the trials. None: no directory.
        includes: Further files and directories; each lands at the top under its own name.
        files: In-memory files by path (captured cells, for example).
        only: Take only these files of `root`, POSIX paths below it (see `detlab.client.bundling.capture`).
        most_bytes: Cap on the size of all files together, in bytes.

    Raises:
        BundleError: Something is missing, cannot be read, or cannot travel.
        BundleTooLarge: Over the cap; the message names the largest files and how to leave them out.
    """
    if isinstance(includes, str | Path):
        includes = [includes]  # its letters are not meant
    found: dict[str, _Source] = {}
    replaced: list[str] = []
    base = Path(root) if root is not None else None
    if base is not None:
        found = _context(base, only)
    for name, source in _extra(includes, files or {}):
        if name in found:
            replaced.append(name)
        found[name] = source
    _check_names(found)
    _check_size(found, most_bytes, base)
    members = {name: (as_shipped(name, source.read()), source.executable) for name, source in sorted(found.items())}
    _check_read(members, most_bytes)
    return Bundle(
        digest=digest_of(
            BundleEntry(name, executable, hashlib.sha256(content).hexdigest())
            for name, (content, executable) in members.items()
        ),
        data=_pack(members),
        files=tuple(BundleFile(name, len(content)) for name, (content, _) in members.items()),
        replaced=tuple(sorted(replaced)),
    )


def _context(root: Path, only: Collection[str] | None) -> dict[str, _Source]:
    if not root.is_dir():
        raise BundleError(
            f"the context directory {root} {'is not a directory' if root.exists() else 'does not exist'}",
            hint="Name the directory that holds the code of the trials",
        )
    if only is not None:
        return _selected(root, only)
    return _Walk(root, IgnoreRules.of(root)).run()


def _selected(root: Path, only: Collection[str]) -> dict[str, _Source]:
    """Take named files without walking the directory, which may be a home directory."""
    found: dict[str, _Source] = {}
    real_root = root.resolve()
    for name in sorted(set(only)):
        path = root / name
        if not path.is_file():
            raise BundleError(f"{path} is not a file")
        if not path.resolve().is_relative_to(real_root):
            raise BundleError(f"{path} lies outside of {root}")
        status = path.stat()
        found[name] = _Source(status.st_size, bool(status.st_mode & stat.S_IXUSR), path=path)
    return found


def _extra(includes: Iterable[str | Path], files: Mapping[str, bytes | str]) -> Iterable[tuple[str, _Source]]:
    for include in includes:
        path = Path(include)
        name = path.resolve().name
        if path.is_dir():
            yield from _Walk(path, IgnoreRules.of(path), prefix=f"{name}/").run().items()
        elif path.is_file():
            status = path.stat()
            yield name, _Source(status.st_size, bool(status.st_mode & stat.S_IXUSR), path=path)
        else:
            raise BundleError(f"the include {path} does not exist")
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else bytes(content)
        yield name, _Source(len(data), executable=False, content=data)


def _check_names(found: Mapping[str, _Source]) -> None:
    for name in found:
        parts = name.split("/")
        if "\\" in name or "\0" in name or any(part in {"", ".", ".."} for part in parts):
            raise BundleError(f"{name!r} is not a path inside a bundle")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in found:
                raise BundleError(f"{'/'.join(parts[:depth])!r} would be a file and a directory at once")


def _check_size(found: Mapping[str, _Source], most_bytes: int, root: Path | None) -> None:
    total = sum(source.size for source in found.values())
    if total <= most_bytes:
        return
    largest = sorted(found.items(), key=lambda item: (-item[1].size, item[0]))[:5]
    lines = "\n".join(f"  {source.size / 2**20:9.1f} MiB  {name}" for name, source in largest)
    where = root / IGNORE_FILE if root is not None else IGNORE_FILE
    raise BundleTooLarge(
        f"the code is {total / 2**20:.1f} MiB in {len(found)} files; the limit is {most_bytes / 2**20:.0f} MiB."
        f" The largest:\n{lines}",
        hint=f"Exclude what the trials do not need: add a line such as '{largest[0][0]}' to {where}."
        " Put data on storage that the agents can read.",
    )


def _check_read(members: Mapping[str, tuple[bytes, bool]], most_bytes: int) -> None:
    """Guard against files that grew between the look and the reading."""
    total = sum(len(content) for content, _ in members.values())
    if total > most_bytes:
        raise BundleTooLarge(f"files grew during packing, to {total / 2**20:.1f} MiB in all")


def _pack(members: Mapping[str, tuple[bytes, bool]]) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (content, executable) in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755 if executable else 0o644
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
