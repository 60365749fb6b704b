"""Wire models of the model registry: models, their versions, labels that move, lineage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import MOST_CHARS, name_problem, normal
from detlab.schemas.text_limits import DESCRIPTION_CHARS, NOTES_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.edits import Labels
from detlab.schemas.wire.governance.evidence import EvidenceSummary

LABEL_CHARS = 64
REASON_CHARS = 2000


def model_name(text: str) -> str:
    """Return the name of a model as it is kept: no `@`, `/` or `:`, so that `digits@production` can be read.

    Raises:
        ValueError: It can be none.
    """
    name = normal(text)
    if problem := name_problem(name, " ._-"):
        raise ValueError(problem)
    return name


def version_label(text: str) -> str:
    """Return the label of a version as it is kept: it begins with a letter, so that none looks like a number.

    Raises:
        ValueError: It can be none.
    """
    label = normal(text)
    # Without regard to what it ends with: `v1-` has been one.
    problem = name_problem(f"{label}x", "._-", LABEL_CHARS + 1)
    if problem or not label[:1].isalpha():
        raise ValueError(
            "a label begins with a letter and has letters, digits, `.`, `_` and `-`, 64 characters at most"
        )
    return label


ModelName = Annotated[str, Field(max_length=4 * MOST_CHARS), AfterValidator(model_name)]
VersionLabel = Annotated[str, Field(max_length=4 * LABEL_CHARS), AfterValidator(version_label)]
SemVer = Annotated[str, Field(max_length=100, description="MAJOR.MINOR.PATCH, as semver.org 2.0.0 has it.")]


class CreateModel(PersonRequest):
    """POST models. A model is a name under which versions are kept."""

    name: ModelName
    description: str = Field("", max_length=DESCRIPTION_CHARS)
    notes: str = Field("", max_length=NOTES_CHARS)
    """Markdown; shown as text-safe HTML."""
    metadata: dict[str, Any] = {}
    labels: Labels = []
    """Words by which models are found, such as `vision`. They do not move; those of versions do."""
    workspace: str = Field("", max_length=2 * MOST_CHARS)
    """Where it is to lie, and so whose members see it; empty: its owner's personal one."""


class EditModel(PersonRequest):
    """POST models/{model}/edit. What is null stays as it is; the same edit again changes nothing."""

    name: ModelName | None = None
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    notes: str | None = Field(None, max_length=NOTES_CHARS)
    notes_before: str | None = Field(None, max_length=NOTES_CHARS)
    """What the notes were when they were opened for editing: if somebody has changed them since, nothing is done."""
    metadata: dict[str, Any] | None = None
    """All of it, replaced."""
    set_metadata: dict[str, Any] = {}
    remove_metadata: list[str] = Field(default=[], max_length=10_000)
    labels: Labels | None = None
    add_labels: Labels = []
    remove_labels: Labels = []
    archived: bool | None = None


class ModelView(Wire):
    """A registered model."""

    id: int
    name: str
    owner: str = ""
    description: str = ""
    notes: str = ""
    metadata: dict[str, Any] = {}
    labels: list[str] = []
    archived: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    versions: int = 0
    """How many there are."""
    latest: int | None = None
    """Number of the newest version."""
    moving: dict[str, int] = {}
    """Label of a version (`production`) -> number of the version that has it now."""
    right: str = "read"
    """What the caller may do: read, write or own."""
    reference: str = ""
    """What the caller names it by: its name, or `OWNER/NAME` where it is somebody else's."""
    workspace: str = ""
    """`OWNER/NAME` of the workspace that it lies in; empty: its owner's personal one."""
    workspace_id: int | None = None
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


_VALIDATION = "validation."


def untwinned(names: Iterable[str]) -> list[str]:
    """Return names of metrics without those of the validation that are there without their group, too."""
    listed = list(names)
    known = set(listed)
    return [name for name in listed if not (name.startswith(_VALIDATION) and name.removeprefix(_VALIDATION) in known)]


class Lineage(Wire):
    """Where a version comes from, as recorded when it was registered; nothing of it changes later."""

    experiment_id: int | None = None
    experiment_name: str = ""
    trial_id: int | None = None
    tracked_run: str = ""
    """The run that has logged it, by a client of MLflow."""
    run: int | None = None
    """Number of the attempt that saved the checkpoint."""
    steps_completed: int | None = None
    hyperparameters: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    """Reported at that step, by name: `group.name`; of a name in `validation` also without its group."""
    metric: str = ""
    """What the search optimised."""
    smaller_is_better: bool = True
    config: dict[str, Any] = {}
    """The experiment's config, secrets masked; empty in lists, and for those who may not read the experiment."""
    bundle_digest: str = ""
    """`sha256:<hex>` of the code."""
    environment: dict[str, str] = {}
    """The environment lock: package -> version as the task found them, with `python` and `platform`."""
    data: dict[str, str] = {}
    """Declared data sets: name -> digest or version (config: `data: {digests: {name: …}}`, or the checkpoint's
    metadata `data_digests`)."""
    governed: EvidenceSummary | None = None
    """What its signed evidence says that it was learnt from; None: it was not trained under a policy, or by an older
    version."""
    parents: list[str] = []
    """Checkpoints that the trial started from, and those that it has reported as used."""
    slots: int = 0
    device: str = ""
    submitter: str = ""
    started_at: float | None = None
    ended_at: float | None = None


