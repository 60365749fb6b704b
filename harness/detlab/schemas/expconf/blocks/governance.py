"""The `governance` block: which source of samples may train which parameters."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Shorthand,
    describe,
    refuse,
)
from detlab.schemas.expconf.blocks.searcher_base import ConstraintConfig

SOURCE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
ANY_SOURCE = "*"
MACRO = "@"
Level = Literal["direct", "isolated", "dp"]


def _source_name(value: str) -> str:
    if not re.fullmatch(SOURCE_NAME, value):
        refuse(
            f"must be letters, digits, `.`, `_` and `-`, 64 at most, not {describe(value)}", "such as web or web-2026"
        )
    return value


def _digest(value: str) -> str:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        refuse(f"must be sha256: and 64 hexadecimal digits, not {describe(value)}", "sha256sum FILE prints them")
    return value


def _date(value: object) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        refuse(f"must be a day such as 2027-06-30, not {describe(value)}")


SourceName = Annotated[FilledText, AfterValidator(_source_name)]
Digest = Annotated[FilledText, AfterValidator(_digest)]
Share = Annotated[NonNegativeNumber, Field(le=1)]
Day = Annotated[datetime.date, BeforeValidator(_date)]


class GovernedSource(Block):
    """Samples that share their origin, licence and admission: what a rule is about, and what can be revoked."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"manifest", "expires"})

    name: SourceName = Field(description="Name, by which rules and the training code call it.")
    manifest: Digest | None = Field(
        None, description="SHA-256 of the file that lists its shards. Recorded with the policy; not verified yet."
    )
    license: FilledText = Field("unknown", description="Licence or contract. A declaration: nobody checks it.")
    expires: Day | None = Field(None, description="Last day on which it may be trained on.")
    parents: list[SourceName] = Field(
        [],
        description="Sources that it was made from, as by mixing: the least scale of all of them counts.",
    )


