"""The smaller blocks: log policies, integrations, batch systems, profiling, seeds, deprecated optimizations."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    Int,
    NonNegativeInt,
    PositiveInt,
    Shorthand,
    Text,
    as_filled_text,
    as_int,
    describe,
    ignored,
    refuse,
)
from detlab.schemas.sbatch import ONE_NAME, OPTIONS, SbatchNotAllowed, parse_sbatch

LOG_ACTIONS = ("exclude_node", "cancel_retries")


def _plain_action(value: object) -> object:
    if isinstance(value, dict):
        extra = sorted(str(key) for key in value if key != "type")
        if extra or "type" not in value:
            refuse("must be exclude_node or cancel_retries", "the old form is a mapping with only `type`")
        value = value["type"]
    if not isinstance(value, str) or value not in LOG_ACTIONS:
        refuse(f"must be exclude_node or cancel_retries, not {describe(value)}")
    return value


class LogPolicy(Block):
    """What to do when a trial's log matches a pattern."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"name", "pattern", "action"})

    name: FilledText | None = Field(None, description="Label that a match gives the trial.")
    pattern: Text | None = Field(None, description="Regular expression (RE2); without it a policy of this name is off.")
    action: (
        Annotated[
            Literal["exclude_node", "cancel_retries"],
            BeforeValidator(_plain_action),
            Shorthand(
                {
                    "type": "object",
                    "properties": {"type": {"enum": list(LOG_ACTIONS)}},
                    "required": ["type"],
                    "additionalProperties": False,
                }
            ),
        ]
        | None
    ) = Field(None, description="`exclude_node` or `cancel_retries`; without it a match is only a label.")


DEFAULT_LOG_POLICIES: tuple[tuple[str, str], ...] = (
    ("CUDA OOM", ".*CUDA out of memory.*"),
    ("ECC Error", ".*uncorrectable ECC error encountered.*"),
)


def with_default_policies(policies: list[LogPolicy]) -> list[LogPolicy]:
    """Return the policies with the default ones that no policy of the same name replaces."""
    named = {policy.name for policy in policies}
    missing = [LogPolicy(name=name, pattern=pattern) for name, pattern in DEFAULT_LOG_POLICIES if name not in named]
    return [*policies, *missing]


class RetentionPolicy(Block):
    """How long logs are kept."""

    log_retention_days: Annotated[int, Field(ge=-1, le=32767), BeforeValidator(as_int)] | None = Field(
        None,
        description="Days after the end of a trial; 0: until the next cleaning; -1: until the experiment is deleted. By"
        " default the operator decides (`DetHub.log_retention_days`, unless set: for ever).",
    )


class ReproducibilityConfig(Block):
    """Seeds."""

    experiment_seed: Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(as_int)] | None = Field(
        None, description="Seed of the search and of the trials; by default the master draws one."
    )


class ProfilingConfig(Block):
    """Sampling of system metrics."""

    enabled: Flag = Field(False, description="Whether to sample.")
    begin_on_batch: NonNegativeInt = ignored(0, "First batch.", "profiling covers the whole trial")
    end_after_batch: NonNegativeInt | None = ignored(None, "Last batch.", "profiling covers the whole trial")
    sync_timings: Flag = ignored(True, "Synchronise timings.", "timings were removed")


class KerberosConfig(Block):
    """Unused."""

    config_file: Text = Field(description="Unused.")


