"""A policy as plain values, with its hash."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from detlab.errors import Problem
from detlab.governance.refusals import GovernanceError, Refusal
from detlab.schemas.expconf.blocks.governance import (
    ANY_SOURCE,
    MACRO,
    CanariesConfig,
    GovernanceConfig,
    PrivacyConfig,
    ProfileConfig,
)
from detlab.schemas.expconf.checks.governance import policy as text_problems
from detlab.schemas.expconf.checks.translating import from_pydantic
from detlab.schemas.expconf.checks.walk import visit
from detlab.schemas.expconf.raw.paths import render


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A source of samples; see the block `governance.sources`."""

    name: str
    license: str = "unknown"
    manifest: str | None = None
    expires: datetime.date | None = None
    parents: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SourceRule:
    """One rule.

    Attributes:
        source: Name of a source, or `*`.
        layers: As it was written: an expression, or `@` and a macro.
        patterns: Expressions of which one must match.
        scale: Factor of the gradients.
        level: Guarantee; None for the policy's.
    """

    source: str
    layers: str
    patterns: tuple[re.Pattern[str], ...]
    scale: float
    level: str | None = None

    def covers(self, source: str) -> bool:
        """Return whether it is about this source."""
        return self.source in (ANY_SOURCE, source)

    def matches(self, name: str) -> bool:
        """Return whether an expression matches the whole name of a parameter, or of a module that holds it."""
        return matching(self.patterns, name)


@dataclasses.dataclass(frozen=True, slots=True)
class LayerTarget:
    """What of all that a source gives should go to some layers.

    Attributes:
        layers: As it was written: an expression, or `@` and a macro.
        patterns: Expressions of which one must match.
        share: From 0 to 1; those of a source have the sum 1.
    """

    layers: str
    patterns: tuple[re.Pattern[str], ...]
    share: float


def matching(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    """Return whether an expression matches the whole name of a parameter, or of a module that holds it."""
    return any(pattern.fullmatch(part) for part in holders(name) for pattern in patterns)


def holders(name: str) -> list[str]:
    """Return the name of a parameter, and those of the modules that hold it: `a.b.weight`, `a.b`, `a`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """What a `governance` block says.

    Attributes:
        sources: All declared sources, in order.
        rules: In order: the last that matches counts.
        policy_hash: SHA-256 of the whole block with all defaults, as `sha256:…`.
        canaries: What is planted to measure memorisation; None for nothing.
        dp: Numbers of the level `dp`; None at another one.
        profile: Whether and how the weights of checkpoints are profiled; None: they are not.
        targets: By source, how what it gives should be divided among layers.
    """

    sources: tuple[Source, ...]
    rules: tuple[SourceRule, ...]
    enforce: Literal["strict", "audit"]
    level: str
    engine: str
    default: Literal["deny", "allow"]
    normalize: Literal["global", "per_layer"]
    clip: Literal["per_group", "global"]
    constraints: Mapping[str, tuple[float | None, float | None]]
    policy_hash: str
    canaries: CanariesConfig | None = None
    dp: PrivacyConfig | None = None
    profile: ProfileConfig | None = None
    targets: Mapping[str, Sequence[LayerTarget]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, block: Mapping[str, Any] | GovernanceConfig) -> Policy:
        """Return the policy of a block of an experiment config.

        Raises:
            GovernanceError: POLICY, with all mistakes.
        """
        raw = block.model_dump(mode="json") if isinstance(block, GovernanceConfig) else dict(block)
        problems: list[Problem] = list(text_problems({"governance": raw}))
        try:
            config = GovernanceConfig.model_validate(raw)
        except ValidationError as error:
            problems += from_pydantic(error, ("governance",))
            problems += _unknown_keys(raw)
        if problems:
            raise GovernanceError((Refusal("POLICY", str(one)) for one in problems), "this policy cannot be used:")
        return cls(
            sources=tuple(
                Source(one.name, one.license, one.manifest, one.expires, tuple(one.parents)) for one in config.sources
            ),
            rules=tuple(_rule(rule, config.depth) for rule in config.rules),
            enforce=config.enforce,
            level=config.level,
            engine=config.engine,
            default=config.default,
            normalize=config.normalize,
            clip=config.clip,
            constraints={name: (bounds.min, bounds.max) for name, bounds in config.constraints.items()},
            policy_hash=digest(config.model_dump(mode="json")),
            canaries=config.canaries,
            dp=config.dp,
            profile=config.profile,
            targets={
                source: tuple(
                    LayerTarget(layers, _patterns(layers, config.depth), share) for layers, share in own.items()
                )
                for source, own in (config.targets or {}).items()
            },
        )

    def index(self) -> dict[str, int]:
        """Return the row of each source."""
        return {source.name: row for row, source in enumerate(self.sources)}

    def expired(self, today: datetime.date) -> list[Refusal]:
        """Return a refusal for each source whose last day is over."""
        return [
            Refusal("REVOKED", f"the source {one.name!r} could be trained on until {one.expires}")
            for one in self.sources
            if one.expires is not None and one.expires < today
        ]


def _unknown_keys(raw: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(render(("governance", *path, str(key))), "unknown key")
        for path, model, found in visit(GovernanceConfig, raw)
        for key in found
        if key not in model.model_fields
    ]


def _rule(rule: Any, depth: Mapping[str, list[str]]) -> SourceRule:
    return SourceRule(rule.source, rule.layers, _patterns(rule.layers, depth), rule.scale, rule.level)


def _patterns(layers: str, depth: Mapping[str, list[str]]) -> tuple[re.Pattern[str], ...]:
    texts = depth[layers[1:]] if layers.startswith(MACRO) else [layers]
    return tuple(re.compile(text) for text in texts)


def digest(value: Any) -> str:
    """Return `sha256:…` of plain values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
