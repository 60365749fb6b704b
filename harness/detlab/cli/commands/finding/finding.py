"""`det trial search`: trials of all experiments by a filter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click

from detlab.cli.completion import view_names
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.output.printing import Shown, clean, counted, duration, moment, note, say, say_json, settings, table
from detlab.client.operations import finding
from detlab.client.tabular import FOUND_COLUMNS, csv_text, found_rows, write_parquet
from detlab.schemas.script_names import normal
from detlab.schemas.wire import Archived, decode_float
from detlab.schemas.wire.finding import FoundTrial, FoundTrials
from detlab.schemas.wire.saved_views import SavedView

filter_option = click.option("--filter", "filter_", default="", metavar="FILTER", help="Only those that fulfil it.")

sort_option = click.option(
    "--sort", multiple=True, metavar="FIELD", help="Sort by it, -FIELD: descending (repeatable)."
)
column_option = click.option(
    "-c", "--column", "columns", multiple=True, metavar="FIELD", help="Also this column (repeatable)."
)

parquet_option = click.option(
    "--parquet", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a Parquet file."
)

view_option = click.option(
    "--view",
    "view_name",
    metavar="NAME",
    shell_complete=view_names,
    help="Begin with a saved view: its filter, order and columns.",
)


_KINDS = {"created": "time", "started": "time", "ended": "time", "duration": "duration", "progress": "share"}
"""Fields whose values are shown otherwise than as they are; a metric of such a name is `metric.NAME`."""


USUAL = {"id", "experiment", "name", "owner", "state", "progress", "trials", "best", "started", "duration"}
"""Columns that a list of experiments has anyway."""
_USUAL_OF_TRIALS = {"id", "trial", "experiment", "name", "owner", "state", "steps", "best", "started"}


def shown_values(columns: Sequence[str], values: Sequence[object], places: Iterable[int]) -> list[object]:
    """Return the values of some columns for a table: times as times, texts for lists, nothing where there is none."""
    return [_shown(_KINDS.get(columns[at].lower(), ""), values[at]) for at in places if at < len(values)]


def beside(columns: Sequence[str], usual: Collection[str]) -> list[int]:
    """Return the places of the columns that are not the usual ones: a view saved on the page names these, too."""
    return [at for at, name in enumerate(columns) if name.lower() not in usual]


@click.command(name="search")
@click.argument("text", metavar="[FILTER]", default="")
@filter_option
@sort_option
@column_option
@view_option
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list.")
@click.option("-a", "--all", "every", is_flag=True, help="All of them, also of archived experiments.")
@click.option(
    "--parquet", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a Parquet file."
)
@csv_option
@json_option
@pass_invocation
def search(
    invocation: Invocation,
    text: str,
    filter_: str,
    sort: tuple[str, ...],
    columns: tuple[str, ...],
    view_name: str | None,
    limit: int,
    every: bool,
    parquet: Path | None,
) -> None:
    """Find trials of all experiments that you may read, newest first unless told otherwise.

    A filter compares fields, such as state, owner, label, created and duration, hyperparameters (hparams.lr, or hp.lr)
    and metrics with = != < <= > >=, in, contains (or ~) and is null, joined by and, or, not. A metric is that at the
    best validation; .last, .min and .max say otherwise. --csv and --parquet have a column for each hyperparameter.

    \b
    Examples:
      det trial search 'accuracy > 0.9 and hparams.lr < 1e-3 and label = paper'
      det t search 'owner = me and created > -7d' --sort -accuracy -c accuracy -c loss.min
      det t search 'state = error' --all --csv > failed.csv
    """
    if text and filter_:
        raise click.UsageError("give the filter once: as an argument, or by --filter")
    if view_name is not None:
        view = named_view(invocation, view_name)
        text, sort, columns = text or filter_ or view.filter, sort or tuple(view.sort), columns or tuple(view.columns)
    archived: Archived = "any" if every else "no"
    wanted = finding.find_trials(
        text or filter_, sort=sort, columns=columns, archived=archived, limit=None if every else limit
    )
    found: FoundTrials = invocation.client.session.run(wanted)
    _tell(invocation, found, parquet, view_name)


def filter_hints(invocation: Invocation, text: str) -> list[str]:
    """Ask why a filter may have found no experiment: names in it that nothing has."""
    if not text:
        return []
    found = invocation.client.session.run(finding.find_experiments(text, archived="any", limit=1))
    return [clean(said) for said in found.notes]


def named_view(invocation: Invocation, name: str, of: Literal["trials", "experiments"] = "trials") -> SavedView:
    """Return a saved view of trials, or of experiments: your own of this name, one of a project, or `OWNER/NAME`.

    Raises:
        click.UsageError: There is none of this name, or several projects have one.
    """
    views = invocation.client.list_saved_views(of)
    wanted = normal(name).strip()
    found = [one for one in views if one.name == wanted] or [one for one in views if _with_owner(one) == wanted]
    if len(found) > 1:
        me = invocation.client.whoami().name
        found = [one for one in found if one.owner == me] or found
    if len(found) != 1:
        known = ", ".join(clean(_with_owner(one) if one.project else one.name) for one in (found or views)[:10])
        problem = "several people have a" if found else "there is no"
        raise click.UsageError(f"{problem} saved view {clean(name)!r} of {of}; you have: {known or 'none'}")
    return found[0]


def _with_owner(view: SavedView) -> str:
    return f"{view.owner}/{view.name}"


def _tell(invocation: Invocation, found: FoundTrials, parquet: Path | None, view_name: str | None) -> None:
    for said in found.notes:
        note(clean(said))
    names = tuple(column.name for column in found.columns)
    if parquet is not None:
        write_parquet(parquet, found_rows(found), (*FOUND_COLUMNS, *names))
        note(f"{counted(len(found.items), 'trial')} written to {clean(parquet)}")
    if invocation.as_json:
        say_json(found)
    elif invocation.as_csv:
        say(csv_text(found_rows(found), (*FOUND_COLUMNS, *names)).removesuffix("\n"))
    elif not found.items:
        say("No trials match.")
    elif parquet is None:
        _print(found, beside(names, _USUAL_OF_TRIALS if view_name else ()))
    if found.next is not None and not invocation.as_json:
        note(f"There are more: --limit {10 * len(found.items)}, or --all")


def _print(found: FoundTrials, places: Sequence[int]) -> None:
    names = [found.columns[at].name for at in places]
    titles = ("Trial", "Experiment", "Name", "Owner", "State", "Steps", "Best", *names, "Started", "Hyperparameters")
    kinds = {at: _KINDS.get(found.columns[at].name.lower(), found.columns[at].kind) for at in places}
    rows = [_row(one, kinds) for one in found.items]
    choose = "--csv has all of them"
    table(titles, rows, right=("Trial", "Experiment", "Steps", "Best", *names), choose=choose)


def _row(one: FoundTrial, kinds: Mapping[int, str]) -> tuple[object, ...]:
    values = [_shown(kind, one.values[at]) for at, kind in kinds.items()]
    best = "" if one.best_validation is None else one.best_validation
    head = one.id, one.experiment_id, one.name, one.owner, one.state.value, one.steps_completed, best
    return (*head, *values, moment(one.started_at), settings(one.hparams))


def _shown(kind: str, value: object) -> object:
    if value is None:
        return ""
    if kind == "number" and isinstance(value, str):
        return decode_float(value)
    if kind == "time" and isinstance(value, int | float):
        return moment(float(value))
    if kind == "duration" and isinstance(value, int | float):
        return duration(float(value))
    if kind == "share" and isinstance(value, int | float):
        return Shown(f"{value:.0%}", value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value
