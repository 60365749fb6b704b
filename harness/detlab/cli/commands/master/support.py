"""`det support-bundle`, of a trial or the cluster too: one file with what people who help need to know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.logs import line_text
from detlab.cli.output.printing import clean, note, say, table
from detlab.cli.output.redaction import Redactor
from detlab.cli.output.support_archive import SupportArchive, support_archive
from detlab.client.operations import jobs as job_operations
from detlab.client.operations.cluster import master as operations
from detlab.client.resources import Trial
from detlab.client.transport.version import client_version
from detlab.errors import DetlabError
from detlab.schemas.jobwire import TRIAL_PREFIX
from detlab.schemas.wire import LogLine

COMMANDS = {"support-bundle": "Write what is known of an experiment, trial or task into one file, without secrets."}
F = TypeVar("F", bound=Callable[..., Any])
MOST_LINES = 20_000
MOST_REPORTS = 20_000
MOST_TRIALS = 500
OF_CLUSTER = {
    "settings.json": "master/config",
    "cluster.json": "cluster",
    "health.json": "service",
    "agents.json": "agents",
    "pools.json": "pools",
    "instances.json": "instances",
    "jobs.json": "jobs",
    "limits.json": "limits",
    "metrics.txt": "metrics",
}
"""File -> the route that it is from. The first one only administrators may read."""
MASTER_LINES = 10_000
_PAGE = 1000


def _output_dir(function: F) -> F:
    made: Callable[[F], F] = click.option(
        "-o",
        "--output-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(),
        help="Folder to write to.",
    )
    return made(function)


@click.command(name="support-bundle")
@click.argument("job_id", metavar="ID")
@_output_dir
@json_option
@pass_invocation
def support_bundle(invocation: Invocation, job_id: str, output_dir: Path) -> None:
    """Write what is known of an experiment, a trial or a task into one file, for whoever helps.

    ID is a number for an experiment, `trial-31` for a trial, or the id of a task. The file has state, config, output,
    metrics, why it waits, and versions, each to some megabytes. Secrets are masked by name and form, and where they
    recur. What the code printed may hold others: look at the files that are listed before you send it.

    \b
    Examples:
      det support-bundle 7
      det support-bundle trial-31 -o /tmp
      det support-bundle notebook-3f9a1c20b7d4
    """
    if job_id.isdecimal():
        _write(invocation, f"experiment-{job_id}", output_dir, lambda made: _experiment(invocation, int(job_id), made))
    elif job_id.startswith(TRIAL_PREFIX) and job_id.removeprefix(TRIAL_PREFIX).isdecimal():
        number = int(job_id.removeprefix(TRIAL_PREFIX))
        _write(invocation, job_id, output_dir, lambda made: _trial(invocation, number, made))
    else:
        task = invocation.client.get_task(job_id)

        def add(made: SupportArchive) -> None:
            made.add_json("task.json", task.view.model_dump(mode="json"))
            _why(invocation, task.id, made)
            made.add_lines("output.txt", _lines(task.iter_logs()))

        _write(invocation, task.id, output_dir, add)


@click.command(name="support-bundle")
@click.argument("trial_id", metavar="ID", type=int)
@_output_dir
@json_option
@pass_invocation
def trial_bundle(invocation: Invocation, trial_id: int, output_dir: Path) -> None:
    """Write what is known of a trial into one file, for whoever helps: its output, state, config, metrics, versions.

    Secrets are masked by name and form, and where they recur. What the code printed may hold others: look at the files
    that are listed before you send it.

    \b
    Example:
      det trial support-bundle 31 -o /tmp
    """
    _write(invocation, f"trial-{trial_id}", output_dir, lambda made: _trial(invocation, trial_id, made))


@click.command(name="support-bundle")
@_output_dir
@json_option
@pass_invocation
def cluster_bundle(invocation: Invocation, output_dir: Path) -> None:
    """Write what is known of the cluster into one file, for whoever helps (administrators).

    It has the master's settings and newest log, health, agents, pools, jobs, limits, metrics and versions; what cannot
    be read is named in errors.json. Secrets are masked by name and form, and where they recur. Names of users and of
    their jobs are in it.

    \b
    Example:
      det master support-bundle -o /tmp
    """
    invocation.client.session.run(operations.config())  # who may not read it is told before a file is there
    _write(invocation, "cluster", output_dir, lambda made: _cluster(invocation, made))


def _write(invocation: Invocation, name: str, folder: Path, add: Callable[[SupportArchive], None]) -> None:
    """Write a bundle, and tell what is in it."""
    token = invocation.client.address.token
    path = folder / f"{name}-support.tar.gz"
    with support_archive(path, name, Redactor([token] if token else [])) as made:
        version = invocation.client.get_cluster().version
        made.add_json("versions.json", {"client": client_version(), "master": version})
        add(made)
    if invocation.answered({"path": str(path), "files": made.files}):
        return
    rows = [(one["name"], one["bytes"], "a part" if one["cut"] else "") for one in made.files]
    table(("File", "Bytes", "Has"), rows, right=("Bytes",))
    say(f"Support bundle: {clean(path)}")
    note("Secrets are masked by name and form. Look through it before you send it.")


def _experiment(invocation: Invocation, experiment_id: int, made: SupportArchive) -> None:
    experiment = invocation.client.get_experiment(experiment_id)
    made.add_json("experiment.json", experiment.view.model_dump(mode="json"))
    trials = [one.view.model_dump(mode="json") for one in islice(experiment.list_trials(), MOST_TRIALS)]
    made.add_json("trials.json", trials)
    _why(invocation, str(experiment_id), made)
    first = next((one["id"] for one in trials if one["state"] == "ERROR"), trials[0]["id"] if trials else None)
    if first is not None:
        newest = invocation.client.get_trial(first).iter_logs(tail=MOST_LINES)
        made.add_lines(f"output-of-trial-{first}.txt", _lines(newest))


def _trial(invocation: Invocation, trial_id: int, made: SupportArchive) -> None:
    trial: Trial = invocation.client.get_trial(trial_id)
    made.add_json("trial.json", trial.view.model_dump(mode="json"))
    made.add_json("experiment.json", trial.get_experiment().view.model_dump(mode="json"))
    made.add_json("metrics.json", [_report(one) for one in islice(trial.iter_metrics(), MOST_REPORTS)])
    _why(invocation, f"{TRIAL_PREFIX}{trial_id}", made)
    made.add_lines("output.txt", _lines(trial.iter_logs(tail=MOST_LINES)))


def _cluster(invocation: Invocation, made: SupportArchive) -> None:
    errors = {}
    for name, route in OF_CLUSTER.items():
        try:
            text = operations.text_of(invocation.client.session.run(operations.any_call("GET", route)))
        except DetlabError as error:  # what is broken is why somebody asks for help
            errors[route] = str(error)
            continue
        if name.endswith(".json"):
            made.add_json(name, json.loads(text))
        else:
            made.add_lines(name, text.splitlines())
    made.add_lines("master-log.txt", _master_log(invocation, errors))
    made.add_json("errors.json", errors)


def _master_log(invocation: Invocation, errors: dict[str, str]) -> Iterator[str]:
    after = 0
    try:
        for _ in range(MASTER_LINES // _PAGE + 1):
            page = invocation.client.session.run(operations.logs(after=after, limit=_PAGE))
            for line in page.items:
                yield f"{line.at:.3f} {line.level} {line.logger}: {line.text}"
            if not page.items:
                return
            after = page.last
    except DetlabError as error:
        errors["master/logs"] = str(error)


def _why(invocation: Invocation, job_id: str, made: SupportArchive) -> None:
    """Add why it waits; of what has ended there is nothing to say."""
    try:
        found = invocation.client.session.run(job_operations.why(job_id))
    except DetlabError:
        return
    made.add_json("why.json", found.model_dump(mode="json"))


def _lines(lines: Iterable[LogLine]) -> Iterator[str]:
    for line in lines:
        yield f"{line.time:.3f} {line.level or '-'} {line_text(line, trial=False, node=True)}"


def _report(one: Any) -> dict[str, Any]:
    return {
        "group": one.group, "steps_completed": one.steps_completed, "time": one.report_time, "metrics": one.metrics
    }  # fmt: skip
