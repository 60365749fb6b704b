"""Operations on experiments, trials and checkpoints, on users and the cluster as a whole."""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from detlab.client.ordering import known_limit, known_state
from detlab.client.transport.calls import Call, Flow, Progress, field_of, model, page_of, raw, valid_request
from detlab.errors import Conflict
from detlab.schemas.taskwire import CodeFile, CodeList
from detlab.schemas.wire import (
    Archived,
    CheckpointView,
    ClusterView,
    CreateExperiment,
    CreateExperimentReply,
    CurvesView,
    ExperimentState,
    ExperimentView,
    GrantKind,
    GrantRequest,
    GrantView,
    LogLine,
    SeriesView,
    TrialView,
    UserView,
)
from detlab.schemas.wire.storage import DeletionReply

if TYPE_CHECKING:
    from detlab.client.bundling.bundle import Bundle

T = TypeVar("T", TrialView, CheckpointView)
PAGE = 200
Action = Literal["pause", "activate", "cancel", "kill"]


_grants = field_of("items", list[GrantView])


def one(call: Call) -> Flow[Any]:
    """Send a single call and return its result."""
    return (yield call)


# --- cluster and users ------------------------------------------------------------------------------------


def whoami() -> Flow[UserView]:
    """Fetch the user that the token belongs to."""
    return one(Call("GET", "me", parse=model(UserView)))


def cluster() -> Flow[ClusterView]:
    """Fetch the current state of the cluster."""
    return one(Call("GET", "cluster", parse=model(ClusterView)))


# --- experiments ------------------------------------------------------------------------------------------


def new_key() -> str:
    """Return an idempotency key for one submit, however often it is sent."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Submission:
    """What to submit.

    Attributes:
        config: The experiment config as a mapping, or its YAML text.
        bundle: The code, or None for an empty context directory.
        code: Digest of code that the master has, instead of a bundle.
        activate: Start it now; else it is made paused.
        dry_run: Only validate it; no experiment is created.
        key: Requests of one user with the same key create one experiment.
        forked_from: The experiment as whose copy the config began.
        source: Provenance for people (notebook path, cell id, line maps).
        progress: Called with (bytes sent, bytes in all) while the bundle is uploaded.
        template: A template of the master; None: the default one of the workspace; empty: none.
    """

    config: Mapping[str, Any] | str
    bundle: Bundle | None = None
    code: str | None = None
    activate: bool = True
    dry_run: bool = False
    key: str = field(default_factory=new_key)
    source: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None
    forked_from: int | None = None
    template: str | None = None

    def request(self) -> CreateExperiment:
        """Return the body of the POST."""
        with valid_request():
            return CreateExperiment(
                config=None if isinstance(self.config, str) else dict(self.config),
                config_yaml=self.config if isinstance(self.config, str) else None,
                bundle=self.bundle.digest if self.bundle else self.code,
                idempotency_key=self.key,
                activate=self.activate,
                dry_run=self.dry_run,
                source=dict(self.source),
                forked_from=self.forked_from,
                template=self.template,
            )


def upload(bundle: Bundle, progress: Progress | None = None) -> Flow[bool]:
    """Send a bundle unless the master has it from this user; return whether it was sent."""
    path = f"bundles/{quote(bundle.digest, safe=':')}"
    status = yield Call("HEAD", path, accept=frozenset({401, 403, 404}))
    if status in {401, 403}:
        yield Call("PUT", path, content=b"")  # refused too, but in words: the answer to a HEAD has no body
    if status != 404:
        return False
    yield Call("PUT", path, content=bundle.data, progress=progress)
    return True


def submit(submission: Submission) -> Flow[CreateExperimentReply]:
    """Upload the code if the master lacks it, then submit; repeating this creates nothing twice.

    A dry run uploads too, because the master checks that the entrypoint is in the code.
    """
    if submission.bundle is not None:
        yield from upload(submission.bundle, submission.progress)
    reply: CreateExperimentReply = yield Call(
        "POST", "experiments", json=submission.request(), parse=model(CreateExperimentReply)
    )
    if reply.experiment is not None:
        _SUBMITTED.append(reply.experiment.id)
    return reply


_SUBMITTED: deque[int] = deque(maxlen=1)


def submitted_last() -> int | None:
    """Return the experiment that this process has submitted last, by whatever way; None: none yet."""
    return _SUBMITTED[-1] if _SUBMITTED else None


def experiment(experiment_id: int) -> Flow[ExperimentView]:
    """Fetch one experiment, with its resolved config."""
    return one(Call("GET", f"experiments/{int(experiment_id)}", parse=model(ExperimentView)))


def experiments(
    *,
    limit: int | None = None,
    state: str | None = None,
    owner: str | None = None,
    name: str | None = None,
    archived: Archived | None = None,
    filter: str = "",  # noqa: A002  (its name in requests)
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    workspace: str | int | None = None,
    project: str | int | None = None,
) -> Flow[list[ExperimentView]]:
    """List experiments, newest first or in an order, fetching as many pages as needed; archived ones if asked for."""
    filters: dict[str, str | int | None] = {"owner": owner, "name": name, "archived": archived}
    filters |= {"state": known_state(state, ExperimentState), "workspace": workspace, "project": project}
    filters["filter"] = filter or None
    filters |= {key: json.dumps(list(given)) for key, given in (("sort", sort), ("column", columns)) if given}
    return pages("experiments", ExperimentView, "before", limit, filters)


def act(experiment_id: int, action: Action) -> Flow[ExperimentView]:
    """Pause, activate, cancel or kill. Each names the wanted state, so it can safely be repeated."""
    return one(Call("POST", f"experiments/{int(experiment_id)}/{action}", parse=model(ExperimentView)))


def grants(experiment_id: int) -> Flow[list[GrantView]]:
    """List with whom an experiment is shared."""
    return one(Call("GET", f"experiments/{int(experiment_id)}/grants", parse=_grants))


def share(experiment_id: int, kind: GrantKind, name: str, *, write: bool = False) -> Flow[list[GrantView]]:
    """Share an experiment with a user or a group."""
    with valid_request():
        body = GrantRequest(kind=kind, name=name, write=write)
    return one(Call("PUT", f"experiments/{int(experiment_id)}/grants", json=body, parse=_grants))


def unshare(experiment_id: int, kind: GrantKind, name: str) -> Flow[list[GrantView]]:
    """Revoke a grant; return the remaining ones."""
    path = f"experiments/{int(experiment_id)}/grants"
    return one(Call("DELETE", path, params={"kind": kind, "name": name}, parse=_grants, again=False))


def delete_experiment(experiment_id: int, *, forget_files: bool = False) -> Flow[DeletionReply]:
    """Delete an ended experiment with its files; the reply says what a task has still to remove."""
    params = {"forget_files": True} if forget_files else {}
    path = f"experiments/{int(experiment_id)}"
    return one(Call("DELETE", path, params=params, parse=model(DeletionReply), again=False))


def delete_event_files(experiment_id: int) -> Flow[DeletionReply]:
    """Remove the event files of an ended experiment; can safely be repeated."""
    return one(Call("DELETE", f"experiments/{int(experiment_id)}/tensorboard-files", parse=model(DeletionReply)))


def experiment_bundle(experiment_id: int) -> Flow[bytes]:
    """Fetch the code of an experiment, as tar.gz."""
    return one(Call("GET", f"experiments/{int(experiment_id)}/bundle", parse=raw))


def experiment_code(experiment_id: int) -> Flow[CodeList]:
    """List the files of an experiment's code."""
    items = yield from pages(f"experiments/{int(experiment_id)}/code", CodeFile, "skip", None)
    return CodeList(items=items)


