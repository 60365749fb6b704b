"""The same act on many experiments: `1-5,7`, or all that fulfil a filter, each with its own answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detlab.cli.invocation import Invocation, confirmed
from detlab.cli.output.printing import clean, counted, note, say, say_json, table
from detlab.pasted import word
from detlab.schemas.wire.batches import BatchAct, BatchItem, BatchReply, BatchRequest

if TYPE_CHECKING:
    _ParamType = click.ParamType[Sequence[int]]
else:  # before click 8.3 it is no generic class
    _ParamType = click.ParamType

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_IDS = 10_000
SHOWN = 30
"""Experiments that are listed one by one; of more only those that were refused are."""
_SPEC = re.compile(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*,?", re.ASCII)
_DONE: dict[str, str] = {
    "pause": "paused",
    "activate": "activated",
    "cancel": "canceled",
    "kill": "killed",
    "archive": "archived",
    "unarchive": "unarchived",
    "delete": "deleted",
    "move": "moved",
    "add_labels": "labelled",
    "remove_labels": "unlabelled",
}


class IdsParameter(_ParamType):
    """Ids of experiments: `7`, `1-5,7`."""

    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        """Return the ids that a word means."""
        if not isinstance(value, str):
            return tuple(value)
        if _SPEC.fullmatch(value) is None:
            self.fail(f"{value!r} is no id of an experiment: write 7, or 1-5,7", param, ctx)
        found: list[int] = []
        for part in value.strip(",").split(","):
            first, _, last = part.partition("-")
            ids = range(int(first), int(last or first) + 1)
            if not ids:
                self.fail(f"{part} is no range: its end comes before its beginning", param, ctx)
            if len(found) + len(ids) > MOST_IDS:
                self.fail(f"{value} means more than {MOST_IDS:,} experiments: use --filter", param, ctx)
            found += ids
        return tuple(dict.fromkeys(found))


IDS = IdsParameter()


@dataclass(frozen=True)
class Many:
    """Which experiments a command is about, and how carefully.

    Attributes:
        ids: By their ids, none if a filter says which.
        filter: The filter.
        yes: Whether not to ask.
        dry_run: Whether to list them only.
        plain: Whether they were given as single numbers, without any of the other options.
    """

    ids: Sequence[int]
    filter: str
    yes: bool
    dry_run: bool
    plain: bool


def many_options(function: Function) -> Function:
    """Add --filter, --yes and --dry-run."""
    by_filter = click.option(
        "--filter", "filter_", default="", metavar="FILTER", help="All that fulfil it, as in det experiment list."
    )
    yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
    dry = click.option("--dry-run", is_flag=True, help="Only list which experiments these are.")
    return by_filter(yes(dry(function)))


def chosen(given: Sequence[Sequence[int]], filter_: str, *, yes: bool, dry_run: bool) -> Many:
    """Return which experiments were named.

    Raises:
        click.UsageError: None were, or both ids and a filter.
    """
    ids = tuple(dict.fromkeys(one for some in given for one in some))
    if bool(ids) == bool(filter_.strip()):
        raise click.UsageError("give the ids of experiments, such as 7 or 1-5,7, or --filter FILTER")
    single = all(len(some) == 1 for some in given)
    return Many(ids, filter_, yes, dry_run, plain=single and not (filter_ or dry_run))


def act_on_many(invocation: Invocation, act: BatchAct, many: Many, *, ask: bool = False, **wanted: Any) -> int:
    """Do it, after listing what a filter means; return the exit status: 1 if some were refused.

    Args:
        invocation: The call.
        act: What is to be done.
        many: With which experiments.
        ask: Whether to ask also where they were given by their ids.
        wanted: Further arguments of `Client.act_on_experiments`.
    """
    ids, client = many.ids, invocation.client
    if many.filter or many.dry_run or ask:
        asked: dict[str, Any] = {**wanted, "filter": many.filter, "archived": act == "unarchive", "dry_run": True}
        looked = client.act_on_experiments(act, ids, **asked)
        ready = [one for one in looked.items if one.result == "done"]
        if many.dry_run:
            if not invocation.answered(looked):
                _list(looked.items)
            return 0
        if not looked.items:
            if not invocation.answered(looked):
                say("No experiments match.")
            return 0
        what = f"{counted(len(ready), 'experiment')} will be {_DONE[act]}"
        confirmed(f"{what}. Go on?", yes=many.yes, deed=act.replace("_", " "), show=lambda: _list(looked.items))
        ids = [one.id for one in looked.items] if not many.filter else [one.id for one in ready]
        if not ids:
            return _told(invocation, act, looked)
    return _told(invocation, act, client.act_on_experiments(act, ids, **wanted))


def _list(items: Sequence[BatchItem]) -> None:
    refused = any(one.result == "refused" for one in items)
    columns = ("ID", "Name", "State", *(("Not possible",) if refused else ()))
    rows = [(one.id, one.name, one.state, *((one.reason,) if refused else ())) for one in items]
    table(columns, rows, right=("ID",))


def _told(invocation: Invocation, act: str, reply: BatchReply) -> int:
    refused = [one for one in reply.items if one.result == "refused"]
    if invocation.as_json:
        say_json(reply)
        return 1 if refused else 0
    for one in reply.items:
        if one.result == "refused":
            note(clean(f"Experiment {one.id}: not {_DONE[act]}: {one.reason}{f' ({one.hint})' if one.hint else ''}"))
        elif len(reply.items) <= SHOWN:
            left = f": {one.reason}" if one.reason else ""
            what = "as it was: nothing to be done" if one.result == "unchanged" else _DONE[act]
            say(clean(f"Experiment {one.id}: {what}{left}"))
    before = sum(one.result == "unchanged" for one in reply.items)
    done = len(reply.items) - len(refused) - before
    if len(reply.items) > 1:
        parts = [f"{counted(done, 'experiment')} {_DONE[act]}", f"{before} before" * bool(before)]
        say(", ".join([part for part in parts if part] + [f"{len(refused)} not"] * bool(refused)))
    tell_undo(reply.undo)
    return 1 if refused else 0


def tell_undo(requests: Sequence[BatchRequest]) -> None:
    """Print the commands that take back what was done."""
    for one in requests:
        note(f"→ undo: {_command(one)}")


def _command(one: BatchRequest) -> str:
    ids = spec_of(one.experiment_ids)
    match one.act:
        case "add_labels" | "remove_labels":
            labels = " ".join(word(label) for label in one.labels)
            return f"det experiment label {one.act.removesuffix('_labels')} {ids} {labels}"
        case "move":
            place = " ".join(word(part) for part in (one.workspace, one.project) if part)
            return f"det experiment move {ids} {place}{' --keep-storage' if one.keep_storage else ''}".rstrip()
    return f"det experiment {one.act} {ids}"


def spec_of(ids: Sequence[int]) -> str:
    """Return ids as a command takes them: `1-5,7`."""
    ordered = sorted(set(ids))
    parts = []
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        found = [one for _, one in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(parts)
