"""A report as parts in order: what the page and the notebook both show."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from detlab.reports import figures
from detlab.reports.facts import ReportedExperiment, ReportedRun, ReportFacts
from detlab.reports.figures import ReportPicture
from detlab.reports.fragments import (
    HubLinks,
    TableCell,
    amount,
    duration,
    grid,
    line_of,
    moment,
    number,
    pairs,
    settings,
    shown,
    words,
)
from detlab.reports.judged_trials import JudgedTrials
from detlab.reports.notes import notes_html
from detlab.reports.things import experiment_body, run_body, seconds_of

_METRICS = 3
"""Metrics of a run in the table of runs."""


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One part: a heading with what is below it.

    Attributes:
        title: Plain text, of people in part: not escaped.
        level: Of the heading, from 1; 0: it has none.
        html: Safe HTML.
        pictures: What stands below the heading.
        source: Python that shows the same as it is then, for a notebook.
        anchor: What links within the report lead to.
    """

    title: str = ""
    level: int = 2
    html: str = ""
    pictures: Sequence[ReportPicture] = ()
    source: str = ""
    anchor: str = ""


def parts_of(facts: ReportFacts, *, jumps: bool = True) -> Iterator[ReportPart]:
    """Yield the parts of a report.

    Args:
        facts: What it shows.
        jumps: Whether rows of its tables lead to parts of it, rather than to pages of the cluster.
    """
    links = HubLinks(facts.address)
    yield ReportPart(line_of(facts.title), 1, _origin(facts, links), anchor="top")
    yield from _notes(facts)
    if facts.experiments:
        yield ReportPart("Experiments", 2, _experiments(facts, None if jumps else links), anchor="experiments")
    if facts.runs:
        yield ReportPart("Runs", 2, _runs(facts, None if jumps else links), anchor="runs")
    for one in facts.experiments:
        title = f"Experiment {one.view.id}: {line_of(one.view.name, 120)}"
        body = experiment_body(one, links, facts.made_at)
        source = f"from detlab import client\n\nclient.get_experiment({one.view.id}).plot()"
        yield ReportPart(title, 2, body, figures.pictures_of_experiment(one), source, f"experiment-{one.view.id}")
    for at, run in enumerate(facts.runs):
        title = f"Run {line_of(run.view.name or run.view.key or run.view.id[:8], 120)}"
        source = f"from detlab import client\n\nclient.get_run({run.view.id!r})"
        body = run_body(run, links, facts.made_at)
        yield ReportPart(title, 2, body, figures.pictures_of_run(run), source, f"run-{at}")


def _origin(facts: ReportFacts, links: HubLinks) -> str:
    counts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((len(facts.experiments), "experiment"), (len(facts.runs), "run"))
        if count
    ]
    cluster, project, where = facts.cluster, facts.project, ""
    if project is not None:
        path = ("workspaces", project.workspace, "projects", project.name)
        where = links.to(f"{project.workspace}/{project.name}", *path)
    rows = [
        ("Made by", f"{shown(facts.maker)}, {moment(facts.made_at)}"),
        ("Project", where),
        ("Has", shown(" and ".join(counts) or "nothing")),
        ("Cluster", f"{links.to(facts.address)} ({shown(cluster.cluster_id)}, detlab {shown(cluster.version)})"),
        ("Made again by", f"<code>{shown(facts.command, 2000)}</code>" if facts.command else ""),
    ]
    said = "".join(f"<li>{shown(one)}</li>" for one in _left_out(facts))
    left = f'<p>What is not here:</p><ul class="left">{said}</ul>' if said else ""
    snapshot = (
        "<p>A snapshot: nothing in it changes any more. Links lead to the pages of the cluster, which show what their"
        " reader may see there today.</p>"
    )
    return pairs(rows) + snapshot + left


def _left_out(facts: ReportFacts) -> list[str]:
    missing = figures.without_plotly() if facts.experiments or facts.runs else ""
    return [*facts.left_out, *([missing] if missing else [])]


def _notes(facts: ReportFacts) -> Iterator[ReportPart]:
    project = facts.project
    about = f"<p>{shown(project.description, 5000)}</p>" if project and project.description else ""
    of_project = about + (notes_html(project.notes) if project else "")
    if facts.notes.strip():
        yield ReportPart("Notes", 2, notes_html(facts.notes), anchor="notes")
    if of_project:
        yield ReportPart("The project", 2, of_project, anchor="project")


def _to(links: HubLinks | None, anchor: str, text: object, *path: object) -> str:
    """Return a link to another part of the report, or to a page of the cluster."""
    return links.to(text, *path) if links else f'<a href="#{html.escape(anchor)}">{shown(text)}</a>'


def _experiments(facts: ReportFacts, links: HubLinks | None) -> str:
    costs = any(one.view.cost is not None for one in facts.experiments)
    columns = ["ID", "Name", "State", "Method", "Best", "Hyperparameters of the best", "Trials", "Owner"]
    columns += ["Started", "Took", *(["Cost"] if costs else [])]
    rows = [_experiment_row(one, facts.made_at, links, costs=costs) for one in facts.experiments]
    return grid(columns, rows, right=("ID", "Best", "Trials", "Took", "Cost"))


def _experiment_row(one: ReportedExperiment, now: float, links: HubLinks | None, *, costs: bool) -> list[TableCell]:
    view = one.view
    best = view.best.value if view.best else None
    told = f"{line_of(view.metric, 30)} {number(best)}" if best is not None else ""
    judged = JudgedTrials(one)
    if judged.several:
        best, told = None, f"{len(judged.front)} on the Pareto front" if judged.front else ""
    took = seconds_of(view, now)
    made = sum(count for state, count in view.trials.items() if state != "RUNNING")
    cost = [amount(view.cost, "" if view.cost is None else f"{view.cost:.2f}")] if costs else []
    return [
        TableCell(_to(links, f"experiment-{view.id}", view.id, "experiments", view.id), str(view.id)),
        words(view.name, 120),
        words(view.state.value),
        words(view.searcher),
        amount(best, line_of(told, 80)),
        words(settings(one.trial.hparams if one.trial and not judged.several else {})),
        amount(made),
        words(view.owner),
        TableCell(moment(view.started_at), str(view.started_at or "")),
        amount(took, duration(took)),
        *cost,
    ]


def _runs(facts: ReportFacts, links: HubLinks | None) -> str:
    columns = ("Run", "Status", "Results", "Parameters", "Group", "Owner", "Started", "Took")
    rows = [_run_row(at, one, facts.made_at, links) for at, one in enumerate(facts.runs)]
    return grid(columns, rows, right=("Took",))


def _run_row(at: int, one: ReportedRun, now: float, links: HubLinks | None) -> list[TableCell]:
    view = one.view
    name = view.name or view.key or view.id[:8]
    took = max(0.0, (view.ended_at or now) - view.started_at) if view.started_at else None
    results = [f"{key} {number(last.value)}" for key, last in list(view.metrics.items())[:_METRICS]]
    return [
        TableCell(_to(links, f"run-{at}", line_of(name, 120), "runs", view.id), line_of(name)),
        words(view.status),
        words(", ".join(results)),
        words(settings(view.config)),
        words(view.group),
        words(view.owner),
        TableCell(moment(view.started_at), str(view.started_at or "")),
        amount(took, duration(took)),
    ]


def headings(parts: Sequence[ReportPart]) -> list[tuple[str, str]]:
    """Return (anchor, title) of the parts that a table of contents has."""
    return [(one.anchor, one.title) for one in parts if one.level == 2 and one.anchor]
