"""The copy of runs: several at a time, each complete or begun again, none twice.

A copy has the tag `detlab.import.source`, which says whose it is, from its first moment, and `detlab.import.digest`,
which says what of it was copied, with its last request. So a copy without a digest is begun again, into the same run;
one whose digest is another by now has been logged into since, and gets what is new; all others are left alone. What is
sent a second time changes nothing: the master keeps a point, a parameter and a file once.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from detlab.errors import DetlabError
from detlab.importers.contents import RunContents
from detlab.importers.destination import (
    BATCH,
    BATCH_TAGS,
    DIGEST_TAG,
    MOST_CREATED_TAGS,
    PICKLED_TAG,
    SOURCE_TAG,
    ImportDestination,
    KnownModel,
    KnownRun,
    batches,
    metric_entry,
)
from detlab.importers.destination import PARENT_TAG as PARENT_THERE
from detlab.importers.files import FileCopies
from detlab.importers.folders import Unreadable
from detlab.importers.foreign import (
    PARENT_TAG,
    ForeignExperiment,
    ForeignFile,
    ForeignModel,
    ForeignRun,
    ImportSource,
    digest_of,
)
from detlab.importers.names import VALUE_CHARS, key_of
from detlab.importers.report import COPIED, PRESENT, RESUMED, WENT_ON, ExperimentReport, ImportReport
from detlab.importers.threads import work_off
from detlab.importers.tracking_api import TrackingRefusal

WORKERS = 6
Progress = Callable[[int, int], object]
"""Called with (runs that are done, runs that are known)."""
_NOT_IN_KEYS = re.compile(r"[^\w\-./@:]")


@dataclass(frozen=True)
class CopyOptions:
    """What is copied.

    Attributes:
        files: Whether files and models are.
        dry: Only look.
        only: Names or ids of experiments; empty: all.
        file_bytes: Of a file, at most.
        workers: Runs that are copied at a time.
    """

    files: bool = True
    dry: bool = False
    only: Sequence[str] = ()
    file_bytes: int = 10 * 1024**3
    workers: int = WORKERS


@dataclass
class _Job:
    """One run on its way."""

    experiment: ExperimentReport
    run: ForeignRun
    place: str = ""
    models: Sequence[ForeignModel] = ()
    digest: str = ""
    outcome: str = COPIED
    id: str = ""
    last_tags: dict[str, str] = field(default_factory=dict)


class RunCopies:
    """The copy of all runs of a source.

    Args:
        source: What is read.
        destination: What is written.
        report: Counts what is done.
        options: What is copied.
        progress: Told after each run.
        stop: Tells the connections to stop.
    """

    def __init__(
        self,
        source: ImportSource,
        destination: ImportDestination,
        report: ImportReport,
        options: CopyOptions,
        *,
        progress: Progress | None = None,
        stop: Callable[[], object] = lambda: None,
    ) -> None:
        self._source, self._to, self._report, self._options = source, destination, report, options
        self._left_out, self._stop = report.left_out, stop
        self._progress = progress or (lambda done, known: None)
        self._files = FileCopies(source, report, options.file_bytes)
        self._known: dict[str, KnownRun] = {}
        self._known_models: dict[str, KnownModel] | None = None
        self.runs: dict[str, str] = {}
        """Ids here of the runs that are copied, by those in the source; empty ones if nothing is."""
        self.models: dict[str, str] = {}
        """The same of logged models."""
        self._late: list[_Job] = []
        """Runs that name others, which were not there yet."""
        self._lock = threading.Lock()
        self._listed = 0

    def copy(self) -> None:
        """Copy what is not there yet.

        Raises:
            DetlabError: Nothing more can be copied: no answer, no right, no room.
        """
        experiments = list(self._source.experiments())
        self._to.name_all(experiments)
        chosen = self._chosen(experiments)
        self._known = self._to.known_runs(self._source.kind)
        jobs = itertools.chain.from_iterable(self._jobs(one) for one in chosen)
        work_off(jobs, self._one, self._options.workers, self._stop)
        for job in self._late:
            self._finish(job, {})
            self._tick()

    def _chosen(self, experiments: Sequence[ForeignExperiment]) -> list[ForeignExperiment]:
        only = set(self._options.only)
        if absent := only - {word for one in experiments for word in (one.id, one.name)}:
            names = ", ".join(sorted(one.name for one in experiments)[:20])
            raise DetlabError(
                f"{self._source.label} has no experiment {', '.join(map(repr, sorted(absent)))}",
                hint=f"It has: {names}" if names else None,
            )
        return [one for one in experiments if not only or only & {one.id, one.name}]

    def _jobs(self, experiment: ForeignExperiment) -> Iterator[_Job]:
        said = self._report.experiment(experiment.name, self._to.project(experiment))
        models = self._models_of(experiment)
        place = ""
        for run in self._source.runs(experiment):
            self._listed += 1
            if not place and not self._options.dry:
                place = self._to.make(experiment)
            yield _Job(said, run, place, models.pop(run.id, ()))
        for one in itertools.chain.from_iterable(models.values()):
            self._left_out.add("logged models whose run is not copied", one.name or one.id)

    def _models_of(self, experiment: ForeignExperiment) -> dict[str, list[ForeignModel]]:
        found: dict[str, list[ForeignModel]] = {}
        for one in self._source.models(experiment) if self._options.files else ():
            if one.ready:
                found.setdefault(one.run, []).append(one)
            else:
                self._left_out.add("logged models that are not complete", one.name or one.id)
        if found and self._known_models is None:
            places = sorted({one.place for one in self._known.values()})
            self._known_models = self._to.known_models(self._source.kind, places) if places else {}
        return found

    def _tick(self) -> None:
        with self._lock:
            done = self._report.runs()
            self._progress(done, max(self._listed, done))

    # --- one run

    def _one(self, job: _Job) -> None:
        try:
            self._copy(job)
        except TrackingRefusal as refusal:
            if refusal.ends(self._source.label):
                raise
            self._report.failed(job.experiment, job.run.id, refusal.message)
        except Unreadable as error:
            self._report.failed(job.experiment, job.run.id, str(error))
        self._tick()

    def _key(self, of: str) -> str:
        return f"{self._source.kind}:{_NOT_IN_KEYS.sub('_', of)}"

    def _copy(self, job: _Job) -> None:
        run = job.run
        found = list(self._source.files(run)) if self._options.files else []
        job.digest = digest_of(run, found, job.models)
        self._judge(job)
        with self._lock:
            if job.id or self._options.dry:
                self.runs[run.id] = job.id
        if job.outcome == PRESENT or self._options.dry:
            self._look(job, found)
            self._report.ended(job.experiment, job.outcome)
        else:
            self._log(job, self._files.fitting(found, f"run {run.id}"))

    def _judge(self, job: _Job) -> None:
        known = self._known.get(self._key(job.run.id))
        if known is None:
            return
        job.id, job.place = known.id, known.place
        if known.deleted:
            self._left_out.add("runs that were deleted here since they were copied", job.run.name or job.run.id)
            job.outcome = PRESENT
        elif known.digest == job.digest:
            job.outcome = PRESENT
        else:
            job.outcome = WENT_ON if known.digest else RESUMED

    def _look(self, job: _Job, found: Sequence[ForeignFile]) -> None:
        """Note the models of a run that is left alone, or count what would be copied."""
        with self._lock:
            for model in job.models:
                known = (self._known_models or {}).get(self._key(model.id))
                if known is not None or self._options.dry:
                    self.models[model.id] = "" if known is None else known.id
        if job.outcome != PRESENT:
            size = sum(one.size or 0 for one in found)
            self._report.add(files=len(found), bytes=size, logged_models=len(job.models))

    def _log(self, job: _Job, found: Sequence[ForeignFile]) -> None:
        run, to = job.run, self._to
        contents = RunContents(self._source, run, self._key(run.id), self._left_out)
        first: dict[str, str] = {}
        if not job.id:
            first = dict(itertools.islice(contents.tags.items(), MOST_CREATED_TAGS))
            job.id = to.create_run(job.place, run, first)
        with self._lock:
            self.runs[run.id] = job.id
        tags = {key: value for key, value in contents.tags_for(job.id).items() if first.get(key) != value}
        last = self._send(job, contents, tags)
        to.log_inputs(job.id, run.datasets, [])
        there = to.files_there(job.id) if job.outcome == RESUMED and found else ()
        pickles = self._files.copy(found, partial(to.put_file, job.place, job.id), f"run {run.id}", there)
        if pickles:
            job.last_tags[PICKLED_TAG] = str(pickles)
        for model in job.models:
            self._copy_model(job, model)
        to.log_outputs(job.id, [(self.models[one], step) for one, step in run.models_out if one in self.models])
        if self._waits(run):
            self._log_last(job, last)
            with self._lock:
                self._late.append(job)
        else:
            self._finish(job, last)

    def _waits(self, run: ForeignRun) -> bool:
        parent = run.tags.get(PARENT_TAG)
        return bool(parent and parent not in self.runs) or any(one not in self.models for one in run.models_in)

    def _send(self, job: _Job, contents: RunContents, tags: dict[str, str]) -> dict[str, list[Any]]:
        """Log all but the last batch, which is returned: it goes with the digest."""
        last: dict[str, list[Any]] = {}
        for batch in batches(contents.entries(tags)):
            self._log_last(job, last)
            last = batch
        return last

    def _log_last(self, job: _Job, batch: dict[str, list[Any]]) -> None:
        self._to.log(job.id, batch)
        self._report.add(points=len(batch.get("metrics", ())))

    def _finish(self, job: _Job, last: dict[str, list[Any]]) -> None:
        """Log the last batch; say what a run belongs to, how it has ended, and that it is complete."""
        run = job.run
        if parent := run.tags.get(PARENT_TAG):
            if parent in self.runs:
                job.last_tags[PARENT_TAG] = self.runs[parent]
            else:
                job.last_tags[PARENT_THERE] = parent[:VALUE_CHARS]
                self._left_out.add("parents of runs, which are not copied", parent)
        used = [self.models[one] for one in run.models_in if one in self.models]
        self._to.log_inputs(job.id, [], used)
        self._to.end(job.id, run)
        said = [{"key": key, "value": value} for key, value in {**job.last_tags, DIGEST_TAG: job.digest}.items()]
        tags = [*last.get("tags", ()), *said]
        if sum(map(len, last.values())) + len(said) > BATCH or len(tags) > BATCH_TAGS:
            self._log_last(job, last)
            self._to.log(job.id, {"tags": said})
        else:
            self._log_last(job, {**last, "tags": tags})
        self._report.ended(job.experiment, job.outcome)

    # --- its models

    def _copy_model(self, job: _Job, model: ForeignModel) -> None:
        known = (self._known_models or {}).get(self._key(model.id))
        if known is None or not known.ready:
            made = self._made_model(job, model) if known is None else known.id
            found = self._files.fitting(list(self._source.model_files(model)), f"model {model.id}")
            put = partial(self._to.put_model_file, job.place, made)
            pickles = self._files.copy(found, put, f"model {model.id}")
            points = [metric_entry(one) for one in model.metrics if key_of(one.key) == one.key][:BATCH]
            self._to.log(job.id, {"metrics": [{**one, "model_id": made} for one in points]})
            self._to.end_model(made, {PICKLED_TAG: str(pickles)} if pickles else {})
            self._report.add(logged_models=1)
        else:
            made = known.id
        with self._lock:
            self.models[model.id] = made

    def _made_model(self, job: _Job, model: ForeignModel) -> str:
        tags = {key: value for key, value in model.tags.items() if key_of(key) == key}
        return self._to.create_model(job.place, job.id, model, {SOURCE_TAG: self._key(model.id), **tags})
