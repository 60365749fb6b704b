"""The part of an experiment, and that of a run: facts, commands, checkpoints, versions, artifacts, pictures, config."""

from __future__ import annotations

import base64
import html
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detlab.reports.facts import MadeThings, ReportedExperiment, ReportedRun, ReportImage
from detlab.reports.fragments import (
    HubLinks,
    TableCell,
    amount,
    block,
    duration,
    folded,
    grid,
    moment,
    number,
    pairs,
    settings,
    shown,
    words,
)
from detlab.reports.judged_trials import JudgedTrials, is_invalid
from detlab.reports.notes import notes_html
from detlab.schemas.expconf.raw.secret_keys import MASK, is_secret_option
from detlab.schemas.wire import ExperimentView, TrialView
from detlab.schemas.wire.storage import size_text
from detlab.viz.data import flatten

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types of pictures that are shown: none of them can hold a script."""
_COMMIT, _BRANCH, _REPOSITORY = "mlflow.source.git.commit", "mlflow.source.git.branch", "mlflow.source.git.repoURL"
_COMMAND, _CHANGED = "detlab.command", "detlab.git.changed"
_RESULTS = 30


def seconds_of(view: ExperimentView, now: float) -> float | None:
    """Return how long an experiment took, or has taken until now, without its pauses."""
    if view.took is not None or view.started_at is None:
        return view.took
    pause = now - view.paused_at if view.paused_at else 0.0
    return max(0.0, now - view.started_at - view.paused_seconds - pause)


def experiment_body(one: ReportedExperiment, links: HubLinks, now: float) -> str:
    """Return what is below the heading of an experiment."""
    view = one.view
    return "".join(
        [
            pairs(_facts_of_experiment(one, links, now)),
            _warned(view),
            notes_html(view.notes or ""),
            _images(one),
            _trials(one, links),
            _checkpoints(one),
            _versions(one, links),
            _artifacts(one, links),
            _commands(_again(one)),
            folded("Config", block(_yaml(without_secrets(view.config)))) if view.config else "",
        ]
    )


def run_body(one: ReportedRun, links: HubLinks, now: float) -> str:
    """Return what is below the heading of a run."""
    view = one.view
    return "".join(
        [
            pairs(_facts_of_run(one, links, now)),
            notes_html(view.notes),
            _results(one),
            _images(one),
            _versions(one, links),
            _artifacts(one, links),
            _commands([f"det run describe {shlex.quote(view.id)}", *_artifact_commands(one)]),
            folded("Parameters", block(_yaml(view.config))) if view.config else "",
        ]
    )


# --- facts


def _facts_of_experiment(one: ReportedExperiment, links: HubLinks, now: float) -> list[tuple[str, str]]:
    view, trial, judged = one.view, one.trial, JudgedTrials(one)
    counts = ", ".join(f"{count} {state.lower()}" for state, count in view.trials.items() if count)
    aim = f"{view.metric}, {'smaller' if view.smaller_is_better else 'greater'} is better"
    best = ""
    if view.best is not None and not judged.several:
        where = links.to(view.best.told, "trials", view.best.trial_id)
        best = f"{shown(view.metric)} {number(view.best.value)} at step {view.best.steps_completed}, {where}"
    point = (
        [f"{name}: {value}" for name, value in flatten(trial.hparams).items()] if trial and not judged.several else []
    )
    return [
        ("Page", links.to(f"experiment {view.id}", "experiments", view.id)),
        ("State", shown(view.state.value) + (f": {shown(view.failure.message)}" if view.failure else "")),
        ("Description", shown(view.description or "")),
        ("Labels", shown(", ".join(view.labels))),
        ("Method", shown(view.searcher if judged.several or not view.metric else f"{view.searcher} for {aim}")),
        ("Best", best),
        *judged.facts(links),
        ("Hyperparameters of the best" if view.best else "Hyperparameters of the first trial", _lines(point)),
        ("Trials", shown(counts)),
        ("Owner", shown(view.owner)),
        ("Project", shown("/".join(part for part in (view.workspace, view.project) if part))),
        ("Started", moment(view.started_at)),
        ("Ended", moment(view.ended_at)),
        ("Took", duration(seconds_of(view, now))),
        ("Cost so far", "" if view.cost is None else shown(f"{view.cost:.2f} {view.currency}".rstrip())),
        (
            "Fork of",
            links.to(f"experiment {view.forked_from}", "experiments", view.forked_from) if view.forked_from else "",
        ),
        ("Code", _code(view.bundle)),
    ]


def _facts_of_run(one: ReportedRun, links: HubLinks, now: float) -> list[tuple[str, str]]:
    view, tags = one.view, one.view.tags
    took = max(0.0, (view.ended_at or now) - view.started_at) if view.started_at else None
    changed = tags.get(_CHANGED, "")
    commit = tags.get(_COMMIT, "")
    if commit and changed not in {"", "0"}:
        commit += f", with {changed} changed files"
    return [
        ("Page", links.to(f"run {view.id}", "runs", view.id)),
        ("Status", shown(view.status + (f": {view.end_reason}" if view.end_reason else ""))),
        ("Group", shown(view.group)),
        ("Type", shown(view.job_type)),
        ("Owner", shown(view.owner)),
        ("Project", shown("/".join(part for part in (view.workspace, view.project) if part))),
        ("Started", moment(view.started_at)),
        ("Ended", moment(view.ended_at)),
        ("Took", duration(took)),
        ("Commit", _code(commit)),
        ("Branch", shown(tags.get(_BRANCH, ""))),
        ("Repository", shown(tags.get(_REPOSITORY, ""))),
        ("Started by", _code(tags.get(_COMMAND, ""))),
    ]


def _code(text: str | None) -> str:
    return f"<code>{shown(text)}</code>" if text else ""


def _lines(lines: Sequence[str]) -> str:
    return "<br>".join(map(shown, lines[:50]))


def _warned(view: ExperimentView) -> str:
    said = "".join(f"<li>{shown(one)}</li>" for one in view.warnings[:20])
    return f'<ul class="warned">{said}</ul>' if said else ""


def _yaml(values: object) -> str:
    from detlab.schemas.expconf.raw.dumping import dump_yaml

    return dump_yaml(values)


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config in which also variables are masked whose names are those of secrets.

    On the page of an experiment who may read it sees them; a report goes further.
    """
    found = dict(config)
    environment = found.get("environment")
    if isinstance(environment, Mapping) and "environment_variables" in environment:
        variables = _masked(environment["environment_variables"])
        found["environment"] = {**environment, "environment_variables": variables}
    return found


