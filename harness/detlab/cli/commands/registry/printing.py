"""Tables and facts of models and versions, names at the Tab key, and words that become metadata."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from detlab.cli.invocation import Invocation
from detlab.cli.output.printing import clean, facts, moment, say, settings, size, table, wants_csv
from detlab.client.registry.facts import VersionFacts, is_evaluation
from detlab.schemas.wire.governance.evidence import SourceSummary
from detlab.schemas.wire.registry import (
    Comparison,
    Difference,
    LabelMove,
    LineageGraph,
    ModelView,
    VersionView,
    untwinned,
)

_log = logging.getLogger(__name__)
COMPLETION_SECONDS = 2.0
SHOWN_METRICS = 4
"""Of a version, in a table."""


# --- arguments


class ModelName(click.types.StringParamType):
    """A model's name or id, and a version after `@` where one is meant; Tab completes the existing names."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like that; none if no cluster answers at once."""
        from detlab.client.client import Client
        from detlab.client.transport.calls import Retries

        invocation = ctx.find_object(Invocation) or Invocation()
        quick = Retries(attempts=0, refused=0)
        try:
            with Client(invocation.master, timeout=COMPLETION_SECONDS, backoff=quick) as client:
                found = [model.view for model in client.list_models()]
        except Exception:  # whatever is wrong, a Tab key is no place to say it: a traceback would end up in the prompt
            _log.debug("no models to complete", exc_info=True)
            return []
        names = [(one.reference or one.name, one.description) for one in found]
        return [CompletionItem(name, help=clean(text)) for name, text in names if name.startswith(incomplete)]


def model_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument MODEL."""
    return click.argument("model", metavar="MODEL", type=ModelName())(function)


def version_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument MODEL[@VERSION]: a number, a semantic version, a label; without, the newest."""
    return click.argument("reference", metavar="MODEL[@VERSION]", type=ModelName())(function)


force_option = click.option("--force", is_flag=True, help="Also if labels point at it.")


def metadata_of(words: Sequence[str]) -> dict[str, Any]:
    """Return metadata from KEY=VALUE words; a value is JSON, or else a text."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"write metadata as KEY=VALUE, not {clean(word)!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def text_of(value: str | None) -> str | None:
    """Return a text; `-` is standard input."""
    return sys.stdin.read() if value == "-" else value


# --- tables


def moving_text(moving: dict[str, int]) -> str:
    """Return labels with their versions: `production → 3`."""
    return ", ".join(f"{label} → {version}" for label, version in moving.items())


def print_models(found: Sequence[ModelView], *, filtered: bool = False) -> None:
    """Print a table of models; of none, what to do."""
    if not found and not wants_csv():
        say("No models match." if filtered else "No models yet. Try: det model create NAME")
        return
    rows = [
        (
            view.id,
            view.name,
            view.owner,
            view.versions,
            moving_text(view.moving),
            ", ".join(view.labels),
            moment(view.updated_at),
            view.description,
        )
        for view in found
    ]
    columns = ("ID", "Name", "Owner", "Versions", "Version labels", "Labels", "Changed", "Description")
    table(columns, rows, right=("ID", "Versions"))


def print_model(view: ModelView) -> None:
    """Print one model."""
    facts(
        [
            ("model", f"{view.name} (id {view.id})"),
            ("owner", view.owner),
            ("description", view.description),
            ("labels", ", ".join(view.labels)),
            ("versions", str(view.versions)),
            ("version labels", moving_text(view.moving)),
            ("archived", "yes" if view.archived else ""),
            ("created", moment(view.created_at)),
            ("changed", moment(view.updated_at)),
        ]
    )
    _print_metadata(view.metadata)
    _print_notes(view.notes)


def _print_metadata(metadata: dict[str, Any]) -> None:
    for name, value in sorted(metadata.items()):
        say(f"  {clean(name)} = {clean(value)}")


def _print_notes(notes: str) -> None:
    if notes:
        say()
        say(clean(notes, lines=True))


def metrics_text(view: VersionView) -> str:
    """Return the metrics of a version that say most: the search's own first, then others of the validation."""
    found = view.lineage.metrics
    names = [name for name in (view.lineage.metric,) if name in found]
    names += [name for name in found if "." not in name and name not in names]
    return settings({name: found[name] for name in names[:SHOWN_METRICS]})


def print_versions(found: Sequence[VersionView]) -> None:
    """Print a table of a model's versions, in CSV with their checkpoints and formats. Of none, what that means."""
    if not found and not wants_csv():
        say("No versions yet. Try: det model register-version --help")
        return
    _table_of_versions(found, (*_OF_MODEL[:3], _METRICS, *_shown(_OF_MODEL[3:])))


def print_found(found: Sequence[VersionView], metric: str = "") -> None:
    """Print versions of several models, best first by a metric if one is named; of none, that nothing matches.

    On a terminal they are named as `det` takes them, MODEL and VERSION; CSV has their checkpoints and formats, too.
    """
    if not found and not wants_csv():
        say(clean(f"No version that matches has the metric {metric}.") if metric else "No version matches.")
        return
    model: _Column = ("Model", lambda view: view.model_reference or view.model)
    by: _Column = (clean(metric), lambda view: view.lineage.metrics.get(metric)) if metric else _METRICS
    _table_of_versions(found, (model, _OF_MODEL[0], by, *_shown(_OF_MODEL[1:])), right=(by[0],) if metric else ())


