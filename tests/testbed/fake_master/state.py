"""What the fake master of `testbed.fake_master.api` holds in memory, and how it may misbehave."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, Literal, TypeVar

from detlab.schemas.logwire import KeepLogs, KeepLogsReply, RemovedLogs
from detlab.schemas.wire import (
    AgentView,
    CheckpointFile,
    CheckpointView,
    CreateExperiment,
    CreateExperimentReply,
    CurvesView,
    EditCheckpoint,
    EditExperiment,
    ErrorView,
    Event,
    ExperimentState,
    ExperimentView,
    GrantList,
    GrantRequest,
    GrantView,
    JournalEntry,
    LogLine,
    ProblemView,
    ReplayedSearch,
    SeriesView,
    SlotView,
    SteerSearch,
    TrialState,
    TrialView,
    Wire,
)
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab.schemas.wire.storage import Bookmark, GcPreview, GcRequest, Pin, PinList

Numbered = TypeVar("Numbered", Event, LogLine)
FaultKind = Literal["unavailable", "html", "no_route", "lose_reply", "refuse", "cut", "cut_mid_line"]


@dataclass(frozen=True, slots=True)
class ApiFault:
    """One misbehaviour, used up by the first request it matches.

    Attributes:
        method: HTTP verb.
        path: Regular expression that matches a path below `api/v1/` from its beginning.
        kind: `unavailable` (503 as a proxy sends it), `html` (502 with a page), `no_route` (404 as a proxy sends it),
            `refuse` (close before acting), `lose_reply` (act, then close), `cut` and `cut_mid_line` (close a stream
            after `lines` lines).
        lines: How many lines a cut stream sends before.
    """

    method: str
    path: str
    kind: FaultKind
    lines: int = 0


class ErrorReply(Exception):
    """A reply that is an error."""

    def __init__(self, status: int, code: str, message: str, problems: list[ProblemView] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.view = ErrorView(code=code, message=message, problems=problems or [])


@dataclass
class MasterState:
    """What the fake master holds, and the levers by which a test changes it.

    Attributes:
        token: The one token that is let in.
        faults: Misbehaviours to come.
        requests: (method, path below `api/v1/`) of everything that was asked.
        problems: If set, every submit is refused with them.
        keep_alive: Seconds between the empty lines of a silent stream.
        oldest: Cursors before this get a resync.
        removed: What retention has removed of the output of trials, by their ids.
    """

    token: str = "a-token"
    faults: deque[ApiFault] = field(default_factory=deque)
    requests: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    """What GET of further paths answers."""
    problems: list[ProblemView] = field(default_factory=list)
    warnings: list[ProblemView] = field(default_factory=list)
    keep_alive: float = 0.05
    oldest: int = 0
    experiments: dict[int, ExperimentView] = field(default_factory=dict)
    trials: dict[int, TrialView] = field(default_factory=dict)
    series: dict[int, list[SeriesView]] = field(default_factory=dict)
    logs: list[LogLine] = field(default_factory=list)
    removed: dict[int, RemovedLogs] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    checkpoints: dict[str, CheckpointView] = field(default_factory=dict)
    pins: dict[str, list[Pin]] = field(default_factory=dict)
    """By checkpoint."""
    previews: dict[int, GcPreview] = field(default_factory=dict)
    """What collection says of each experiment."""
    collections: list[GcRequest] = field(default_factory=list)
    """What was asked of it."""
    agents: list[AgentView] = field(default_factory=list)
    replays: dict[int, list[ReplayedSearch]] = field(default_factory=dict)
    bundles: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    grants: dict[int, dict[tuple[str, str], GrantView]] = field(default_factory=dict)
    submitted: list[CreateExperiment] = field(default_factory=list)
    steered: list[SteerSearch] = field(default_factory=list)
    continued: list[ContinueExperiment] = field(default_factory=list)
    journals: dict[int, list[JournalEntry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.closing = False

    # --- what the test makes happen -----------------------------------------------------------------------

    def await_request(self, method: str, path: str, timeout: float = 30.0) -> None:
        """Wait until a client has requested exactly this path below `api/v1/`.

        Args:
            method: HTTP verb.
            path: The path, without a leading slash.
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: There was no such request within `timeout`.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: (method, path) in self.requests, timeout):
                raise TimeoutError(f"nobody asked for {method} {path}")

    def publish(
        self, kind: str, experiment_id: int | None, data: Any, trial_id: int | None = None, task_id: str | None = None
    ) -> Event:
        """Append an event and wake the streams."""
        with self.changed:
            event = Event(
                id=len(self.events) + 1,
                kind=kind,
                time=time.time(),
                experiment_id=experiment_id,
                trial_id=trial_id,
                task_id=task_id,
                data=data.model_dump(mode="json") if isinstance(data, Wire) else data,
            )
            self.events.append(event)
            self.changed.notify_all()
            return event

    def add_experiment(self, name: str = "digits", **facts: Any) -> ExperimentView:
        """Make an experiment."""
        with self.changed:
            number = len(self.experiments) + 1
            given: dict[str, Any] = {
                "owner": "alice",
                "may": "own",
                "state": ExperimentState.ACTIVE,
                "searcher": "random",
                "metric": "val_loss",
                "created_at": time.time(),
                "config": {"name": name},
                **facts,
            }
            view = ExperimentView(id=number, name=name, **given)
            self.experiments[number] = view
            self.publish("experiment", number, view)
            return view

    def update_experiment(self, experiment_id: int, **facts: Any) -> None:
        """Change an experiment and tell the streams."""
        with self.changed:
            view = self.experiments[experiment_id].model_copy(update=facts)
            self.experiments[experiment_id] = view
            self.publish("experiment", experiment_id, view.model_copy(update={"config": None}))

    def add_trial(self, experiment_id: int, **facts: Any) -> TrialView:
        """Make a trial."""
        with self.changed:
            number = len(self.trials) + 1
            index = sum(trial.experiment_id == experiment_id for trial in self.trials.values())
            given: dict[str, Any] = {"state": TrialState.ACTIVE, "request_id": uuid.uuid4().hex, **facts}
            view = TrialView(id=number, index=index, experiment_id=experiment_id, **given)
            self.trials[number] = view
            self.publish("trial", experiment_id, view, number)
            return view

    def update_trial(self, trial_id: int, **facts: Any) -> None:
        """Change a trial and tell the streams."""
        with self.changed:
            view = self.trials[trial_id].model_copy(update=facts)
            self.trials[trial_id] = view
            self.publish("trial", view.experiment_id, view, trial_id)

    def log(self, trial_id: int, text: str, **facts: Any) -> None:
        """Append a line of output."""
        with self.changed:
            self.logs.append(LogLine(id=len(self.logs) + 1, trial_id=trial_id, text=text, time=time.time(), **facts))
            self.changed.notify_all()

    def add_checkpoint(self, trial_id: int, files: dict[str, bytes], **facts: Any) -> CheckpointView:
        """Commit a checkpoint with these files."""
        with self.changed:
            manifest = {}
            for path, content in files.items():
                digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
                self.blobs[digest] = content
                manifest[path] = CheckpointFile(size=len(content), digest=digest)
            view = CheckpointView(
                uuid=str(uuid.uuid4()),
                trial_id=trial_id,
                experiment_id=self.trials[trial_id].experiment_id,
                files=manifest,
                size=sum(len(content) for content in files.values()),
                created_at=time.time(),
                **facts,
            )
            self.checkpoints[view.uuid] = view
            self.publish("checkpoint", view.experiment_id, view, trial_id)
            return view

    def add_agent(self, agent_id: str = "node1", slots: int = 2, **facts: Any) -> None:
        """Connect an agent."""
        self.agents.append(AgentView(id=agent_id, slots=[SlotView(id=str(n)) for n in range(slots)], **facts))

    # --- what the routes do -------------------------------------------------------------------------------

    def experiment(self, number: str) -> ExperimentView:
        """Return an experiment.

        Raises:
            Refusal: There is no such experiment.
        """
        found = self.experiments.get(int(number))
        if found is None:
            raise ErrorReply(404, "not_found", f"there is no experiment {number}")
        return found

    def trial(self, number: str) -> TrialView:
        """Return a trial.

        Raises:
            Refusal: There is no such trial.
        """
        found = self.trials.get(int(number))
        if found is None:
            raise ErrorReply(404, "not_found", f"there is no trial {number}")
        return found

    def checkpoint(self, number: str) -> CheckpointView:
        """Return a checkpoint.

        Raises:
            Refusal: There is no such checkpoint.
        """
        found = self.checkpoints.get(number)
        if found is None:
            raise ErrorReply(404, "not_found", f"there is no checkpoint {number}")
        return found

    def edit_checkpoint(self, number: str, body: bytes) -> CheckpointView:
        """Change the metadata of a checkpoint."""
        wanted = EditCheckpoint.model_validate_json(body)
        view = self.checkpoint(number)
        metadata = {**view.metadata, **wanted.metadata}
        for key in wanted.remove_metadata:
            metadata.pop(key, None)
        self.checkpoints[number] = view.model_copy(update={"metadata": metadata})
        return self.checkpoints[number]

    def delete_files(self, number: str, globs: list[str]) -> CheckpointView:
        """Delete the files of a checkpoint that match a pattern of `fnmatch`; `*` is all of them."""
        view = self.checkpoint(number)
        left = {path: file for path, file in view.files.items() if not any(fnmatch(path, glob) for glob in globs)}
        if len(left) < len(view.files) or globs == ["*"]:
            state = "PARTIALLY_DELETED" if left else "DELETED"
            facts = {"files": left or view.files, "state": state}
            self.checkpoints[number] = view.model_copy(update=facts)
        return self.checkpoints[number]

    def trash(self, number: str, *, now: bool) -> CheckpointView:
        """Delete a checkpoint, with a week in the trash unless it is to go now; a pinned one is refused."""
        view = self.checkpoint(number)
        if pins := self.pins.get(number):
            reasons = "; ".join(pin.reason for pin in pins)
            raise ErrorReply(409, "conflict", f"checkpoint {number} is in use: {reasons}")
        until = None if now else time.time() + 7 * 86400
        self.checkpoints[number] = view.model_copy(update={"state": "DELETED", "trash_until": until})
        return self.checkpoints[number]

    def undelete(self, number: str) -> CheckpointView:
        """Take a checkpoint out of the trash."""
        view = self.checkpoint(number)
        if view.state == "DELETED" and view.trash_until is None:
            raise ErrorReply(409, "conflict", f"checkpoint {number} cannot be restored: its files are gone")
        self.checkpoints[number] = view.model_copy(update={"state": "COMPLETED", "trash_until": None})
        return self.checkpoints[number]

    def pins_of(self, number: str) -> PinList:
        """Return what was scripted to pin a checkpoint, and bookmarks."""
        return PinList(items=self.pins.get(self.checkpoint(number).uuid, []))

    def bookmark(self, number: str, body: bytes | None) -> PinList:
        """Set the bookmark of a checkpoint, or remove it if there is no body."""
        left = [pin for pin in self.pins_of(number).items if pin.kind != "bookmark"]
        if body is not None:
            left.append(Pin(kind="bookmark", reason=f"bookmarked: {Bookmark.model_validate_json(body).note}"))
        self.pins[number] = left
        return self.pins_of(number)

    def gc(self, experiment_id: int, body: bytes | None) -> GcPreview:
        """Return the scripted preview of an experiment, as applied if there is a body."""
        found = self.previews.get(experiment_id)
        if found is None:
            raise ErrorReply(404, "not_found", f"there is no experiment {experiment_id}")
        if body is None:
            return found
        request = GcRequest.model_validate_json(body)
        self.collections.append(request)
        return found.model_copy(update={"applied": True, "policy": request.policy or found.policy})

    def values_of(self, view: CheckpointView) -> list[SeriesView]:
        """Return what the trial of a checkpoint reported at its step, as curves of one point."""
        step, found = view.steps_completed, self.series.get(view.trial_id, [])
        return [
            one.model_copy(update={"steps": [step], "values": [one.values[one.steps.index(step)]], "times": []})
            for one in found
            if step in one.steps
        ]

    def with_metric(self, view: CheckpointView, metric: str | None) -> CheckpointView:
        """Return a checkpoint with the value of a validation metric at its step."""
        found = {one.name: one.values[0] for one in self.values_of(view) if one.group == "validation"}
        return view.model_copy(update={"metrics": {key: value for key, value in found.items() if key == metric}})

    def create(self, body: CreateExperiment) -> CreateExperimentReply:
        """Create an experiment, once per idempotency key.

        Raises:
            Refusal: The test has set `problems`.
        """
        with self.changed:
            if self.problems:
                raise ErrorReply(422, "config.invalid", "the experiment config cannot be used", self.problems)
            self.submitted.append(body)
            key = body.idempotency_key or uuid.uuid4().hex
            config = body.config or {"text": body.config_yaml}
            if body.dry_run:
                return CreateExperimentReply(created=False, warnings=self.warnings, config=config)
            created = key not in self.keys
            if created:
                state = ExperimentState.ACTIVE if body.activate else ExperimentState.PAUSED
                view = self.add_experiment(
                    str(config.get("name", "unnamed")), state=state, bundle=body.bundle, config=config
                )
                self.keys[key] = view.id
            return CreateExperimentReply(
                experiment=self.experiments[self.keys[key]], created=created, warnings=self.warnings, config=config
            )

    def act(self, number: str, action: str) -> ExperimentView:
        """Pause, activate, cancel or kill.

        Raises:
            Refusal: There is no such experiment, or it has ended.
        """
        states = {
            "pause": ExperimentState.PAUSED,
            "activate": ExperimentState.ACTIVE,
            "cancel": ExperimentState.CANCELED,
            "kill": ExperimentState.CANCELED,
        }
        with self.changed:
            if self.experiment(number).state.terminal:
                raise ErrorReply(409, "conflict", f"experiment {number} has ended")
            self.update_experiment(int(number), state=states[action])
            return self.experiment(number)

    def edit(self, number: str, body: bytes) -> ExperimentView:
        """Change what people wrote about an experiment, or archive it.

        Raises:
            Refusal: There is no such experiment, or it is to be archived and has not ended.
        """
        wanted = EditExperiment.model_validate_json(body)
        view = self.experiment(number)
        if wanted.archived and not view.state.terminal:
            raise ErrorReply(
                409, "conflict", f"experiment {number} is {view.state}; only one that has ended can be archived"
            )
        texts = wanted.model_dump(include={"name", "description", "notes"}, exclude_none=True)
        labels = [*(view.labels if wanted.labels is None else wanted.labels), *wanted.add_labels]
        facts = {**texts, "labels": [one for one in dict.fromkeys(labels) if one not in wanted.remove_labels]}
        if wanted.archived is not None:
            facts["archived_at"] = time.time() if wanted.archived else None
        self.update_experiment(view.id, **facts)
        return self.experiment(number)

    def steer(self, number: str, body: bytes) -> ExperimentView:
        """Note an act on a search; nothing comes of it."""
        with self.changed:
            view = self.experiment(number)
            self.steered.append(SteerSearch.model_validate_json(body))
            return view

    def journal(self, number: str, after: int, only: str | None) -> dict[str, Any]:
        """Return the journal of a search, which the test has written."""
        with self.changed:
            entries = [one for one in self.journals.get(self.experiment(number).id, []) if one.seq > after]
            return {"items": [one for one in entries if only is None or one.event.get("author")]}

    def grants_of(self, number: str) -> GrantList:
        """With whom an experiment is shared."""
        found = self.grants.get(self.experiment(number).id, {})
        return GrantList(items=[found[key] for key in sorted(found, reverse=True)])

    def share(self, number: str, body: bytes) -> GrantList:
        """Share it."""
        request = GrantRequest.model_validate_json(body)
        made = GrantView(**request.model_dump(), granted_by="alice")
        self.grants.setdefault(self.experiment(number).id, {})[request.kind, request.name] = made
        return self.grants_of(number)

    def replay(self, number: str, at: str | None) -> ReplayedSearch:
        """Return the state of a search at an event, which the test has written.

        Raises:
            Refusal: There is none.
        """
        with self.changed:
            for found in self.replays.get(self.experiment(number).id, []):
                if at is None or found.at == int(at):
                    return found
            if at is None:
                return ReplayedSearch(at=0, events=0, progress=0.0, trials_total=0, trials=[], over=False)
            raise ErrorReply(404, "not_found", f"the search of experiment {number} has no event {at}")

    def unshare(self, number: str, kind: str, name: str) -> GrantList:
        """Revoke a grant; return the remaining ones.

        Raises:
            Refusal: There is no such experiment or grant.
        """
        if self.grants.get(self.experiment(number).id, {}).pop((kind, name), None) is None:
            raise ErrorReply(404, "not_found", f"experiment {number} is not shared with the {kind} {name!r}")
        return self.grants_of(number)

    def curves(self, number: str) -> CurvesView:
        """Return a snapshot."""
        with self.changed:
            view = self.experiment(number)
            trials = [trial for trial in self.trials.values() if trial.experiment_id == view.id]
            curves = [curve for trial in trials for curve in self.series.get(trial.id, [])]
            return CurvesView(cursor=len(self.events), experiment=view, trials=trials, curves=curves)

    def events_after(self, experiment_id: int, cursor: int) -> Iterator[list[Event]]:
        """Yield new events without end, and an empty list for each keep-alive."""
        if cursor < self.oldest:
            yield [Event(id=len(self.events), kind="resync", experiment_id=experiment_id)]
            cursor = len(self.events)
        yield from self.follow(lambda: (one for one in self.events if one.experiment_id == experiment_id), cursor)

    def logs_after(self, trial_id: int, cursor: int) -> Iterator[list[LogLine]]:
        """Yield what is new until the trial has ended."""
        return self.follow(
            lambda: (line for line in self.logs if line.trial_id == trial_id),
            cursor,
            lambda: self.trials[trial_id].state.terminal,
        )

    def keep_logs(self, body: bytes) -> KeepLogsReply:
        """Note for how long output is kept."""
        wanted = KeepLogs.model_validate_json(body)
        changed = [number for number in sorted(self.experiments) if wanted.all or number in wanted.experiments]
        for number in changed:
            update = {"log_retention_days": wanted.days}
            self.experiments[number] = self.experiments[number].model_copy(update=update)
        return KeepLogsReply(changed=changed)

    def follow(
        self, source: Callable[[], Iterable[Numbered]], cursor: int, ended: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Numbered]]:
        """Yield what is new in a growing source, an empty list for a keep-alive, until it has ended."""
        while not self.closing:
            with self.changed:
                fresh = [item for item in source() if item.id > cursor]
                over = ended()
                if not fresh and not over:
                    self.changed.wait(self.keep_alive)
                    fresh = [item for item in source() if item.id > cursor]
            cursor = fresh[-1].id if fresh else cursor
            yield fresh
            if over and not fresh:
                return