def _masked(variables: Any) -> Any:
    if isinstance(variables, Mapping):
        return {name: MASK if _secret(name, value) else _masked(value) for name, value in variables.items()}
    if isinstance(variables, list):
        return [_masked(one) for one in variables]
    name, equals, _ = str(variables).partition("=")
    return f"{name}={MASK}" if equals and is_secret_option(name) else variables


def _secret(name: object, value: object) -> bool:
    return isinstance(value, str) and is_secret_option(name)


def _results(one: ReportedRun) -> str:
    view = one.view
    found = {**{key: number(last.value) for key, last in view.metrics.items()}, **view.summary}
    rows = [(words(key), words(value)) for key, value in list(found.items())[:_RESULTS]]
    left = f"<p>and {len(found) - _RESULTS} more</p>" if len(found) > _RESULTS else ""
    return grid(("Result", "Value"), rows) + left if rows else ""


# --- what was made


def _trials(one: ReportedExperiment, links: HubLinks) -> str:
    judged = JudgedTrials(one)
    known = {view.id: view for view in [*judged.trials, *(one.curves.trials if one.curves else ())]}
    trials = sorted(known.values(), key=lambda view: view.index)
    rows = [
        (
            TableCell(links.to(view.id, "trials", view.id), str(view.id)),
            words(_state(view), 120),
            *(cell(view) for _, cell, _ in judged.columns),
            *(() if judged.several else (amount(view.best_validation),)),
            amount(view.steps_completed),
            words(settings(view.hparams)),
            amount(view.worked, duration(view.worked)),
        )
        for view in trials
    ]
    if len(rows) < 2:
        return ""
    made = sum(count for state, count in one.view.trials.items() if state != "RUNNING")
    some = "the best, those on the front, and newest" if judged.several else "the best and newest"
    title = f"Trials: {some} {len(rows)} of {made}" if made > len(rows) else "Trials"
    best = () if judged.several else ("Best",)
    columns = ("Trial", "State", *(name for name, _, _ in judged.columns), *best, "Steps", "Hyperparameters", "Took")
    numbers = [name for name, _, is_number in judged.columns if is_number]
    return folded(title, grid(columns, rows, right=("Trial", *numbers, *best, "Steps", "Took")))