_Column = tuple[str, Callable[[VersionView], Any]]
_METRICS: _Column = ("Metrics", metrics_text)
_OF_MODEL: tuple[_Column, ...] = (
    ("Version", lambda view: view.version),
    ("Semver", lambda view: view.semver),
    ("Labels", lambda view: ", ".join(view.labels)),
    ("Experiment", lambda view: view.lineage.experiment_id),
    ("Step", lambda view: view.lineage.steps_completed),
    ("Checkpoint", lambda view: view.checkpoint),
    ("Format", lambda view: view.format),
    ("Registered", lambda view: moment(view.created_at)),
    ("By", lambda view: view.owner),
)


def _shown(columns: Sequence[_Column]) -> Sequence[_Column]:
    """Return the columns for a terminal, which has no room for ids of checkpoints; `det model describe` has them."""
    return columns if wants_csv() else [one for one in columns if one[0] not in {"Checkpoint", "Format"}]


def _table_of_versions(found: Sequence[VersionView], columns: Sequence[_Column], right: Sequence[str] = ()) -> None:
    rows = [[value(view) for _, value in columns] for view in found]
    table([name for name, _ in columns], rows, right=("Version", "Experiment", "Step", *right))


def _source(source: SourceSummary) -> str:
    closed = "" if source.reached else ", seen, but closed to all layers"
    level = f", {source.level}" if source.level else ""
    return f"{source.name}: {source.samples} samples, {source.license}{level}{closed}"


def print_version(view: VersionView) -> None:
    """Print one version with its lineage."""
    lineage = view.lineage
    facts(
        [
            ("version", f"{view.model_reference or view.model}@{view.version}"),
            ("semantic version", view.semver),
            ("labels", ", ".join(view.labels)),
            ("name", view.name),
            ("comment", view.comment),
            ("checkpoint", f"{view.checkpoint} ({view.checkpoint_state}, {size(view.size)}, {view.format})"),
            ("experiment", f"{lineage.experiment_id} ({lineage.experiment_name})"),
            ("trial", f"{lineage.trial_id}, run {lineage.run}, step {lineage.steps_completed}"),
            ("hyperparameters", settings(lineage.hyperparameters, most=400)),
            ("code", lineage.bundle_digest),
            ("data", settings(lineage.data, most=400)),
            ("trained on", "; ".join(_source(one) for one in lineage.governed.sources) if lineage.governed else ""),
            ("withdrawn", "; ".join(view.withdrawn)),
            ("starts from", ", ".join(lineage.parents)),
            ("packages", str(len(lineage.environment.keys() - {"python", "platform"})) if lineage.environment else ""),
            ("registered", moment(view.created_at)),
            ("by", view.owner),
        ]
    )
    evaluations = VersionFacts(view).evaluations
    _print_metadata({key: value for key, value in view.metadata.items() if not is_evaluation(key)})
    names = untwinned(sorted(lineage.metrics))
    if names:
        table(("Metric", "Value"), [(name, lineage.metrics[name]) for name in names], right=("Value",))
    if evaluations:
        rows = [(trial, one.get("name"), settings(one.get("metrics") or {})) for trial, one in evaluations.items()]
        table(("Evaluated by trial", "Name", "Metrics"), rows, right=("Evaluated by trial",))
    _print_notes(view.notes)


def print_moves(found: Sequence[LabelMove]) -> None:
    """Print the history of labels."""
    rows = [(moment(one.at), one.label, one.from_version, one.to_version, one.by, one.reason) for one in found]
    table(("When", "Label", "From", "To", "By", "Why"), rows, right=("From", "To"))


def print_comparison(found: Comparison) -> None:
    """Print versions side by side: what they have in common is left out, metrics excepted."""
    names = [str(view.version) for view in found.versions]
    if len(set(names)) == 1:
        say(f"There is nothing to compare: this is version {names[0]} of {clean(found.versions[0].model)} alone.")
        return
    say(f"{clean(found.versions[0].model)}: versions {', '.join(names)}")
    metrics = set(untwinned([row.name for row in found.metrics]))
    for title, rows, always in (
        ("Metric", [row for row in found.metrics if row.name in metrics], True),
        ("Hyperparameter", found.hyperparameters, False),
        ("Config", found.config, False),
        ("Package", found.environment, False),
    ):
        _print_differences(title, rows, names, always=always)
    if found.code:
        say()
        table(("Code", *names), [(one.path, *map(_digest, one.digests)) for one in found.code])
    for one in found.code:
        if one.diff:
            say()
            say(clean(one.diff, lines=True).rstrip())


def _print_differences(title: str, rows: Sequence[Difference], names: Sequence[str], *, always: bool) -> None:
    kept = [row for row in rows if always or not row.same]
    if kept:
        say()
        table((title, *names), [(row.name, *row.values) for row in kept], right=names)


def _digest(digest: str | None) -> str:
    return "" if digest is None else digest.partition(":")[2][:12]


def print_graph(found: LineageGraph) -> None:
    """Print a lineage graph as a tree; what is there already is not printed again."""
    nodes = {node.id: node for node in found.nodes}
    below: dict[str, list[tuple[str, str]]] = {}
    for edge in found.edges:
        below.setdefault(edge.source, []).append((edge.label, edge.target))
    seen: set[str] = set()
    waiting = [(0, "", found.nodes[0].id)] if found.nodes else []
    while waiting:
        depth, label, key = waiting.pop()
        node = nodes[key]
        detail = f" ({node.detail})" if node.detail else ""
        say(f"{'  ' * depth}{clean(f'{label} ' if label else '')}{clean(node.label)}{clean(detail)}")
        if key not in seen:
            seen.add(key)
            waiting += [(depth + 1, edge, target) for edge, target in reversed(below.get(key, []))]
