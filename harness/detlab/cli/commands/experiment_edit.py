"""`det experiment set name`, `label`, `archive` …: what people write about experiments, and which ones lists show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal

import click

from detlab.cli.commands.experiments.batches import IDS, act_on_many, chosen, many_options, spec_of
from detlab.cli.commands.log_retention import set_group
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.resources import Experiment
from detlab.pasted import word
from detlab.schemas.wire.batches import BatchAct

UNDO_CHARS = 200
"""Of a text that is shown again in the command that takes a change back."""

_FIELDS = {
    "name": ("Give an experiment another name. Its config keeps the name that it was submitted with.", "digits, wider"),
    "description": ("Describe an experiment; an empty text removes the description.", "the wider network"),
    "notes": ("Replace the notes of an experiment; `-` reads them from standard input.", "diverges above lr 0.1"),
}


def _setting(field: str, help_text: str, example: str) -> None:
    @set_group.command(name=field, help=f"{help_text}\n\n\b\nExample:\n  det experiment set {field} 7 '{example}'")
    @click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
    @click.argument("text", metavar=field.upper())
    @json_option
    @pass_invocation
    def command(invocation: Invocation, experiment_id: int, text: str) -> None:
        item = invocation.client.get_experiment(experiment_id)
        before = getattr(item.view, field) or ""
        told = sys.stdin.read() if field == "notes" and text == "-" else text
        if field == "notes":  # somebody may have written into them meanwhile
            item.set_notes(told, before=before)
        else:
            getattr(item, f"set_{field}")(told)
        invocation.tell(item.view, f"Experiment {experiment_id}: {field} {'set' if told else 'removed'}")
        if not invocation.as_json and before not in ("", told) and len(before) <= UNDO_CHARS and before.isprintable():
            note(f"→ undo: det experiment set {field} {experiment_id} {word(before)}")


for _field, (_help, _example) in _FIELDS.items():
    _setting(_field, _help, _example)


@click.group(name="label", cls=LazyGroup)
def label_group() -> None:
    """Label experiments.

    \b
    Examples:
      det experiment label add 7 baseline
      det e label remove 7 baseline
    """


def _labelling(name: Literal["add", "remove"], help_text: str, act: Callable[[Experiment, str], None]) -> None:
    @label_group.command(
        name=name,
        help=f"{help_text}\n\n\b\nExamples:\n  det experiment label {name} 7 baseline\n"
        f"  det experiment label {name} 1-5,7 baseline\n"
        f"  det experiment label {name} --filter 'owner = ada' baseline",
    )
    @click.argument("words", metavar="[IDS] LABEL...", nargs=-1, required=True)
    @many_options
    @json_option
    @pass_invocation
    def command(invocation: Invocation, words: tuple[str, ...], filter_: str, yes: bool, dry_run: bool) -> int:
        given = () if filter_ else (IDS.convert(words[0], None, None),)
        labels = words if filter_ else words[1:]
        if not labels:
            raise click.UsageError("name a label after the experiments")
        many = chosen(given, filter_, yes=yes, dry_run=dry_run)
        if not many.plain:
            return act_on_many(invocation, "add_labels" if name == "add" else "remove_labels", many, labels=labels)
        item = invocation.client.get_experiment(many.ids[0])
        for label in labels:
            act(item, label)
        invocation.tell(item.view, f"Experiment {item.id}: labels {clean(', '.join(item.view.labels)) or 'none'}")
        return 0


_labelling("add", "Add labels to an experiment; those that it has already stay.", Experiment.add_label)
_labelling("remove", "Remove labels from an experiment; those that it does not have are no mistake.",
           Experiment.remove_label)  # fmt: skip


def acting(
    name: BatchAct,
    help_text: str,
    act: Callable[[Experiment], None],
    now: Callable[[Experiment], str],
    undo: str = "",
) -> click.Command:
    """Make a command that does the same with experiments.

    Single ids are done one after the other, whatever is refused for some; ranges, and what fulfils a filter, by
    `act_on_many`.

    Args:
        name: Of the command.
        help_text: What it does.
        act: Does it to one.
        now: Says what one is then.
        undo: The command that takes it back, if there is one.
    """

    @click.command(
        name=name,
        help=f"{help_text}\n\n\b\nExamples:\n  det experiment {name} 7 8\n  det experiment {name} 1-5,7\n"
        f"  det experiment {name} --filter 'label = old and created < -30d'",
    )
    @click.argument("experiment_ids", metavar="[IDS...]", type=IDS, nargs=-1, shell_complete=experiment_ids)
    @many_options
    @json_option
    @pass_invocation
    def command(
        invocation: Invocation, experiment_ids: tuple[Sequence[int], ...], filter_: str, yes: bool, dry_run: bool
    ) -> int:
        many = chosen(experiment_ids, filter_, yes=yes, dry_run=dry_run)
        if not many.plain:
            return act_on_many(invocation, name, many)
        views, changed = [], []
        each = OneByOne("Experiment", many.ids)
        for number in many.ids:
            with each.of(number):
                item = invocation.client.get_experiment(number)
                before = now(item)
                act(item)
                views.append(item.view)
                same = bool(undo) and now(item) == before
                changed += [] if same else [number]
                if not invocation.as_json:
                    say(f"Experiment {number}: {now(item)}{' before' if same else ''}")
        if invocation.as_json:
            say_json(views)
        elif undo and changed:
            note(f"→ undo: det experiment {undo} {spec_of(changed)}")
        return each.status

    return command


archive = acting(
    "archive",
    "Archive experiments that have ended: lists leave them out, nothing is deleted. `det experiment list --all` shows"
    " them.",
    Experiment.archive,
    lambda item: "archived" if item.archived else "unarchived",
    "unarchive",
)
unarchive = acting(
    "unarchive",
    "Have lists show archived experiments again.",
    Experiment.unarchive,
    lambda item: "archived" if item.archived else "unarchived",
    "archive",
)