class CreateVersion(PersonRequest):
    """POST models/{model}/versions: register a checkpoint; one of the two names it. A checkpoint that has a version
    of this model already gives that version again."""

    checkpoint: str | None = None
    """Its uuid."""
    experiment_id: int | None = Field(None, ge=1, lt=2**63)
    """Register the best checkpoint of this experiment."""
    name: str = Field("", max_length=1000)
    comment: str = Field("", max_length=DESCRIPTION_CHARS)
    notes: str = Field("", max_length=NOTES_CHARS)
    metadata: dict[str, Any] = {}
    semver: SemVer | None = None
    """Must be above those before it; null: none."""
    labels: list[VersionLabel] = Field(default=[], max_length=20)
    """Moved to the new version in the same act."""
    reason: str = Field("", max_length=REASON_CHARS)
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same request again, as after a lost reply, moves no label: somebody may have moved it meanwhile."""


class EditVersion(PersonRequest):
    """POST models/{model}/versions/{version}/edit."""

    name: str | None = Field(None, max_length=1000)
    comment: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    notes: str | None = Field(None, max_length=NOTES_CHARS)
    notes_before: str | None = Field(None, max_length=NOTES_CHARS)
    """What the notes were when they were opened for editing: if somebody has changed them since, nothing is done."""
    metadata: dict[str, Any] | None = None
    set_metadata: dict[str, Any] = {}
    remove_metadata: list[str] = Field(default=[], max_length=10_000)
    semver: SemVer | None = None


class VersionView(Wire):
    """A version of a model: a checkpoint with its lineage."""

    model_id: int
    model: str
    """Its name."""
    model_reference: str = ""
    """What the caller names the model by: its name, or `OWNER/NAME` where it is somebody else's."""
    version: int
    semver: str | None = None
    labels: list[str] = []
    """That it has now."""
    name: str = ""
    comment: str = ""
    notes: str = ""
    metadata: dict[str, Any] = {}
    owner: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    checkpoint: str = ""
    checkpoint_state: str = "COMPLETED"
    size: int = 0
    """Bytes of the checkpoint's files."""
    manifest_digest: str = ""
    format: str = ""
    """What the files are: `safetensors`, `pickle` (needs `allow_pickle`), `other`."""
    lineage: Lineage = Lineage()
    withdrawn: list[str] = []
    """Why it may not be promoted or trained on: each source that has trained it, and is withdrawn."""
    shortened: list[str] = []
    """Fields of which a list has only a part, because they are long; the object's own route has them whole."""


class MoveLabel(PersonRequest):
    """POST models/{model}/labels/{label}: give a label to a version, and take it from the one that had it."""

    version: int | str
    """A number, a semantic version or another label."""
    reason: str = Field("", max_length=REASON_CHARS)
    expected: int | None = None
    """The version that has it now, 0 for none: if another has it (two people moved it at once), nothing changes."""
    idempotency_key: Annotated[str, Field(max_length=300)] | None = None
    """The same request again, as after a lost reply, moves nothing; it returns your last move of the label."""


class RemoveLabel(PersonRequest):
    """POST models/{model}/labels/{label}/remove."""

    reason: str = Field("", max_length=REASON_CHARS)
    expected: int | None = None


class LabelMove(Wire):
    """One move of a label: who, when and why."""

    id: int = 0
    label: str
    from_version: int | None = None
    to_version: int | None = None
    """None: it was taken away."""
    by: str = ""
    at: float = 0.0
    reason: str = ""


class ModelList(Wire):
    """One page of models, newest first."""

    items: list[ModelView]
    after: int | None = None
    """Give it to get the next page."""


class VersionList(Wire):
    """One page of versions, newest first, or best first."""

    items: list[VersionView]
    after: int | None = None


class LabelMoves(Wire):
    """The history of a model's labels, newest first."""

    items: list[LabelMove]


class Difference(Wire):
    """One row of a comparison: `values` has one entry per compared version, null where it has none."""

    name: str
    values: list[Any]
    same: bool = False


class FileDifference(Wire):
    """A file of the code that is not the same in all compared versions; the diff is of the first two that have it."""

    path: str
    digests: list[str | None]
    diff: str = ""
    """Unified; empty if the file is binary, too long, or missing in one."""


class Comparison(Wire):
    """GET models/{model}/compare?versions=1,2,production: versions side by side."""

    versions: list[VersionView]
    metrics: list[Difference] = []
    hyperparameters: list[Difference] = []
    config: list[Difference] = []
    """By dotted path, only those that differ."""
    environment: list[Difference] = []
    code: list[FileDifference] = []


class LineageNode(Wire):
    """Something in a lineage graph."""

    id: str
    """`kind:name`, unique in the graph."""
    kind: str
    """version, checkpoint, run, trial, experiment, code, data, artifact"""
    label: str
    detail: str = ""


class LineageEdge(Wire):
    """`source` was made from, by or with `target`."""

    source: str
    target: str
    label: str = ""


class LineageGraph(Wire):
    """GET models/{model}/versions/{version}/lineage."""

    nodes: list[LineageNode]
    edges: list[LineageEdge]
