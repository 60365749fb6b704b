"""An artifact in the making: files of this machine, and references to what lies elsewhere."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from detlab.client.plain_values import plain
from detlab.client.transport.calls import valid_request
from detlab.client.transport.downloads import file_digest
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire.artifacts.artifacts import SCHEMES, LoggedFile, LogVersion
from detlab.storage import files

if TYPE_CHECKING:
    from detlab.client.artifacts.logged import ArtifactVersion

logger = logging.getLogger("detlab.artifacts")
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


@dataclass
class PreparedVersion:
    """What is sent of an artifact.

    Attributes:
        body: What the version is.
        sources: By digest, where each file is.
    """

    body: LogVersion
    sources: dict[str, Path] = field(default_factory=dict)


class Artifact:
    """A named folder to be logged as a version: by `run.log_artifact(…)`, or `client.log_artifact(…)`.

    What is added are names until it is logged: then each file is read, and later changes do not count.

    Args:
        name: Letters, digits, spaces, `.`, `_` and `-`; yours, or `OWNER/NAME` of another's that you may change.
        type: What it is: `dataset`, `model`, a word of your own. None: that of the artifact; of a new one `dataset`.
        description: Of the artifact, for people.
        metadata: Of the version: any JSON of up to 64 KiB.
        comment: Of the version, for people.
        aliases: Names of the version, each taken from the one that has it now.
        workspace: Where a new artifact is to lie; empty: where its run lies, else your personal one.
        **ignored: Settings of others; each is told.
    """

    def __init__(
        self,
        name: str,
        type: str | None = None,  # noqa: A002  (as others have it)
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        comment: str = "",
        aliases: Iterable[str] = (),
        workspace: str = "",
        **ignored: Any,
    ) -> None:
        self.name, self.type, self.description = name, type, description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.comment, self.workspace = comment, workspace
        self.aliases = list(aliases)
        self._files: dict[str, Path] = {}
        self._references: dict[str, LoggedFile] = {}
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._logged: ArtifactVersion | None = None
        self._waiter: Callable[[float | None], ArtifactVersion] | None = None
        for word in sorted(ignored):
            logger.info("Artifact(%s=…) has no meaning here", word)

    def __repr__(self) -> str:
        return f"Artifact({self.name!r}, {len(self._files) + len(self._references)} files)"

    # --- what is in it

    def add_file(self, local_path: str | os.PathLike[str], name: str | None = None, **ignored: Any) -> None:
        """Add a file.

        Args:
            local_path: Of this machine; a regular file, no link.
            name: Its path in the artifact; None: its own name.
            **ignored: Settings of others.

        Raises:
            ConfigError: It is none, or its path is taken.
        """
        del ignored
        path = Path(local_path)
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise _refusal(f"{path} cannot be added: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no regular file"
            hint = "add_dir adds folders" if stat.S_ISDIR(mode) else "A link may lead anywhere: add what it leads to"
            raise _refusal(f"{path} is {what}, and not added", hint)
        self._put(path.name if name is None else name, path.absolute())

    def add_dir(self, local_path: str | os.PathLike[str], name: str | None = None, **ignored: Any) -> None:
        """Add all files of a folder and of those below it.

        Args:
            local_path: The folder; links and devices in it are refused.
            name: The path of the folder in the artifact; None: its files are at the top.
            **ignored: Settings of others.

        Raises:
            CheckpointError: There is something in it that is neither file nor folder.
            ConfigError: It is no folder, or a path is taken.
        """
        del ignored
        root = Path(local_path)
        if not root.is_dir():
            raise _refusal(f"{root} is no folder", "add_file adds files")
        prefix = PurePosixPath(name or "")
        for found in sorted(files.walk(root).files):
            self._put((prefix / found).as_posix(), (root / found).absolute())

    @contextmanager
    def new_file(self, name: str, mode: str = "w", encoding: str | None = None) -> Iterator[IO[Any]]:
        """Open a file that becomes a part of it: `with artifact.new_file("a.csv") as file: …`.

        Args:
            name: Its path in the artifact.
            mode: `w`, or `wb` for bytes.
            encoding: Of text; None: UTF-8.

        Raises:
            ConfigError: The path is none, or taken; or the mode does not write.
        """
        if mode not in {"w", "wb"}:
            raise _refusal(f"new_file(mode={mode!r}): there are 'w' and 'wb'")
        self._check_free(name)
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="detlab-artifact-", ignore_cleanup_errors=True)
        path = Path(self._made.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding=None if "b" in mode else encoding or "utf-8") as file:
            yield file
        self._put(name, path)

    def add_reference(
        self,
        uri: str,
        name: str | None = None,
        *,
        digest: str | None = None,
        size: int | None = None,
        **ignored: Any,
    ) -> None:
        """Refer to an object that stays where it is: `s3://…`, `gs://…`, `az://…`, `https://…`, or `data:NAME`.

        The cluster never opens it. Whoever downloads it uses credentials of their own, and its bytes are compared with
        the digest.

        Args:
            uri: The address of one object, without credentials; `data:NAME` names a data set and leads nowhere.
            name: Its path in the artifact; None: the last part of the address.
            digest: SHA-256 of its bytes, `sha256:…`. None: it is read once now, with your credentials.
            size: Its bytes, if they are known.
            **ignored: Settings of others.

        Raises:
            ConfigError: It is no address that can be referred to, or the digest is none.
            StorageError: It cannot be read.
        """
        del ignored
        scheme = urlsplit(uri).scheme
        if scheme not in SCHEMES:
            known = ", ".join(f"{one}:" for one in SCHEMES)
            raise _refusal(f"{uri[:80]!r} cannot be a reference: it begins with one of {known}", "add_file adds files")
        path = name or unquote(PurePosixPath(urlsplit(uri).path).name)
        self._check_free(path)
        if digest is None:
            from detlab.client.artifacts.references import digest_at

            digest, size = digest_at(uri)
        if (found := _DIGEST.fullmatch(digest)) is None:
            raise _refusal(f"{digest[:80]!r} is no digest: sha256: and 64 hex digits")
        with valid_request("this cannot be a reference"):
            self._references[path] = LoggedFile(path=path, size=size or 0, digest=f"sha256:{found[1]}", uri=uri)

    def _put(self, name: str, path: Path) -> None:
        self._check_free(name)
        self._files[name] = path

    def _check_free(self, name: str) -> None:
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or pure.as_posix() != name:
            raise _refusal(f"{name!r} cannot be a path in an artifact: it is relative, without `..`")
        if name in self._files or name in self._references:
            raise _refusal(f"{name!r} is in the artifact already")

    # --- logging it

    def prepared(self, *, run: str = "", aliases: Iterable[str] = (), copy_to: Path | None = None) -> PreparedVersion:
        """Read all files, and return what is to be sent.

        Args:
            run: The run that has made it.
            aliases: Names of the version beside its own.
            copy_to: A folder into which files are copied first, by their digests: what changes later does not count.

        Raises:
            ConfigError: It is empty, or something about it cannot be sent.
            OSError: A file cannot be read.
        """
        if not self._files and not self._references:
            raise _refusal(f"artifact {self.name!r} is empty", "add_file, add_dir and add_reference add to it")
        sources: dict[str, Path] = {}
        listed = list(self._references.values())
        for name, path in self._files.items():
            source = path if copy_to is None else _copied(path, copy_to)
            digest = file_digest(source)
            if copy_to is not None:
                source = source.replace(copy_to / digest.removeprefix("sha256:"))
            sources[digest] = source
            listed.append(LoggedFile(path=name, size=source.stat().st_size, digest=digest))
        named = [one for one in dict.fromkeys([*self.aliases, *aliases]) if one != "latest"]
        with valid_request(f"artifact {self.name!r} cannot be logged"):
            body = LogVersion(
                kind=self.type,
                description=self.description,
                comment=self.comment,
                metadata=plain(self.metadata, "metadata"),
                aliases=named,
                files=sorted(listed, key=lambda one: one.path),
                run=run,
                workspace=self.workspace,
            )
        return PreparedVersion(body, sources)

    def comes_by(self, waiter: Callable[[float | None], ArtifactVersion]) -> None:
        """Take what waits, for so many seconds, until it is logged by somebody else."""
        self._waiter = waiter

    def became(self, version: ArtifactVersion) -> None:
        """Note as which version it was logged."""
        self._logged = version
        if self._made is not None:
            self._made.cleanup()
            self._made = None

    # --- once it is logged

    def wait(self, timeout: float | None = None) -> Artifact:
        """Return itself when it is logged; with a run that sends later, this waits for the sending.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            ConfigError: It was given to nobody to be logged.
            Unavailable: It was not sent in that time.
        """
        if self._logged is None and self._waiter is not None:
            self.became(self._waiter(timeout))
        _ = self.logged
        return self

    @property
    def logged(self) -> ArtifactVersion:
        """The version that it has become.

        Raises:
            ConfigError: It was not logged so far.
        """
        if self._logged is None:
            raise _refusal(f"artifact {self.name!r} is not logged so far", "run.log_artifact(artifact).wait()")
        return self._logged

    @property
    def version(self) -> str:
        """`v3`, once it is logged."""
        return f"v{self.logged.version}"

    def download(self, root: str | os.PathLike[str] | None = None, **options: Any) -> Path:
        """Download it, once it is logged; see `ArtifactVersion.download`."""
        return self.logged.download(root, **options)


def as_artifact(
    given: Artifact | str | os.PathLike[str],
    name: str | None = None,
    type: str | None = None,  # noqa: A002  (as the artifact's own)
) -> Artifact:
    """Return an artifact; of a path, one with that file or folder.

    Args:
        given: It, or the path.
        name: Of the artifact; None: that of the file or folder.
        type: What it is.

    Raises:
        ConfigError: There is nothing at the path.
    """
    if isinstance(given, Artifact):
        return given
    path = Path(given)
    made = Artifact(name or path.resolve().name, type)
    if path.is_dir() and not path.is_symlink():
        made.add_dir(path)
    else:
        made.add_file(path)
    return made


def _copied(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=".new-", dir=folder)
    os.close(handle)
    shutil.copyfile(path, name)
    return Path(name)


def _refusal(problem: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem("artifact", problem, hint)], problem, hint=hint)
