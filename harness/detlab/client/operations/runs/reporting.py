"""The operation that gathers what a report shows: it reads alone, and only what its maker may read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from detlab.client.operations import experiments as operations
from detlab.client.operations import projects, registry
from detlab.client.operations.artifacts import artifacts
from detlab.client.operations.runs import media, runs
from detlab.client.transport.calls import Flow
from detlab.client.transport.discovery import is_loopback
from detlab.errors import ConfigError, NotFound, Problem
from detlab.reports.facts import MOST_THINGS, ReportedExperiment, ReportedRun, ReportFacts, ReportImage
from detlab.reports.figures import MOST_PANELS, MOST_POINTS, MOST_TRIALS, drawn_metrics
from detlab.reports.judged_trials import MOST_JUDGED
from detlab.reports.things import PICTURES
from detlab.schemas.wire import CheckpointView, ClusterView, CurvesView, ExperimentView
from detlab.schemas.wire.media import MediaKeyView, MediaView
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.registry import VersionView
from detlab.schemas.wire.runs import RunCurve
from detlab.viz import fronts
from detlab.viz.data import curves_wanted
from detlab.viz.seeds import seeds_of

MOST_VERSIONS = 1000
"""Versions of models that are looked through, the newest."""
MOST_CHECKPOINTS = 10
"""Of a trial, the newest."""
MOST_IMAGES, MOST_IMAGE_BYTES, MOST_BYTES = 4, 1 << 20, 16 << 20
"""Pictures of a trial or a run, bytes of one, and bytes of all in a report."""
_PERSONAL = "Uncategorized"
_CHECKPOINTS_READ, _MEDIA_READ = 1000, 200
T = TypeVar("T")


@dataclass(frozen=True)
class ReportRequest:
    """What a report is to be of.

    Attributes:
        project: `NAME` of one's personal workspace, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`; empty: of none.
        experiments: Ids of experiments beside.
        runs: Runs beside, by id or by key.
        filter: Only experiments that fulfil it: of the project, or of all; then no runs but those that are named.
        title: Its title; empty: the project's name, or a plain word.
        notes: Markdown of who makes it.
        limit: Experiments of the project or the filter, and runs: the newest.
    """

    project: str = ""
    experiments: Sequence[int] = ()
    runs: Sequence[str] = ()
    filter: str = ""
    title: str = ""
    notes: str = ""
    limit: int = MOST_THINGS

    def check(self) -> None:
        """Check that it says something, and not too much.

        Raises:
            ConfigError: It names nothing, or too much.
        """
        problems = []
        if not (self.project or self.experiments or self.runs or self.filter):
            problems.append(Problem("report", "name a project, experiments, runs or a filter"))
        for name, given in (("experiments", self.experiments), ("runs", self.runs)):
            if len(given) > MOST_THINGS:
                problems.append(Problem(name, f"a report has {MOST_THINGS} at most, not {len(given)}"))
        if not 1 <= self.limit <= MOST_THINGS:
            problems.append(Problem("limit", f"must be 1 to {MOST_THINGS}, not {self.limit}"))
        if problems:
            raise ConfigError(problems, "the report cannot be made")

    def command(self, path: str, notes_file: str = "") -> str:
        """Return the command that makes the report again.

        Args:
            path: Of the report.
            notes_file: Of the notes, where they come from one.
        """
        words = ["det", "report"]
        options = [("--project", self.project), ("--filter", self.filter)]
        options += [("--experiment", str(one)) for one in self.experiments] + [("--run", one) for one in self.runs]
        options += [("--title", self.title), ("--notes", notes_file), ("-o", path)]
        options += [("--limit", str(self.limit))] if self.limit != MOST_THINGS else []
        return shlex.join([*words, *(word for name, value in options if value for word in (name, value))])


def report_facts(wanted: ReportRequest, *, address: str, now: float, command: str) -> Flow[ReportFacts]:
    """Gather a report.

    Args:
        wanted: What it is of.
        address: By which the service was reached.
        now: Seconds since the epoch.
        command: What makes it again.

    Raises:
        NotFound: Something that was named is not there, or not the caller's to see.
        ConfigError: Nothing is named, or a filter cannot be read.
    """
    wanted.check()
    me = yield from operations.whoami()
    cluster = yield from operations.cluster()
    project = yield from _project(wanted.project)
    chosen, more = yield from _experiments_of(wanted, project)
    named, more_runs = yield from _runs_of(wanted, project)
    versions = (yield from registry.search(None, limit=MOST_VERSIONS)) if chosen or named else []
    room = _Room(MOST_BYTES)
    cuts = (("experiments", more), ("runs", more_runs))
    told = [f"Only the newest {wanted.limit} {what} are here." for what, cut in cuts if cut]
    experiments, gone = yield from _all(chosen, lambda one: _experiment(one, versions, room), set(wanted.experiments))
    found_runs, lost = yield from _all(named, lambda one: _run(one, versions, room), set(wanted.runs))
    if gone or lost:
        told.append(f"{gone + lost} of them were deleted, or are no longer shared, while the report was made.")
    if len(versions) == MOST_VERSIONS:
        told.append(f"Versions of models are looked for among the newest {MOST_VERSIONS:,}.")
    return ReportFacts(
        title=wanted.title or (project.name if project else "Report"),
        maker=me.name,
        made_at=now,
        cluster=cluster,
        address=_shared_address(cluster, address),
        command=command,
        notes=wanted.notes,
        project=project,
        experiments=experiments,
        runs=list({one.view.id: one for one in found_runs}.values()),
        left_out=told,
    )


def _shared_address(cluster: ClusterView, address: str) -> str:
    """Return the address that others reach the service by: its public one, unless nobody has set that."""
    return address if is_loopback(urlsplit(cluster.url).hostname or "localhost") else cluster.url


def _all(names: Sequence[Any], flow: Callable[[Any], Flow[T]], needed: Collection[Any]) -> Flow[tuple[list[T], int]]:
    """Gather things one by one; one that is gone by now is counted, unless it was asked for by its name."""
    found: list[T] = []
    gone = 0
    for name in names:
        try:
            found.append((yield from flow(name)))
        except NotFound:
            if name in needed:
                raise
            gone += 1
    return found, gone


# --- what there is


def _project(text: str) -> Flow[ProjectView | None]:
    if not text:
        return None
    workspace, _, name = text.rpartition("/")
    return (yield from projects.project(workspace or _PERSONAL, name))


def _experiments_of(wanted: ReportRequest, project: ProjectView | None) -> Flow[tuple[list[int], bool]]:
    ids = list(dict.fromkeys(wanted.experiments))
    if project is None and not wanted.filter:
        return ids, False
    where: dict[str, Any] = {} if project is None else {"workspace": project.workspace_id, "project": project.id}
    views = yield from operations.experiments(limit=wanted.limit + 1, archived="no", filter=wanted.filter, **where)
    return _together(ids, [view.id for view in views], wanted.limit)


def _runs_of(wanted: ReportRequest, project: ProjectView | None) -> Flow[tuple[list[str], bool]]:
    ids = list(dict.fromkeys(wanted.runs))
    if project is None or wanted.filter:
        return ids, False
    views = yield from runs.runs(f"{project.workspace}/{project.name}", limit=wanted.limit + 1)
    return _together(ids, [view.id for view in views], wanted.limit)


def _together(named: Sequence[T], listed: Sequence[T], limit: int) -> tuple[list[T], bool]:
    """Return what was named and the newest of a list, and whether more of the list is left out."""
    found = list(dict.fromkeys([*named, *listed[:limit]]))
    return found[:MOST_THINGS], len(listed) > limit or len(found) > MOST_THINGS


# --- one of them


def _experiment(experiment_id: int, versions: Sequence[VersionView], room: _Room) -> Flow[ReportedExperiment]:
    view = yield from operations.experiment(experiment_id)
    which = curves_wanted(*drawn_metrics(view), group="validation", max_trials=MOST_TRIALS, max_points=MOST_POINTS)
    curves = yield from operations.curves(experiment_id, **which)
    of_it = [one for one in versions if one.lineage.experiment_id == experiment_id]
    results = yield from _results(view)
    found = ReportedExperiment(view=view, curves=curves, results=results, versions=of_it)
    trial = found.trial
    if trial is None:
        return found
    path = f"trials/{trial.id}/checkpoints"
    saved: list[CheckpointView] = yield from operations.pages(path, CheckpointView, "after", _CHECKPOINTS_READ)
    best = [one for one in saved[:-MOST_CHECKPOINTS] if view.best and one.uuid == view.best.checkpoint]
    linked = yield from _or(artifacts.artifacts_of_run(f"{trial.id:032x}"), [])
    listing = media.list_media(trial.id, kind="image", at=2**53, limit=_MEDIA_READ)
    images, left = yield from _images(f"trials/{trial.id}", listing, room)
    newest = [*best, *saved[-MOST_CHECKPOINTS:]]
    return replace(found, checkpoints=newest, artifacts=linked, images=images, media_left_out=left)


def _results(view: ExperimentView) -> Flow[CurvesView | None]:
    """Return by what a search compares its trials, if that is more than one number of one trial."""
    config = view.config or {}
    names = fronts.metric_names(config, None)
    if len(names) < 2 and not fronts.constraints(config) and seeds_of(config) < 2:
        return None
    which = fronts.wanted(config, names or [view.metric], max_trials=MOST_JUDGED)
    return (yield from operations.curves(view.id, **which))


def _run(run_id: str, versions: Sequence[VersionView], room: _Room) -> Flow[ReportedRun]:
    view = yield from runs.run(run_id)
    names = list(view.metrics)[:MOST_PANELS]
    curves: list[RunCurve] = (yield from runs.run_curves(view.id, names, MOST_POINTS)) if names else []
    linked = yield from _or(artifacts.artifacts_of_run(view.id), [])
    listing = media.list_run_media(view.id, kind="image", at=2**53, limit=_MEDIA_READ)
    images, left = yield from _images(f"runs/{quote(view.id, safe='')}", listing, room)
    of_it = [one for one in versions if one.lineage.tracked_run == view.id]
    return ReportedRun(view=view, curves=curves, versions=of_it, artifacts=linked, images=images, media_left_out=left)


class _Room:
    """How many bytes of pictures a report may still take."""

    def __init__(self, left: int) -> None:
        self.left = left

    def takes(self, view: MediaView) -> bool:
        if view.media_type not in PICTURES or not 0 < view.size <= min(MOST_IMAGE_BYTES, self.left):
            return False
        self.left -= view.size
        return True


def _images(path: str, listing: Flow[list[MediaView]], room: _Room) -> Flow[tuple[list[ReportImage], int]]:
    """Fetch the newest pictures; return them, and how many objects there are beside."""
    keys: list[MediaKeyView] = yield from _or(operations.pages(f"{path}/media/keys", MediaKeyView, "skip", None), [])
    count = sum(one.count for one in keys)
    listed = (yield from _or(listing, [])) if any(one.kind == "image" for one in keys) else []
    found: list[ReportImage] = []
    for view in sorted(listed, key=lambda one: (-one.step, one.key, one.place)):
        if len(found) == MOST_IMAGES:
            break
        if room.takes(view):
            data: bytes | None = yield from _or(media.media_bytes(view), None)
            found += [ReportImage(view, data)] if data else []
    return found, max(0, count - len(found))


def _or(flow: Flow[T], otherwise: T) -> Flow[T]:
    """Return what a flow gives, or something else where what it asks for is not there."""
    try:
        return (yield from flow)
    except NotFound:
        return otherwise