class GovernanceRule(Block):
    """How much a source contributes to the gradients of some parameters."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"level"})

    source: FilledText = Field(description="Name of a source, or * for all.")
    layers: FilledText = Field(
        description="Regular expression for whole names of parameters or of modules that hold them, or @ and a name of"
        " `depth`."
    )
    scale: NonNegativeNumber = Field(description="Factor of the gradients: 0 keeps them out, 1 lets them through.")
    level: Level | None = Field(None, description="Guarantee for these parameters; default: that of the block.")


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class CanariesConfig(Block):
    """Samples that are made up, of which a secret half is trained on: how well a model tells the halves apart shows
    what it memorises.

    Each takes the place of a sample of its source, under whose rules it is trained, or not. Which are trained on is
    drawn anew for each trial and stands in no config.
    """

    sources: Annotated[
        list[SourceName], Field(min_length=1), BeforeValidator(_listed), Shorthand({"type": "string", "minLength": 1})
    ] = Field(description="Sources that are watched, or one of them.")
    count: Annotated[int, Field(ge=4, le=20_000)] = Field(
        200, description="Canaries of each source: half of them are trained on, half are held out."
    )
    budget: Annotated[PositiveNumber, Field(le=0.5)] = Field(
        0.05, description="Largest share of a source's samples whose place canaries may take."
    )
    kind: Literal["auto", "label", "tokens"] = Field(
        "auto",
        description="What is made up: the label of a sample, or the last tokens of a sequence; auto looks at samples.",
    )
    confidence: Annotated[PositiveNumber, Field(lt=1)] = Field(
        0.95, description="Of the lower bounds, over all `looks` and sources together."
    )
    looks: PositiveInt = Field(10, description="Validations of a trial over which the confidence holds.")
    candidates: Annotated[int, Field(ge=2, le=1000)] = Field(
        32, description="Continuations, the planted one among them, that are ranked to measure extraction."
    )
    confirm: Flag = Field(
        True, description="Whether the best trial of a search is trained once more, with canaries of its own."
    )


class PrivacyConfig(Block):
    """Differential privacy of the whole training, for the level `dp`: each record of the training data is protected.

    Each sample is drawn for a step by itself (Poisson), its gradient is clipped, and the sum gets noise. How much of it
    follows from the numbers here, the length of the training and the size of batches.
    """

    max_grad_norm: PositiveNumber = Field(description="Norm to which the gradient of each sample is clipped.")
    target_epsilon: PositiveNumber = Field(
        description="Epsilon that the training may spend; it ends before it would be exceeded."
    )
    delta: Annotated[PositiveNumber, Field(lt=1)] = Field(
        description="Delta of the guarantee: well below one divided by the number of records."
    )


class ProfileConfig(Block):
    """Profiles of weights, by which a model is recognised after a conversion or a cast.

    The first samples of the first validation are kept in each checkpoint, as a frozen probe. What the model makes of
    them is signed with the checkpoint, and compared before training goes on from it; validations report the part of it
    that is of layers.
    """

    samples: Annotated[int, Field(ge=2, le=256)] = Field(
        32, description="Most samples of validation data that checkpoints keep, with 16 MiB in all."
    )
    rtol: Annotated[PositiveNumber, Field(le=1)] = Field(
        0.05,
        description="How far outputs, and what is measured of each layer, may be off, relative to what was recorded.",
    )


class GovernanceConfig(Block):
    """A policy: which source of samples may train which parameters, and what is measured of it. Only in detlab."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"canaries", "dp", "profile", "targets"})

    version: Literal[1] = Field(1, description="Of this block.")
    enforce: Literal["strict", "audit"] = Field(
        "strict", description="Whether a violation ends the trial, or is only logged and counted."
    )
    level: Level = Field(
        "direct",
        description="`direct`: a source's loss adds exactly nothing to gradients that are closed to it. It may still"
        " have an influence, through parameters that are open to it. `isolated`: what it trains is its own, in modules"
        " that give zeros for other samples, and no other parameter depends on it. `dp`: the whole training is"
        " differentially private for each record, with the numbers of the key `dp`; nothing is promised for all records"
        " of a person together, nor for several trials together.",
    )
    engine: Literal["auto", "fused", "dual", "microbatch"] = Field(
        "auto",
        description="How gradients are routed: inside the backward pass of known layers (fused), by a second forward"
        " pass of a layer (dual), or by a forward and backward pass for each source of a batch (microbatch), which"
        " takes any layer and changes the statistics of batch norm. auto takes fused where it can, else dual, never"
        " microbatch.",
    )
    sources: Annotated[list[GovernedSource], Field(min_length=1)] = Field(description="All sources.")
    depth: dict[str, list[FilledText]] = Field(
        {}, description="Names for lists of expressions, which rules call @NAME, such as surface and deep."
    )
    rules: list[GovernanceRule] = Field([], description="Rules in order: of those that match, the last counts.")
    default: Literal["deny", "allow"] = Field(
        "deny", description="Whether a sample without a declared source, or a parameter without a rule, is refused."
    )
    normalize: Literal["global", "per_layer"] = Field(
        "global",
        description="Divide gradients by all samples of a step, or for each parameter by the sum of their scales.",
    )
    coupling: Literal["forbid"] = Field(
        "forbid",
        description="Layers and losses that mix samples of several sources are refused: with `engine: microbatch` those"
        " of a batch that are of one source may be mixed, as batch norm does.",
    )
    clip: Literal["per_group", "global"] = Field(
        "per_group", description="Whether gradients are clipped apart for each set of parameters with the same scales."
    )
    dp: PrivacyConfig | None = Field(
        None, description="Numbers of the level `dp`, which applies to the whole training; it needs Opacus."
    )
    canaries: CanariesConfig | None = Field(None, description="Measure memorisation, and extraction of sequences.")
    profile: ProfileConfig | None = Field(
        None, description="Record a profile of the weights with each checkpoint; it keeps some validation data in them."
    )
    targets: dict[SourceName, dict[FilledText, Share]] | None = Field(
        None,
        description="For sources by name: how what they give should be divided among layers, as shares with the sum 1"
        " by expressions or @ and names of `depth`; layers that are not named should get nothing. `gov/conformance`"
        " tells how near it comes.",
    )
    constraints: dict[str, ConstraintConfig] = Field(
        {},
        description="Bounds of `provenance_coverage` and `leak_mass`, which end a trial, with canaries of"
        " `memorization_auc_lcb` and `extraction_lcb`, and with targets of `depth_conformance`, which stop a trial and"
        " also rank those of a search.",
    )
