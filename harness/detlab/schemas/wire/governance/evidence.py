"""Wire models of governed learning: what a trial records, signed evidence, the ledger and the keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.workspaces import Reference

METADATA_KEY = "governance"
"""Key of a checkpoint's metadata under which a governed trial records its `GovernedSegment`."""
HASH = r"^sha256:[0-9a-f]{64}$"
Hash = Annotated[str, Field(pattern=HASH)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Name = Annotated[str, Field(max_length=200)]


class EpochOrder(Wire):
    """Which samples a segment took of one epoch, in which order."""

    epoch: Count
    digest: Hash
    """SHA-256 of the digests of all ranks, in order; each of its samples' indices, batch by batch."""


class PrivacySpent(Wire):
    """What a training at the level `dp` has spent, since its weights were new, by its own accountant."""

    mechanism: str = Field("rdp", max_length=20)
    """The accountant: Renyi differential privacy of Gaussian noise on samples that are drawn by themselves."""
    epsilon: float = Field(ge=0, allow_inf_nan=False)
    delta: float = Field(gt=0, lt=1)
    target_epsilon: float = Field(gt=0, allow_inf_nan=False)
    max_grad_norm: float = Field(gt=0, allow_inf_nan=False)
    noise_multiplier: float = Field(gt=0, allow_inf_nan=False)
    sample_rate: float = Field(gt=0, le=1)
    steps: Count = 0


Figure = Annotated[float, Field(allow_inf_nan=False)]


class ModelProfile(Wire):
    """What a model makes of a frozen probe."""

    model: int = Field(0, ge=0, lt=64)
    """Which of the trial's models."""
    probe: Hash
    """SHA-256 of the inputs."""
    samples: int = Field(ge=1, le=1024)
    dtype: str = Field("", max_length=20)
    """Of its parameters; empty: not known."""
    output: list[Figure] = Field([], max_length=8192)
    """The outputs of each sample, projected to eight numbers by fixed random signs."""
    layers: dict[Name, Annotated[list[Figure], Field(min_length=2, max_length=2)]] = Field({}, max_length=200)
    """Of each layer's outputs: the root of their mean square, and in how many directions they differ."""


class RecordedProfile(Wire):
    """The profiles of a checkpoint's models, and how far one may be off."""

    rtol: float = Field(gt=0, le=1)
    """Of outputs, and of what is measured of each layer, relative to what was recorded."""
    models: list[ModelProfile] = Field([], max_length=64)


class GovernedSegment(Wire):
    """What was trained since the checkpoint before: the key `governance` of a checkpoint's metadata."""

    format: int = 1
    policy_hash: Hash
    s_hash: Hash
    parent: str | None = Field(None, max_length=36)
    """The checkpoint before, of this trial or the one that it began with; None: it began with new weights."""
    first_step: Count = 0
    """Batches that were trained before."""
    counts: dict[Name, Count] = Field({}, max_length=1001)
    """Samples by source; under the empty name those without a declared one."""
    order: list[EpochOrder] = Field([], max_length=1000)
    """Empty if the indices of samples are not known."""
    roster: str = Field("", max_length=71)
    """Digest of which sample is from which source; empty: not known."""
    world_size: int = Field(1, ge=1, le=2**20)
    level: str = Field("direct", max_length=20)
    """The policy's; rules may raise it for some sources, so that each has its own."""
    canaries: str = Field("", max_length=71)
    """Commitment to which canaries are trained on, drawn before the first batch; empty: there are none."""
    versions: dict[Name, Name] = Field({}, max_length=20)
    """Of torch and detlab, and what rounding depends on: `threads`, `processor`, and `gpu` if there is one."""
    privacy: PrivacySpent | None = None
    """At the level `dp`; None at another one."""
    profile: RecordedProfile | None = None
    """Of the weights; None if the policy asks for none, or nothing was validated yet."""


class RecordMatrix(Wire):
    """PUT task/governance/matrix: the matrix S of a trial, before its first checkpoint."""

    matrix: dict[str, Any]


class VerifyCheckpoint(Wire):
    """POST task/checkpoints/{uuid}/verification: may this trial go on from it?"""

    manifest_digest: Hash
    """Of the files that it has read."""
    s_hash: Hash
    roster: str = Field("", max_length=71)
    damaged: list[Annotated[str, Field(max_length=36)]] = Field([], max_length=100)
    """Newer checkpoints of the trial whose files cannot be read."""
    refusals: list[RefusalView] = Field([], max_length=20)
    """What the trial itself has found."""


class RefusalView(Wire):
    """One reason why training may not go on."""

    code: str = Field(max_length=20)
    message: str = Field(max_length=1000)


class VerificationReply(Wire):
    """Why not; empty: it may."""

    refusals: list[RefusalView] = []
    step: int = 0


class SigningKeyView(Wire):
    """A public key of the cluster."""

    id: str
    public_key: str = ""
    """32 bytes in hex (Ed25519)."""
    installation: str = ""
    state: str = "ACTIVE"
    """`ACTIVE`, `RETIRED` (what it has signed holds) or `REVOKED` (nothing of it holds)."""
    made_at: float = 0.0
    ended_at: float | None = None


class SigningKeyList(Wire):
    """All of them, newest first."""

    items: list[SigningKeyView]


class RotateKey(PersonRequest):
    """POST signing-keys: sign with a new key from now on. The old ones stay valid for what they have signed."""


class RevokeKey(PersonRequest):
    """POST signing-keys/{key}/revoke: nothing that it has signed holds any more."""

    reason: str = Field("", max_length=300)


class EvidenceView(Wire):
    """What a checkpoint was learnt from, with its signature."""

    checkpoint: str
    trial_id: int = 0
    experiment_id: int = 0
    steps_completed: int = 0
    manifest_digest: str = ""
    envelope: dict[str, Any] = {}
    """DSSE, of an in-toto statement."""
    predicate: dict[str, Any] = {}
    """What it says, decoded."""
    learnt_from: list[str] = []
    """Sources of its taint that could change a parameter; others of it were seen, and are closed to all layers."""
    levels: dict[str, str] = {}
    """The level of each of them: `direct`, `isolated`, `dp`, or `unknown` where a matrix is not recorded."""
    keys: list[SigningKeyView] = []
    problems: list[RefusalView] = []
    """What is wrong with signature, manifest and ledger by the master's own look; empty: nothing."""
    withdrawn: list[RefusalView] = []
    """Sources that have trained it, and are withdrawn now."""


class MatrixGroup(Wire):
    """Neighbouring parameters of S with the same factors."""

    label: str
    """Their name, or what their names begin with."""
    count: int = 1
    scales: list[float]
    """By source, in the order of `LearningView.sources`."""
    levels: list[str]
    """Likewise."""


class DepthView(Wire):
    """D: what each source gave to each layer so far, as the trial measured it."""

    steps_completed: int = 0
    layers: list[str] = []
    shares: list[list[float]] = []
    """By source, then by layer: a source's numbers have the sum 1, or 0 if it gave nothing yet."""
    left_out: int = 0
    """Further layers, which gave the least."""


class LearningView(Wire):
    """What each source may train in a trial, and what it gave so far."""

    trial_id: int = 0
    s_hash: str = ""
    """Empty: the trial has not recorded its matrix yet."""
    sources: list[str] = []
    groups: list[MatrixGroup] = []
    """The columns of S."""
    left_out: int = 0
    """Further groups of a large model."""
    share: dict[str, float] = {}
    """Of the samples trained on, by source, as the trial measured it."""
    depth: DepthView | None = None
    """None: nothing was measured yet, or the matrix is too large to be reported."""
    refusals: list[RefusalView] = []
    """Why the newest attempt could not begin."""


class LedgerEntryView(Wire):
    """An entry of a trial's ledger."""

    trial_id: int
    index: int
    kind: str
    checkpoint: str = ""
    body: dict[str, Any] = {}
    previous: str = ""
    at: float = 0.0
    hash: str = ""
    envelope: dict[str, Any] | None = None


class LedgerPage(Wire):
    """Entries in order."""

    items: list[LedgerEntryView]
    after: int | None = None
    """Give it to get the next page."""


class MatrixView(Wire):
    """A matrix S that a ledger names."""

    s_hash: str
    matrix: dict[str, Any] = {}


class SourceSummary(Wire):
    """A source, as a policy declares it, and how much of it was trained on."""

    name: str
    license: str = "unknown"
    manifest: str | None = None
    expires: str | None = None
    samples: int = 0
    """Since the weights were new, with those of trials before."""
    reached: bool = True
    """Whether they could change a parameter; else the source was closed to all layers."""
    level: str = ""
    """What is promised of it: `direct`, `isolated`, `dp` or `unknown`; empty: it was closed, or not recorded."""


class EvidenceSummary(Wire):
    """What a version of a model says of its evidence; None where its checkpoint has none."""

    key_id: str = ""
    policy_hash: str = ""
    s_hash: str = ""
    enforce: str = ""
    """`strict`; or `audit`, at which violations are told and no level is promised."""
    ledger_index: int = 0
    ledger_hash: str = ""
    sources: list[SourceSummary] = []
    privacy: PrivacySpent | None = None
    """What a training at the level `dp` has spent; None at others. Levels are of sources: see there."""


class WithdrawnSourceView(Wire):
    """A source that is withdrawn: no policy may train on it, and nothing goes on from what it has trained."""

    source: str
    manifest: str = ""
    """Only data with this manifest; empty: whatever is called so."""
    workspace: str = ""
    """In which workspace, as `OWNER/NAME`; empty: in the whole cluster."""
    reason: str = ""
    by: str = ""
    at: float = 0.0
    versions: list[str] = []
    """Versions of models that it has trained and that the caller may read, as `MODEL@VERSION`."""
    more_versions: bool = False
    """Whether there may be more of them than were looked at."""
    paused: list[int] = []
    """When it was withdrawn: the experiments that were paused."""


class WithdrawnSourceList(Wire):
    """Those that the caller may know of, newest first."""

    items: list[WithdrawnSourceView]


class WithdrawSource(PersonRequest):
    """POST withdrawn-sources: end the training on a source, and on what it has trained."""

    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    manifest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    workspace: Reference = ""
    reason: Annotated[str, Field(min_length=1, max_length=300)]


class RestoreSource(PersonRequest):
    """POST withdrawn-sources/undo: the same source, manifest and workspace as it was withdrawn with."""

    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    manifest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    workspace: Reference = ""
    reason: Annotated[str, Field(min_length=1, max_length=300)]


VerifyCheckpoint.model_rebuild()