def experiment_trials(
    experiment_id: int,
    *,
    limit: int | None = None,
    filter: str = "",  # noqa: A002  (its name in requests)
) -> Flow[list[TrialView]]:
    """List the trials of an experiment, in creation order: all, or those that fulfil a filter."""
    path, filters = f"experiments/{int(experiment_id)}/trials", {"filter": filter or None}
    found = yield from pages(path, TrialView, "after", limit, filters)
    return (yield from _whole(found, lambda view: trial(view.id)))


def experiment_checkpoints(experiment_id: int, metric: str | None = None) -> Flow[list[CheckpointView]]:
    """List all committed checkpoints of an experiment, each with the value of this validation metric, if any."""
    return _checkpoints(f"experiments/{int(experiment_id)}/checkpoints", metric)


def curves(
    experiment_id: int,
    *,
    group: str | None = None,
    name: str | None = None,
    max_points: int | None = None,
    max_trials: int | None = None,
    history: bool = False,
) -> Flow[CurvesView]:
    """Fetch a snapshot of an experiment, with the cursor from which the stream continues.

    Args:
        experiment_id: The experiment.
        group: Only curves of this group.
        name: Only curves of this metric, or of several, with commas between.
        max_points: Points of a curve.
        max_trials: Trials, the best and the newest.
        history: Whether the trials' attempts and parents come with it.
    """
    params = {"group": group, "name": name, "max_points": max_points, "max_trials": max_trials}
    if history:
        params["history"] = "true"
    path = f"experiments/{int(experiment_id)}/curves"
    snapshot: CurvesView = yield Call("GET", path, params=params, parse=model(CurvesView))
    found, following = list(snapshot.curves), snapshot.next
    while following is not None:
        part: CurvesView = yield Call("GET", path, params={**params, "skip": following}, parse=model(CurvesView))
        found += part.curves
        following = part.next if part.curves else None
    return snapshot.model_copy(update={"curves": found, "next": None})


