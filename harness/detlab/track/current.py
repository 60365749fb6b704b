"""The run of this process: `init`, and what is logged without naming the run."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.track.errors import NoRun, RunFolderError
from detlab.track.folder import FOLDER_VARIABLE, RUNS_FOLDER, RunDescription, RunFolder, is_run_key, numbered
from detlab.track.in_trial import trial_run
from detlab.track.records import has_ended, newest
from detlab.track.this_run import Mode, Run, RunConfig, RunResults, say

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact
    from detlab.client.artifacts.logged import ArtifactVersion

logger = logging.getLogger("detlab.track")
ID_VARIABLE, PROJECT_VARIABLE, MODE_VARIABLE = "DET_RUN_ID", "DET_RUN_PROJECT", "DET_RUN_MODE"
NAME_VARIABLE, GROUP_VARIABLE, JOB_TYPE_VARIABLE = "DET_RUN_NAME", "DET_RUN_GROUP", "DET_RUN_JOB_TYPE"
STRICT_VARIABLE, OUTPUT_VARIABLE = "DET_RUN_STRICT", "DET_RUN_OUTPUT"
_MODES: Mapping[str, Mode] = {"online": "online", "offline": "offline", "dryrun": "offline", "disabled": "disabled"}
_MOST_NUMBERED = 1000
"""Runs of one name that are told apart by a number."""

_current: Run | None = None


def init(
    project: str | None = None,
    config: Any = None,
    *,
    name: str | None = None,
    id: str | None = None,  # noqa: A002  (as others have it)
    group: str | None = None,
    job_type: str | None = None,
    tags: Iterable[str] | Mapping[str, Any] | None = None,
    notes: str | None = None,
    resume: bool | str | None = None,
    mode: str | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002  (as others have it)
    code: bool = True,
    output: bool = True,
    reinit: bool | str | None = None,
    strict: bool | None = None,
    entity: str | None = None,
    program: str | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    sync_tensorboard: bool = False,
    **ignored: Any,
) -> Run:
    """Begin a run in this process, or become a further process of one.

    What is logged goes to a folder below `detlab-runs` here, and from there to the master while that is there. Without
    a cluster, a login or a network it stays on disk: `det sync detlab-runs` sends it later, from anywhere.

    In a trial the run is the trial itself, which reports what is logged; its hyperparameters are the configuration, and
    come before those of `config`. What else is said of the run is in the trial's metadata, below `run`.

    Args:
        project: `NAME` in your own workspace, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`; made if it is not there.
        config: Hyperparameters: a mapping, arguments of a command line, a dataclass, a pydantic model.
        name: For people.
        id: Of a run to resume, or of one that has several processes (also by the variable `DET_RUN_ID`). Letters,
            digits, `_`, `.` and `-`; None: one is drawn. If that run has ended and is not resumed, this is another one,
            with a number behind it.
        group: What it belongs to: an experiment of several runs.
        job_type: Its part in that, such as `train`.
        tags: Words, or texts by name, by which it is found.
        notes: For people.
        resume: Go on with the run `id`, though it has ended; steps go on after those that it has.
        mode: `online`; `offline`: only to the disk; `disabled`: nothing is kept. Also by `DET_RUN_MODE`.
        dir: Where the folder of runs is; `detlab-runs` here, or what `DET_RUNS_DIR` names.
        code: Keep the commit, what differs from it, the script and the installed packages.
        output: Keep what the script prints; not if `DET_RUN_OUTPUT` is 0.
        reinit: End a run that this process has, and begin another one. Otherwise that one is returned.
        strict: Raise what cannot be logged. Otherwise that is told, and the script goes on. Also by `DET_RUN_STRICT=1`.
        entity: A workspace, as Weights & Biases calls it.
        program: The script, if it is not that of this process.
        tensorboard: `import`: what this process writes for TensorBoard is logged, too. The path of a folder: also what
            others write there.
        sync_tensorboard: The same, as Weights & Biases calls it.
        **ignored: Settings of others; each is told.

    Returns:
        The run. It ends with the process, or by `finish`.

    Raises:
        ValueError: `id` or `mode` can be none.
    """
    global _current  # noqa: PLW0603  (one for each process)
    if _current is not None and not _current.finished:
        if not (reinit or _in_notebook()):
            logger.warning("this process has run %s already: it goes on (reinit=True begins another)", _current.id)
            return _current
        _current.finish()
    chosen = _mode(mode)
    about = {"name": name, "group": group, "job_type": job_type, "notes": notes}
    if chosen != "disabled" and (trial := trial_run(config, strict=_strict(strict), about=about)) is not None:
        _current = trial
        if tags:
            trial.set_tags(tags if isinstance(tags, Mapping) else {str(one): "" for one in tags})
        _follow_tensorboard(trial, tensorboard, wanted=sync_tensorboard)
        return trial
    resumed = bool(resume) and resume != "never"
    key = _key(id, chosen, dir, resume=resumed)
    for word_ in sorted(ignored):
        logger.info("init(%s=…) has no meaning here", word_)
    where = project if project is not None else os.environ.get(PROJECT_VARIABLE, "")
    described = RunDescription(
        key=key,
        project=f"{entity}/{where}" if entity and where and "/" not in where else where,
        name=_said(name, NAME_VARIABLE),
        group=_said(group, GROUP_VARIABLE),
        job_type=_said(job_type, JOB_TYPE_VARIABLE),
        notes=notes or "",
        started=time.time(),
        joins=resumed or (os.environ.get(ID_VARIABLE) == key),
    )
    run = _made(described, chosen, dir, strict=_strict(strict), resume=resumed)
    copied = output and os.environ.get(OUTPUT_VARIABLE) != "0"
    try:
        run.begin(copy_output=copied, code=code, script=program)
    except Exception as error:  # no process to be had, no room on the disk
        if run.strict:
            raise
        logger.warning("the run does not begin as it should: %s: %s", type(error).__name__, error)
    _current = run
    run.config.update(config)
    if tags:
        run.set_tags(tags if isinstance(tags, Mapping) else {str(one): "" for one in tags})
    _follow_tensorboard(run, tensorboard, wanted=sync_tensorboard)
    if run.folder is not None:
        say(f"run {run.id}" + (f" of project {run.project}" if run.project else "") + f", in {run.dir}")
    return run


def _follow_tensorboard(run: Run, said: str | os.PathLike[str] | None, *, wanted: bool) -> None:
    """Have a run log what its process writes for TensorBoard, if that is wanted."""
    if said is None and not wanted:
        return
    try:
        run.import_tensorboard(Path.cwd() if said is None or said == "import" else said)
    except Exception as error:  # a folder that is gone, no thread to be had
        if run.strict:
            raise
        logger.warning("what is written for TensorBoard is not logged: %s: %s", type(error).__name__, error)


def _key(said: str | None, mode: Mode, above: Any, *, resume: bool) -> str:
    """Return the key of the run that begins: as it was said, unless a run of that name has ended and is not resumed.

    Raises:
        ValueError: What was said can be none.
    """
    shared = os.environ.get(ID_VARIABLE)
    key = said or shared or uuid.uuid4().hex
    if not is_run_key(key):
        raise ValueError(f"{key[:80]!r} can be no id of a run: letters, digits, `_`, `.` and `-`, 128 at most")
    if (
        said is None or said == shared or mode == "disabled"
    ):  # what shares a variable is one run, one after another, too
        return key
    if shared:
        say(f"{said} is a run of its own, beside {shared}, which {ID_VARIABLE} names")
    if resume or not _has_ended(key, mode, above):
        return key
    further = itertools.islice(numbered(key), 1, _MOST_NUMBERED)
    other = next((one for one in further if not _has_ended(one, mode, above)), uuid.uuid4().hex)
    logger.warning("run %s has ended: this is another one, %s (resume=True goes on with %s)", key, other, key)
    return other


def _has_ended(key: str, mode: Mode, above: Any) -> bool:
    """Whether there is a run of this key, and all its processes have ended: as its folder here says, or the master."""
    for place in _places(above):
        if not (place / key).is_dir():
            continue
        try:
            folder = RunFolder.opened(place / key)
        except RunFolderError:
            continue
        writers = folder.writers()
        return bool(writers) and all(_writer_has_ended(folder, one) for one in writers)
    if mode != "online":
        return False
    try:
        from detlab.track.master import has_ended

        return has_ended(key)
    except Exception as error:  # no network, no login, no such run
        logger.debug("whether there is a run %s is not known: %s", key, error)
        return False


def _writer_has_ended(folder: RunFolder, writer: str) -> bool:
    return has_ended(folder.path / writer) or folder.process_of(writer).lives is False


def _places(above: Any) -> tuple[Path, Path]:
    """Return where the folders of runs may be: where it was said, or where there is room for everybody."""
    named = Path(above) / RUNS_FOLDER if above is not None else Path(os.environ.get(FOLDER_VARIABLE) or RUNS_FOLDER)
    return named.absolute(), Path(tempfile.gettempdir()) / f"{RUNS_FOLDER}-{os.getuid()}"


def _made(described: RunDescription, mode: Mode, above: Any, *, strict: bool, resume: bool) -> Run:
    if mode == "disabled":
        return Run(None, described.key, mode=mode, strict=strict)
    trouble: Exception | None = None
    for place in _places(above):
        try:
            folder = RunFolder.made(place, described)
            step = _next_step(folder) if resume else 0
            writer = folder.new_writer()
            run = Run(folder, described.key, writer=writer, mode=mode, strict=strict, first_step=step)
        except (OSError, RunFolderError) as error:
            if strict:
                raise
            logger.warning("the run cannot be kept in %s: %s", place, error)
            trouble = error
        else:
            return run
    logger.warning("nothing of the run is kept: %s", trouble)
    return Run(None, described.key, mode="disabled", strict=strict)


def _next_step(folder: RunFolder) -> int:
    """Return the step after those that the run has here, or else at the master, if that answers at once."""
    steps = [
        record["step"]
        for writer in folder.writers()
        for record in newest(folder.path / writer)
        if record.get("kind") == "metrics" and isinstance(record.get("step"), int)
    ]
    if steps:
        return max(steps) + 1
    try:
        from detlab.track.master import newest_step

        return newest_step(folder.run.key) + 1
    except Exception as error:  # no network, no login, no such run: it goes on from 0
        logger.warning("the steps of run %s are not known here, and begin at 0: %s", folder.run.key, error)
        return 0


def _said(value: str | None, variable: str) -> str:
    return value if value is not None else os.environ.get(variable, "")


def _mode(said: str | None) -> Mode:
    text = said or os.environ.get(MODE_VARIABLE) or "online"
    if text not in _MODES:
        raise ValueError(f"mode={text!r}: there are online, offline and disabled")
    return _MODES[text]


def _strict(said: bool | None) -> bool:
    return os.environ.get(STRICT_VARIABLE) == "1" if said is None else said


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def _the_run(what: str) -> Run:
    if _current is None:
        raise NoRun(f"{what}() before detlab.init(): no run has begun", hint="det.init(project=…) begins one")
    return _current


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
    """Log values of metrics into the run of this process: see `Run.log`.

    Raises:
        NoRun: It has none.
    """
    _the_run("log").log(data, step, commit)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run of this process: see `Run.finish`. Without a run it does nothing."""
    if _current is not None:
        _current.finish(exit_code, quiet)


def alert(title: str, text: str = "", level: str = "INFO", **more: Any) -> None:
    """Tell the owner of the run something: see `Run.alert`.

    Raises:
        NoRun: There is none.
    """
    _the_run("alert").alert(title, text, level, **more)


def log_artifact(
    artifact_or_path: Any,
    name: str | None = None,
    type: str | None = None,  # noqa: A002  (as others have it)
    aliases: Iterable[str] | None = None,
    **more: Any,
) -> Artifact:
    """Log a version of an artifact that the run of this process has made: see `Run.log_artifact`.

    Raises:
        NoRun: There is none.
    """
    return _the_run("log_artifact").log_artifact(artifact_or_path, name, type, aliases, **more)


def use_artifact(
    artifact_or_name: Any,
    type: str | None = None,  # noqa: A002  (as others have it)
    **more: Any,
) -> ArtifactVersion:
    """Return a version of an artifact, and record that the run of this process uses it: see `Run.use_artifact`.

    Raises:
        NoRun: There is none.
    """
    return _the_run("use_artifact").use_artifact(artifact_or_name, type, **more)


def watch(*models: Any, **more: Any) -> None:
    """Do nothing: see `Run.watch`.

    Raises:
        NoRun: There is no run.
    """
    _the_run("watch").watch(*models, **more)


def define_metric(name: str, step_metric: Any = None, **more: Any) -> None:
    """Say by which metric the run of this process is measured: see `Run.define_metric`.

    Raises:
        NoRun: There is none.
    """
    _the_run("define_metric").define_metric(name, step_metric, **more)


def save(path: Any = None, *_: Any, **__: Any) -> None:
    """Do nothing, and say so: files are artifacts."""
    logger.warning("save(%r) keeps nothing: log_artifact(%r, name=…) does", path, path)


def login(*_: Any, **__: Any) -> bool:
    """Do nothing: `det login URL` has done it, or DET_URL and DET_TOKEN say it."""
    return True


def current_run() -> Run | None:
    """Return the run of this process, if it has one."""
    return _current


def current_config() -> RunConfig:
    """Return the configuration of the run of this process.

    Raises:
        NoRun: It has none.
    """
    return _the_run("config").config


def current_summary() -> RunResults:
    """Return the results of the run of this process.

    Raises:
        NoRun: It has none.
    """
    return _the_run("summary").summary
