"""The reference page of the experiment config, made from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from detlab.schemas.expconf.blocks import environment, extras, governance, hyperparameters, searchers, stopping, storage
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.scalars import NOTE_IGNORED, NOTE_NEEDED, NOTE_OLD, Block, note

_INTRO = """\
# Experiment config

<!-- Made by `python -m detlab.schemas.publish` from the code; do not edit. -->

An experiment is described by a YAML mapping with the keys of Determined 0.38. The same description for editors is
[experiment-config.schema.json](experiment-config.schema.json).

    det config check search.yaml              # all errors; exit status 0 or 2
    det config check search.yaml --complete   # also what a submission needs
    det config resolve search.yaml            # the full config as JSON

- `null` means "not set" everywhere, except as a hyperparameter, where it is a value.
- YAML is read as YAML 1.2: `1e-4` is a number; `yes`, `no`, `on` and `off` are texts; `010` is ten. A key given
  twice is a mistake. Numbers must be finite.
- **Needed** keys may be absent from a file, because a template can supply them, but not from a submission. `name`,
  `checkpoint_storage` and `reproducibility.experiment_seed` are supplied by the master.
- Deprecated and ignored keys earn a warning. What a valid config asks for and the cluster cannot honour is named when
  the experiment is submitted.

## Merging

A template, and below it what workspace, pool and cluster give, is merged under the config; invariants of config
policies are merged over it by the same rules, as if they were the config and it the template:

- scalars: the config wins; mappings: recursively; lists: the template's entries, then the config's;
- one hyperparameter is never mixed of two, only nested groups recurse;
- `bind_mounts` and `resources.devices`: the config's entries, then those of the template for other container paths;
  `log_policies` and `stopping` likewise by name, `environment.proxy_ports` by port;
- `searcher` and `checkpoint_storage`: from a template of another kind only the shared keys are inherited;
- `source_trial_id`/`source_checkpoint_uuid`, Azure credentials, lengths, `entrypoint`, `bracket_rungs` and `metrics`
  are taken whole;
- an environment variable that both set to the same value stands once.
"""

_AFTER = """\
## Removed

These are refused by name, with the reason:

"""

_POLICIES = (
    "A list. A policy without `pattern` turns the default one of its name off. The defaults only label: "
    + ", ".join(f"{name} (`{pattern}`)" for name, pattern in extras.DEFAULT_LOG_POLICIES)
)

_SECTIONS: tuple[tuple[str, str, tuple[type[Block], ...]], ...] = (
    ("searcher", "One of these, chosen by `name`.", tuple(searchers.BUILT_IN.values())),
    (
        "hyperparameters",
        "A map of names to these, to nested maps of them, or to bare values (constants).",
        (
            hyperparameters.ConstHyperparameter,
            hyperparameters.IntHyperparameter,
            hyperparameters.DoubleHyperparameter,
            hyperparameters.LogHyperparameter,
            hyperparameters.CategoricalHyperparameter,
            hyperparameters.OrdinalHyperparameter,
            hyperparameters.PriorConfig,
        ),
    ),
    (
        "stopping",
        "A list of these, chosen by `name`; each looks at every report of the searcher metric.",
        tuple(stopping.BUILT_IN.values()),
    ),
    (
        "governance",
        "A policy, compiled against the model: `det governance plan` shows what becomes of it.",
        (governance.GovernanceConfig, governance.GovernedSource, governance.GovernanceRule),
    ),
    ("resources", "", (environment.ResourcesConfig,)),
    ("environment", "`gpu` is an old name of `cuda`.", (environment.EnvironmentConfig,)),
    ("checkpoint_storage", "One of these, chosen by `type`.", tuple(storage.MEMBERS.values())),
    ("log_policies", _POLICIES, (extras.LogPolicy,)),
    ("reproducibility", "", (extras.ReproducibilityConfig,)),
    ("retention_policy", "", (extras.RetentionPolicy,)),
    ("profiling", "", (extras.ProfilingConfig,)),
    ("integrations", "", (extras.IntegrationsConfig, extras.WebhooksConfig, extras.PachydermConfig)),
    ("slurm, pbs", "", (extras.SlurmConfig, extras.PbsConfig)),
    ("optimizations", "The whole block is deprecated.", (extras.OptimizationsConfig,)),
)


class _Types:
    """Short names for the types in a JSON Schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.definitions: dict[str, Any] = schema["$defs"]
        self.root = schema

    def of(self, model: type[Block], key: str) -> str:
        home = self.root if model is ExperimentConfig else self.definitions[model.__name__]
        return self.name(home["properties"][key])

    def name(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            return self._reference(schema["$ref"].rpartition("/")[2])
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                names = [self.name(member) for member in schema[choice] if member.get("type") != "null"]
                return " or ".join(dict.fromkeys(name for name in names if name))
        if "enum" in schema:
            return " / ".join(f"`{value}`" for value in schema["enum"])
        if "const" in schema:
            return f"`{schema['const']}`"
        return self._plain(schema)

    def _reference(self, name: str) -> str:
        definition = self.definitions[name]
        if definition.get("type") == "object":
            return "mapping" if name != "Length" else "length"
        return self.name(definition) if name != "Hyperparameter" else "hyperparameter"

    def _plain(self, schema: dict[str, Any]) -> str:
        kind = schema.get("type")
        if kind == "array":
            return f"list of {self.name(schema.get('items', {}))}"
        if kind == "object":
            return "mapping"
        bounds = " and ".join(self._bounds(schema))
        names = {"integer": "int", "number": "float", "string": "text", "boolean": "bool", None: "any value"}
        named = names.get(kind, str(kind)) if not isinstance(kind, list) else "any scalar"
        return f"{named} {bounds}".strip()

    def _bounds(self, schema: dict[str, Any]) -> Iterator[str]:
        for keyword, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤")):
            if keyword in schema:
                value = schema[keyword]
                yield f"{sign} {int(value) if value == int(value) else value}"


def _default(model: type[Block], key: str) -> str:
    field = model.model_fields[key]
    if field.is_required():
        return "**required**"
    if note(field, NOTE_NEEDED):
        return "**needed**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return ""
    if isinstance(value, list) and value and isinstance(value[0], Block):
        return "see below"
    if isinstance(value, Block):
        value = value.model_dump(mode="json", exclude_defaults=True) or {}
        return f"`{json.dumps(value)}`" if value else ""
    return f"`{json.dumps(value)}`"


def _meaning(model: type[Block], key: str) -> str:
    field = model.model_fields[key]
    text = field.description or ""
    if reason := note(field, NOTE_OLD):
        text += f" *Deprecated: {reason}.*"
    if reason := note(field, NOTE_IGNORED):
        text += f" *Ignored: {reason}.*"
    return text.replace("|", "\\|")


def _table(model: type[Block], types: _Types) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    keys = sorted(model.model_fields, key=lambda key: key not in ("name", "type"))  # a stable sort
    for key in keys:
        kind = types.of(model, key).replace("|", "\\|")
        yield f"| `{key}` | {kind} | {_default(model, key).replace('|', chr(92) + '|')} | {_meaning(model, key)} |"
    yield ""


def _section(models: tuple[type[Block], ...], types: _Types, *, named: bool) -> Iterator[str]:
    for model in models:
        if named:
            title = next(
                (str(field.default) for key, field in model.model_fields.items() if key in ("name", "type")),
                model.__name__.removesuffix("Config").lower(),
            )
            yield f"### {title}"
            yield ""
            yield " ".join((model.__doc__ or "").split())
            yield ""
        yield from _table(model, types)


def reference_page(schema: dict[str, Any], *, entries: tuple[type[Block], ...]) -> str:
    """Return the page as Markdown.

    Args:
        schema: The published JSON Schema.
        entries: Models of list entries that get a table of their own.
    """
    types = _Types(schema)
    lines = [_INTRO, "## Top level", "", *_table(ExperimentConfig, types)]
    for title, remark, models in _SECTIONS:
        lines += [f"## {title}", ""]
        if remark:
            lines += [remark, ""]
        lines += _section(models, types, named=len(models) > 1)
    lines += ["## Entries of lists", ""]
    lines += _section(entries, types, named=True)
    lines += [_AFTER.rstrip("\n"), ""]
    lines += [f"- {reason}." for reason in [*searchers.REMOVED.values(), *storage.REMOVED.values()]]
    return "\n".join(lines) + "\n"