def _state(view: TrialView) -> str:
    said = "invalid hyperparameters" if is_invalid(view) else view.why_stopped
    return view.state.value + (f" ({said})" if said else "")


def _checkpoints(one: ReportedExperiment) -> str:
    best = one.view.best.checkpoint if one.view.best else None
    rows = [
        (
            TableCell(_code(view.uuid) + (" (best)" if view.uuid == best else ""), view.uuid),
            amount(view.steps_completed),
            amount(view.validation),
            amount(view.size, size_text(view.size)),
            TableCell(_code(view.manifest_digest), view.manifest_digest),
            words(view.state if view.state != "COMPLETED" else ""),
        )
        for view in one.checkpoints
    ]
    trial = one.trial.id if one.trial else 0
    title = f"<h3>Checkpoints of trial {trial}</h3>"
    columns = ("Checkpoint", "Step", "Validation", "Size", "Digest of its manifest", "Deleted")
    return title + grid(columns, rows, right=("Step", "Validation", "Size")) if rows else ""


def _versions(one: MadeThings, links: HubLinks) -> str:
    rows = [
        (
            TableCell(
                links.to(
                    f"{view.model}@{view.version}",
                    "models",
                    view.model_reference or view.model,
                    "versions",
                    view.version,
                ),
                f"{view.model}@{view.version}",
            ),
            words(", ".join(view.labels)),
            words(view.semver or ""),
            TableCell(_code(view.checkpoint), view.checkpoint),
            TableCell(_code(view.manifest_digest), view.manifest_digest),
        )
        for view in one.versions
    ]
    columns = ("Version", "Labels", "Semantic version", "Checkpoint", "Digest of its manifest")
    return "<h3>Registered models</h3>" + grid(columns, rows) if rows else ""


def _artifacts(one: MadeThings, links: HubLinks) -> str:
    rows = []
    for link in one.artifacts:
        view = link.version
        named = view.artifact_reference or view.artifact
        page = links.to(f"{named}:v{view.version}", "artifacts", named, "versions", view.version)
        made = "made" if link.role == "logged" else "used"
        digest = TableCell(_code(view.digest), view.digest)
        rows.append(
            (words(made), TableCell(page, named), words(view.kind), amount(view.size, size_text(view.size)), digest)
        )
    columns = ("", "Artifact", "Type", "Size", "Digest")
    return "<h3>Artifacts</h3>" + grid(columns, rows, right=("Size",)) if rows else ""


def _images(one: MadeThings) -> str:
    shown_ones = [image for image in one.images if image.view.media_type in PICTURES]
    figures = "".join(_figure(image) for image in shown_ones)
    left = one.media_left_out + len(one.images) - len(shown_ones)
    more = f"<p>{left:,} more logged object{'' if left == 1 else 's'} on its page.</p>" if left else ""
    return (f'<div class="media">{figures}</div>' if figures else "") + more


def _figure(image: ReportImage) -> str:
    view = image.view
    told = f"{view.key}, step {view.step}" + (f": {view.caption}" if view.caption else "")
    data = base64.b64encode(image.data).decode()
    source = f"data:{html.escape(view.media_type)};base64,{data}"
    return f'<figure><img alt="{shown(told)}" src="{source}"><figcaption>{shown(told)}</figcaption></figure>'


# --- commands


def _again(one: ReportedExperiment) -> Iterable[str]:
    view = one.view
    yield f"det experiment fork {view.id}"
    yield f"det experiment download-model-def {view.id}"
    if view.best is not None and view.best.checkpoint:
        yield f"det checkpoint download {shlex.quote(view.best.checkpoint)}"
    for version in one.versions[:3]:
        reference = shlex.quote(f"{version.model_reference or version.model}@{version.version}")
        yield f"det model download {reference}"
    yield from _artifact_commands(one)


def _artifact_commands(one: MadeThings) -> Iterable[str]:
    named = dict.fromkeys(
        f"{link.version.artifact_reference or link.version.artifact}:v{link.version.version}" for link in one.artifacts
    )
    for reference in list(named)[:5]:
        yield f"det artifact download {shlex.quote(reference)}"


def _commands(lines: Iterable[str]) -> str:
    told: Sequence[str] = list(lines)
    return "<h3>Commands</h3>" + block("\n".join(told)) if told else ""