class SecurityConfig(Block):
    """Unused; Determined refuses other keys, too."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"kerberos"})

    kerberos: KerberosConfig | None = Field(None, description="Unused.")


def _as_sbatch_arg(value: object) -> object:
    if isinstance(value, str):
        try:
            parse_sbatch(value)
        except SbatchNotAllowed as error:
            refuse(error.message, error.hint)
    return value


SbatchArg = Annotated[Text, BeforeValidator(_as_sbatch_arg)]


def _value_of(option: str) -> BeforeValidator:
    """Return what checks that a key has a value that an option of sbatch takes."""
    kind = OPTIONS[option]

    def check(value: object) -> object:
        value = as_filled_text(value)
        if isinstance(value, str) and not (value.isascii() and kind.fits(value)):
            refuse(f"must be {kind.words}, not {describe(value)}", f"it becomes --{option} of sbatch")
        return value

    return BeforeValidator(check)


def _as_gpu_type(value: object) -> object:
    value = as_filled_text(value)
    if isinstance(value, str) and not ONE_NAME.fits(value):
        refuse(f"must be a name, not {describe(value)}", "slots_per_trial says how many, sbatch_args what else")
    return value


_SLURM_TIME = re.compile(r"(?:\d+-)?\d{1,4}(?::\d{1,2}){0,2}")


def _as_slurm_time(value: object) -> object:
    """Accept minutes, the times that sbatch accepts, or a duration such as `90m`; return what sbatch accepts."""
    if value is None or (isinstance(value, str) and _SLURM_TIME.fullmatch(value.strip())):
        return None if value is None else str(value).strip()
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return str(value)
    found = re.fullmatch(r"\s*(\d+)\s*([mhd])\s*", value) if isinstance(value, str) else None
    if found is None or not int(found[1]):
        refuse(f"must be minutes, D-HH:MM:SS or a duration, not {describe(value)}", 'write 90, "1-12:00:00" or "36h"')
    return str(int(found[1]) * {"m": 1, "h": 60, "d": 1440}[found[2]])


SlurmTime = Annotated[str, BeforeValidator(_as_slurm_time)]
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+/-]+$"), BeforeValidator(as_filled_text)]


class SlurmConfig(Block):
    """Options of the Slurm job, for `runtime: slurm`. Keys after the first three are only in detlab."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {
            "slots_per_node", "gpu_type", "sbatch_args", "partition", "account", "qos", "constraint", "reservation",
            "time", "exclusive", "leave_seconds", "container", "modules", "setup",
        }
    )  # fmt: skip

    slots_per_node: PositiveInt | None = Field(
        None, description="Slots of each node. Default: as many of the largest node as divide the trial's slots."
    )
    gpu_type: Annotated[str, BeforeValidator(_as_gpu_type)] | None = Field(
        None, description="Type of the GPUs, as in `--gres=gpu:TYPE:2`."
    )
    sbatch_args: list[SbatchArg] | None = Field(
        None,
        description="More options of sbatch by their whole names, such as `--mem-per-gpu=40G`: those of"
        " [the table](sbatch-options.md).",
    )
    partition: Annotated[str, _value_of("partition")] | None = Field(
        None, description="Partition; default: the agent's, or Slurm's."
    )
    account: Annotated[str, _value_of("account")] | None = Field(
        None, description="Account that the job is charged to."
    )
    qos: Annotated[str, _value_of("qos")] | None = Field(None, description="Quality of service.")
    constraint: Annotated[str, _value_of("constraint")] | None = Field(
        None, description="Features that the nodes must have."
    )
    reservation: Annotated[str, _value_of("reservation")] | None = Field(None, description="Reservation to use.")
    time: SlurmTime | None = Field(
        None,
        description='Time limit of a job: minutes, "1-12:00:00" or "36h". Before that a trial saves and leaves.',
    )
    exclusive: Flag | None = Field(None, description="Whether the job shares its nodes with no other.")
    leave_seconds: PositiveInt | None = Field(
        None, description="Seconds before the time limit at which a trial is asked to save and leave; default: 120."
    )
    container: Literal["none", "apptainer", "pyxis"] | None = Field(
        None, description="What runs `environment.image`; default: the agent's setting."
    )
    modules: list[ModuleName] | None = Field(None, description="Environment modules to load.")
    setup: Text | None = Field(None, description="Lines of shell that run in the job before the task.")


class PbsConfig(Block):
    """PBS options."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"slots_per_node", "pbsbatch_args"})

    slots_per_node: PositiveInt | None = Field(None, description="Slots a node must have.")
    pbsbatch_args: list[Text] | None = Field(None, description="More qsub options.")


def _as_port(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Port = Annotated[Int, BeforeValidator(_as_port)]


class PachydermPachd(Block):
    """The Pachyderm daemon."""

    host: Text | None = Field(None, description="Host.")
    port: Port | None = Field(None, description="Port.")


class PachydermProxy(Block):
    """The Pachyderm proxy."""

    scheme: Text | None = Field(None, description="Scheme.")
    host: Text | None = Field(None, description="Host.")
    port: Port | None = Field(None, description="Port.")


class PachydermDataset(Block):
    """The Pachyderm dataset that the experiment reads."""

    project: Text | None = Field(None, description="Project.")
    repo: Text | None = Field(None, description="Repository.")
    commit: Text | None = Field(None, description="Commit.")
    branch: Text | None = Field(None, description="Branch.")
    token: Text | None = Field(None, description="Token.")


class PachydermConfig(Block):
    """Lineage link to Pachyderm."""

    pachd: PachydermPachd | None = Field(None, description="The daemon.")
    proxy: PachydermProxy | None = Field(None, description="The proxy.")
    dataset: PachydermDataset | None = Field(None, description="The dataset.")


class WebhooksConfig(Block):
    """Which webhooks of users fire for this experiment; by default all whose rules look at it."""

    webhook_id: list[Int] | None = Field(None, description="Only those with these ids.")
    webhook_name: list[Text] | None = Field(None, description="Only those with these names, or the ids above.")
    exclude: Flag = Field(False, description="Whether none fires.")


class IntegrationsConfig(Block):
    """Links to other systems."""

    pachyderm: PachydermConfig | None = Field(None, description="Pachyderm lineage.")
    webhooks: WebhooksConfig | None = Field(None, description="Webhook selection.")


class OptimizationsConfig(Block):
    """Knobs of the old Trial classes; the whole block is deprecated."""

    aggregation_frequency: PositiveInt = Field(1, description="Batches between gradient updates.")
    average_aggregated_gradients: Flag = Field(True, description="Whether to average them.")
    average_training_metrics: Flag = Field(True, description="Whether to average metrics over slots.")
    gradient_compression: Flag = Field(False, description="Whether to compress gradients.")
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = Field("O0", description="Apex level.")
    tensor_fusion_threshold: NonNegativeInt = Field(64, description="MB.")
    tensor_fusion_cycle_time: NonNegativeInt = Field(1, description="ms.")
    auto_tune_tensor_fusion: Flag = Field(False, description="Whether to tune the two above.")
    grad_updates_size_file: Text | None = Field(None, description="File for sizes of gradient updates.")
