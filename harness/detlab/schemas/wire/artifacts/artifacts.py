"""Artifacts, their versions, the files and references of these, and what runs do with them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import MOST_CHARS, name_problem, normal
from detlab.schemas.text_limits import DESCRIPTION_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.registry import ModelName, VersionLabel

MOST_FILES = 10_000
"""Files and references of one version."""
MOST_ALIASES = 50
KIND_CHARS, URI_CHARS, PATH_CHARS = 64, 2000, 1000
LATEST = "latest"
"""Names the newest version; no version keeps it."""
SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "abfss", "https", "http", "data", "hf")
"""Of references. A `file:` of one machine means something else on the next one; `data:NAME` is a data set by its name
alone, as `data.digests` of a config has it."""
USED: Final = "used"
LOGGED: Final = "logged"
LinkRole = Literal["used", "logged"]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


def version_alias(text: str) -> str:
    """Return an alias as it is kept.

    Raises:
        ValueError: It can be none: `latest` and `v3` name versions by themselves.
    """
    if text == LATEST or (text[:1] in {"v", "V"} and text[1:].isdigit()):
        raise ValueError(f"{text!r} always means a version by itself, and cannot be given to one")
    return text


def artifact_kind(text: str) -> str:
    """Return what an artifact is, as it is kept: `dataset`, `model`, a word of one's own.

    Raises:
        ValueError: It can be none.
    """
    kind = normal(text)
    if problem := name_problem(kind, " ._-", KIND_CHARS):
        raise ValueError(problem)
    return kind


VersionAlias = Annotated[VersionLabel, AfterValidator(version_alias)]
ArtifactKind = Annotated[str, Field(max_length=4 * KIND_CHARS), AfterValidator(artifact_kind)]


class ArtifactFile(Wire):
    """A file of a version, or a reference to what lies elsewhere."""

    path: str = Field(min_length=1, max_length=PATH_CHARS)
    size: int = Field(0, ge=0, le=2**53)
    """Bytes; of a reference 0 where nobody knows."""
    digest: Digest
    """Of its bytes."""
    uri: str = Field("", max_length=URI_CHARS)
    """Where a reference leads. The master never opens it; empty: the file was uploaded."""


class LoggedFile(PersonRequest, ArtifactFile):
    """The same, as it is to be logged."""


class LogVersion(PersonRequest):
    """POST artifacts/{artifact}/versions. The artifact is made if it is the caller's own and not there.

    The reply names the files whose bytes are not there yet. Once they are uploaded, the same request makes the version.
    The same content as that of the newest version is that version.
    """

    kind: ArtifactKind | None = None
    """null: that of the artifact; of a new one `dataset`."""
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    """Of the artifact; null: it stays as it is."""
    comment: str = Field("", max_length=DESCRIPTION_CHARS)
    """Of the version."""
    metadata: dict[str, Any] = {}
    aliases: list[VersionAlias] = Field(default=[], max_length=MOST_ALIASES)
    files: list[LoggedFile] = Field(min_length=1, max_length=MOST_FILES)
    run: str = Field("", max_length=128)
    """The run that made it, by its id; empty: nobody's. Of a trial's token it is the trial."""
    workspace: str = Field("", max_length=2 * MOST_CHARS)
    """Where a new artifact is to lie; empty: where its run lies, else its owner's personal one."""


class EditArtifact(PersonRequest):
    """POST artifacts/{artifact}/edit. What is null stays as it is."""

    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    name: ModelName | None = None
    workspace: str | None = Field(None, max_length=2 * MOST_CHARS)
    """Where it is to lie from now on; empty: its owner's personal one."""


class EditArtifactVersion(PersonRequest):
    """POST artifacts/{artifact}/versions/{version}/edit. The files of a version never change."""

    comment: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    set_metadata: dict[str, Any] = {}
    remove_metadata: list[str] = Field(default=[], max_length=10_000)
    add_aliases: list[VersionAlias] = Field(default=[], max_length=MOST_ALIASES)
    """Each is taken from the version that has it now."""
    remove_aliases: list[VersionLabel] = Field(default=[], max_length=MOST_ALIASES)


class UseVersion(PersonRequest):
    """POST artifacts/{artifact}/versions/{version}/use: a run uses it."""

    run: str = Field("", max_length=128)
    """The run, by its id; of a trial's token it is the trial."""


class ArtifactView(Wire):
    """A name under which versions are kept."""

    id: int
    name: str
    kind: str
    owner: str = ""
    description: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    versions: int = 0
    """How many there are."""
    latest: int | None = None
    """Number of the newest version."""
    size: int = 0
    """Bytes that its versions take; what several of them have counts once."""
    aliases: dict[str, int] = {}
    """Alias -> number of the version that has it now; `latest` is not among them."""
    right: str = "read"
    """What the caller may do: read, write or own."""
    reference: str = ""
    """What the caller names it by: its name, or `OWNER/NAME` where it is somebody else's."""
    workspace: str = ""
    """`OWNER/NAME` of the workspace that it lies in; empty: its owner's personal one."""
    shortened: list[str] = []


class ArtifactVersionView(Wire):
    """A version: its files never change."""

    artifact_id: int
    artifact: str
    """Its name."""
    kind: str
    artifact_reference: str = ""
    """What the caller names the artifact by."""
    version: int
    aliases: list[str] = []
    """`latest` among them, if it is the newest."""
    comment: str = ""
    metadata: dict[str, Any] = {}
    digest: str = ""
    """Of its list of files: equal digests are equal contents."""
    files: int = 0
    """Files and references."""
    references: int = 0
    size: int = 0
    """Bytes of all files, without those of references."""
    owner: str = ""
    """Who has logged it."""
    created_at: float = 0.0
    logged_by: list[str] = []
    """Ids of the runs that have made it, of those that the caller may read; empty in lists."""
    used_by: list[str] = []
    """Likewise of those that use it."""
    shortened: list[str] = []


class VersionLogged(Wire):
    """The reply to `LogVersion`."""

    artifact_id: int
    missing: list[str] = []
    """Digests of files that are to be uploaded first; none: `version` is there."""
    version: ArtifactVersionView | None = None
    created: bool = False
    """Whether the version is new."""


class ArtifactList(Wire):
    """A page of artifacts, the newest first."""

    items: list[ArtifactView]
    next: int | None = None
    """`after` of the next page; null: this is the last one."""


class ArtifactVersionList(Wire):
    """A page of versions, the newest first."""

    items: list[ArtifactVersionView]
    next: int | None = None
    """`after` of the next page; null: this is the last one."""


class ArtifactFileList(Wire):
    """A page of files, by path."""

    items: list[ArtifactFile]
    next: str | None = None
    """`after` of the next page; null: this is the last one."""


class RunArtifact(Wire):
    """A version that a run has used or made."""

    role: LinkRole
    at: float
    version: ArtifactVersionView


class RunArtifactList(Wire):
    """GET runs/{run_id}/artifacts."""

    items: list[RunArtifact]
    next: int | None = None
