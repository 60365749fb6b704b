"""`det experiment set name`, `label`, `archive` …: what people write about experiments, and which ones lists show."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from detlab.cli.commands.log_retention import set_group
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, say, say_json
from detlab.client.resources import Experiment

_FIELDS = {
    "name": ("Give an experiment another name. Its config keeps the name that it was submitted with.", "digits, wider"),
    "description": ("Describe an experiment; an empty text removes the description.", "the wider network"),
    "notes": ("Replace the notes of an experiment; `-` reads them from standard input.", "diverges above lr 0.1"),
}


def _setting(field: str, help_text: str, example: str) -> None:
    @set_group.command(name=field, help=f"{help_text}\n\n\b\nExample:\n  det experiment set {field} 7 '{example}'")
    @click.argument("experiment_id", metavar="ID", type=int)
    @click.argument("text", metavar=field.upper())
    @json_option
    @pass_invocation
    def command(invocation: Invocation, experiment_id: int, text: str) -> None:
        item = invocation.client.get_experiment(experiment_id)
        told = sys.stdin.read() if field == "notes" and text == "-" else text
        getattr(item, f"set_{field}")(told)
        invocation.tell(item.view, f"Experiment {experiment_id}: {field} {'set' if told else 'removed'}")


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


def _labelling(name: str, help_text: str, act: Callable[[Experiment, str], None]) -> None:
    @label_group.command(name=name, help=f"{help_text}\n\n\b\nExample:\n  det experiment label {name} 7 baseline")
    @click.argument("experiment_id", metavar="ID", type=int)
    @click.argument("labels", metavar="LABEL...", nargs=-1, required=True)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, experiment_id: int, labels: tuple[str, ...]) -> None:
        item = invocation.client.get_experiment(experiment_id)
        for label in labels:
            act(item, label)
        invocation.tell(item.view, f"Experiment {experiment_id}: labels {clean(', '.join(item.view.labels)) or 'none'}")


_labelling("add", "Add labels to an experiment; those that it has already stay.", Experiment.add_label)
_labelling("remove", "Remove labels from an experiment; those that it does not have are no mistake.",
           Experiment.remove_label)  # fmt: skip


def acting(
    name: str, help_text: str, act: Callable[[Experiment], None], now: Callable[[Experiment], str], example: str = "7"
) -> click.Command:
    """Make a command that does the same with experiments, one after the other; `now` says what each is then."""

    @click.command(name=name, help=f"{help_text}\n\n\b\nExample:\n  det experiment {name} {example}")
    @click.argument("experiment_ids", metavar="ID...", type=int, nargs=-1, required=True)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, experiment_ids: tuple[int, ...]) -> None:
        views = []
        for number in experiment_ids:
            item = invocation.client.get_experiment(number)
            act(item)
            views.append(item.view)
            if not invocation.as_json:
                say(f"Experiment {number}: {now(item)}")
        if invocation.as_json:
            say_json(views)

    return command


archive = acting(
    "archive",
    "Archive experiments that have ended: lists leave them out, nothing is deleted. `det experiment list --all` shows"
    " them.",
    Experiment.archive,
    lambda _: "archived",
    "7 8",
)
unarchive = acting(
    "unarchive", "Have lists show archived experiments again.", Experiment.unarchive, lambda _: "unarchived", "7 8"
)
