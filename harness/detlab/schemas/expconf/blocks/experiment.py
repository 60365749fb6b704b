"""The experiment config as a whole: Determined 0.38's keys, types and defaults."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from detlab.schemas.expconf.blocks.environment import BindMount, EnvironmentConfig, ResourcesConfig
from detlab.schemas.expconf.blocks.extras import (
    IntegrationsConfig,
    LogPolicy,
    OptimizationsConfig,
    PbsConfig,
    ProfilingConfig,
    ReproducibilityConfig,
    RetentionPolicy,
    SecurityConfig,
    SlurmConfig,
    with_default_policies,
)
from detlab.schemas.expconf.blocks.governance import GovernanceConfig
from detlab.schemas.expconf.blocks.hyperparameters import Hyperparameters
from detlab.schemas.expconf.blocks.lengths import Length
from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    NonNegativeInt,
    PositiveInt,
    RuntimeName,
    Text,
    describe,
    ignored,
    needed,
    old,
    refuse,
)
from detlab.schemas.expconf.blocks.searchers import SearcherConfig
from detlab.schemas.expconf.blocks.stopping import StoppingPolicy
from detlab.schemas.expconf.blocks.storage import CheckpointStorage

_TRAINER_DECIDES = (
    "training code decides since Determined 0.38: a script passes it to the trainer; for an entrypoint module:Class it "
    "counts as before"
)

TRIAL_CLASS = re.compile(r"[a-zA-Z0-9_.]+:[a-zA-Z0-9_.]+")
"""An entrypoint of the deprecated form `module:Class`."""


def _entrypoint(value: object) -> object:
    if not isinstance(value, str | list):
        refuse(f"must be a command line or a list of its words, not {describe(value)}")
    if not value:
        refuse("must not be empty")
    return value


def _entrypoint_form(value: object) -> str:
    return "::words" if isinstance(value, list) else "::line"


Entrypoint = Annotated[
    Annotated[FilledText, Tag("::line")] | Annotated[list[Text], Tag("::words"), Field(min_length=1)],
    Discriminator(_entrypoint_form),
    BeforeValidator(_entrypoint),
]


def _unique(labels: list[str]) -> list[str]:
    return list(dict.fromkeys(labels))


class ExperimentConfig(Block):
    """One experiment: what to run, what to search, where, and what to keep.

    Build it with `detlab.schemas.expconf.parse`, which also judges what no single field can.
    """

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {
            *{"data_layer", "governance", "internal", "runtime", "security", "stopping"},
            *{"tensorboard", "tensorboard_storage", "unmanaged"},
        }
    )

    name: Text | None = Field(
        None, description='Display name; if it is left out, detlab makes one up: "Experiment (three words)".'
    )
    description: Text | None = Field(None, description="Longer description; 255 characters at most are recommended.")
    labels: Annotated[list[Text], AfterValidator(_unique)] = Field([], description="Tags.")
    data: dict[str, Any] = Field(
        {}, description="Free-form data of your own; values in `data.secrets` are masked wherever the config is shown."
    )
    workspace: Text = Field(
        "",
        description="Workspace that it lies in, whose members see it: one of yours by its name, or OWNER/NAME.",
    )
    project: Text = Field(
        "", description="Project of the workspace that it lies in. Empty: the one for what names none."
    )
    entrypoint: Entrypoint | None = needed("Command line to run, or a list of its words.")
    hyperparameters: Hyperparameters = Field(
        {}, description="Values that the training code reads; ranges are searched."
    )
    searcher: SearcherConfig | None = needed("Which trials to create and which to stop.")
    stopping: list[StoppingPolicy] | None = Field(
        None,
        description="Policies that stop trials which are not worth continuing, beside any searcher. Only in detlab.",
    )
    governance: GovernanceConfig | None = Field(
        None, description="Which source of samples may train which parameters. Only in detlab."
    )
    unmanaged: Flag | None = Field(
        None,
        description="Whether you evaluate the trials yourself, by `ask` and `tell`: the cluster runs none of them, and"
        " there is no entrypoint. Only in detlab.",
    )
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig, description="Slots and priority.")
    environment: EnvironmentConfig = Field(
        default_factory=EnvironmentConfig, description="Image and environment variables."
    )
    runtime: RuntimeName | None = Field(
        None,
        description="How it runs: process (on the node), docker (a container), or another runtime of the pool's"
        " agents. Default: the cluster's setting. Only in detlab.",
    )
    checkpoint_storage: CheckpointStorage | None = Field(
        None, description="Where checkpoints are stored and how many are kept; default: the cluster's setting."
    )
    checkpoint_policy: Literal["best", "all", "none"] = Field(
        "best", description="After which validations a checkpoint is saved."
    )
    max_restarts: NonNegativeInt = Field(
        5, description="How often a trial that fails is restarted before it ends as failed."
    )
    preemption_timeout: NonNegativeInt | None = Field(
        None,
        description="Seconds that a trial has to save and stop before it is killed; default: the cluster's 3600.",
    )
    tensorboard: Literal["import"] | None = Field(
        None,
        description="`import`: what the code writes for TensorBoard (`SummaryWriter`) becomes metrics and media of the"
        " trial. Only in detlab.",
    )
    profiling: ProfilingConfig = Field(default_factory=ProfilingConfig, description="System metrics.")
    reproducibility: ReproducibilityConfig = Field(default_factory=ReproducibilityConfig, description="Seeds.")
    debug: Flag = Field(False, description="Whether the harness logs more.")
    log_policies: Annotated[list[LogPolicy], AfterValidator(with_default_policies)] = Field(
        default_factory=lambda: with_default_policies([]), description="What to do about lines in the logs."
    )
    retention_policy: RetentionPolicy = Field(default_factory=RetentionPolicy, description="How long logs are kept.")
    bind_mounts: list[BindMount] = Field([], description="Host directories for the container.")
    integrations: IntegrationsConfig | None = Field(None, description="Links to other systems.")
    slurm: SlurmConfig = Field(default_factory=SlurmConfig, description="Slurm options.")
    pbs: PbsConfig = Field(default_factory=PbsConfig, description="PBS options.")
    min_validation_period: Length = old(Length(batches=0), "Least training between validations.", _TRAINER_DECIDES)
    min_checkpoint_period: Length = old(Length(batches=0), "Least training between checkpoints.", _TRAINER_DECIDES)
    scheduling_unit: PositiveInt = old(100, "Batches between reports.", _TRAINER_DECIDES)
    records_per_epoch: NonNegativeInt = ignored(
        0, "Records of one epoch.", "an epoch is as long as the data loader says"
    )
    perform_initial_validation: Flag = Field(False, description="Whether to validate before training.")
    optimizations: OptimizationsConfig = old(
        OptimizationsConfig(), "Knobs of the old Trial classes.", "training code sets them"
    )
    data_layer: dict[str, Any] | None = ignored(None, "Unused.", "the data layer was removed")
    internal: dict[str, Any] | None = ignored(None, "Unused.", "it was for Determined's own use")
    security: SecurityConfig | None = ignored(None, "Unused.", "Kerberos support was removed")
    tensorboard_storage: dict[str, Any] | None = ignored(None, "Unused.", "checkpoint_storage holds events too")