# --- trials, checkpoints ----------------------------------------------------------------------------------


def trial(trial_id: int) -> Flow[TrialView]:
    """Fetch one trial, with its summary."""
    return one(Call("GET", f"trials/{int(trial_id)}", parse=model(TrialView)))


def kill_trial(trial_id: int) -> Flow[TrialView]:
    """Kill one trial; its experiment continues."""
    return one(Call("POST", f"trials/{int(trial_id)}/kill", parse=model(TrialView)))


def trial_metrics(
    trial_id: int, *, group: str | None = None, names: Sequence[str] | None = None, max_points: int | None = None
) -> Flow[list[SeriesView]]:
    """Fetch the curves of a trial.

    Args:
        trial_id: The trial.
        group: Only curves of this group, such as `validation`; None: all groups.
        names: Only curves of these metrics; None: all metrics.
        max_points: Down-sample each curve to at most this many points; None: 1000.
    """
    wanted = json.dumps(list(names)) if names else None
    params = {"group": group, "name": wanted, "max_points": max_points}
    return pages(f"trials/{int(trial_id)}/metrics", SeriesView, "skip", None, params)


def trial_logs(
    trial_id: int,
    *,
    after: int | None = None,
    limit: int | None = None,
    tail: int | None = None,
    rank: int | None = None,
    search: str | None = None,
    **more: Any,
) -> Flow[tuple[list[LogLine], int | None]]:
    """Fetch one page of log lines, and the id after which the next page begins."""
    params = {"after": after, "limit": limit, "tail": tail, "rank": rank, "search": search, **more}
    return log_lines(f"trials/{int(trial_id)}/logs", params)


def log_lines(path: str, params: dict[str, Any]) -> Flow[tuple[list[LogLine], int | None]]:
    """Fetch one page of log lines, and the id after which the next page begins; with `tail`, that many if there are."""
    tail = params["tail"]
    if tail is None:
        page: tuple[list[LogLine], int | None] = yield Call("GET", path, params=params, parse=page_of(LogLine))
        return page
    # The master looks for a while at a time: a page may be short and have an edge to go on from.
    parse = page_of(LogLine, "older")
    lines, older = yield Call("GET", path, params=params, parse=parse)
    while older is not None and len(lines) < tail:
        more = {**params, "tail": tail - len(lines), "before": older}
        earlier, edge = yield Call("GET", path, params=more, parse=parse)
        lines, older = earlier + lines, None if edge == older else edge
    return lines, None


def trial_checkpoints(trial_id: int, metric: str | None = None) -> Flow[list[CheckpointView]]:
    """List all committed checkpoints of a trial, each with the value of this validation metric if one is named."""
    return _checkpoints(f"trials/{int(trial_id)}/checkpoints", metric)


def checkpoint(checkpoint_uuid: str) -> Flow[CheckpointView]:
    """Fetch one committed checkpoint."""
    return one(Call("GET", f"checkpoints/{quote(checkpoint_uuid, safe='')}", parse=model(CheckpointView)))


# --- helpers ----------------------------------------------------------------------------------------------


def _checkpoints(path: str, metric: str | None) -> Flow[list[CheckpointView]]:
    """List checkpoints with all of their files, from which they are downloaded."""
    found = yield from pages(path, CheckpointView, "after", None, {"metric": metric})
    whole = yield from _whole(found, lambda view: checkpoint(view.uuid))
    return [one.model_copy(update={"metrics": view.metrics}) for one, view in zip(whole, found, strict=True)]


def _whole(views: Sequence[T], fetch: Callable[[T], Flow[T]]) -> Flow[list[T]]:
    """Fetch those of some views one by one of which the list had only a part."""
    found: list[T] = []
    for view in views:
        found.append((yield from fetch(view)) if view.shortened else view)
    return found


def pages(
    path: str, cls: Any, cursor: str, limit: int | None, filters: Mapping[str, str | int | None] | None = None
) -> Flow[list[Any]]:
    """Collect the items of a list, page by page.

    Args:
        path: The list's path, below the API's base URL.
        cls: The model of an item.
        cursor: The query parameter that continues the list after a page.
        limit: Return at most this many items; None: all of them.
        filters: Further query parameters.

    Raises:
        ValueError: The limit is not a whole number from 1 on.
        Conflict: The master returned the same continuation twice, so the list would never end.
    """
    limit = known_limit(limit)
    found: list[Any] = []
    position: int | str | None = None
    while limit is None or len(found) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        params: dict[str, str | int | None] = {**(filters or {}), "limit": size, cursor: position}
        items, following = yield Call("GET", path, params=params, parse=page_of(cls))
        found.extend(items)
        if following is None or not items:
            break
        if following == position:  # a master that does not move on would be asked for ever
            raise Conflict(f"the master repeats itself in the list {path} after {following}")
        position = following
    return found
