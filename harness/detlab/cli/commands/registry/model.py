"""`det model …`: the group, and its commands about models."""

from __future__ import annotations

from typing import Any

import click

from detlab.cli.commands.projects.options import workspace_option
from detlab.cli.commands.registry import printing
from detlab.cli.commands.registry.printing import force_option, model_argument
from detlab.cli.completion import workspace_names
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import Lazy, LazyGroup
from detlab.cli.output.printing import clean, hidden_note, moment, say, say_json, table, wants_csv
from detlab.client.operations import projects, registry
from detlab.client.operations.registry import names_version
from detlab.client.registry.facts import ModelSortBy
from detlab.client.registry.models import Model

COMMANDS = {"model": "Registered models: create, register, label, compare, …"}

_VERSIONS = "detlab.cli.commands.registry.versions:"


@click.group(
    cls=LazyGroup,
    short={"ls": "list", "register": "register-version", "versions": "list-versions"},
    lazy={
        "list-versions": Lazy("List the versions of a model, newest first.", f"{_VERSIONS}list_versions"),
        "register-version": Lazy("Register a checkpoint, a search's best one, or a folder.", f"{_VERSIONS}register"),
        "add-evaluation": Lazy("Note what a trial has found out about a version.", f"{_VERSIONS}add_evaluation"),
        "edit-version": Lazy("Change what is written about a version.", f"{_VERSIONS}edit_version"),
        "delete-version": Lazy("Delete a version; its checkpoint stays.", f"{_VERSIONS}delete_version"),
        "label": Lazy("Give a label, such as production, to a version.", f"{_VERSIONS}label"),
        "unlabel": Lazy("Take a label away.", f"{_VERSIONS}unlabel"),
        "history": Lazy("Show who moved which label when and why.", f"{_VERSIONS}history"),
        "compare": Lazy("Show versions side by side.", f"{_VERSIONS}compare"),
        "best": Lazy("Find the best versions of all models by a metric.", f"{_VERSIONS}best"),
        "search": Lazy("Find versions of all models by a condition.", f"{_VERSIONS}search"),
        "lineage": Lazy("Show where a version comes from.", f"{_VERSIONS}lineage"),
        "download": Lazy("Download the files of a version.", f"{_VERSIONS}download"),
        "export": Lazy("Write a version in a form that others read.", "detlab.cli.commands.registry.export:export"),
    },
)
def model() -> None:
    """Keep models: checkpoints as numbered versions, with labels that move.

    A version is named MODEL@3, MODEL@1.2.0, MODEL@production or MODEL@latest.

    \b
    Examples:
      det model create digits --label vision
      det model register digits --experiment 7 --to staging
      det model label digits@latest production --reason 'beats 2 on the new test set'
      det m download digits@production -o serving/
    """


@model.command()
@click.argument("name")
@click.argument("description", default="")
@click.option("--label", "labels", multiple=True, metavar="WORD", help="A word by which it is found; repeat it.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata; repeat it. A value is JSON or text.")
@click.option("--notes", metavar="TEXT", help="Notes in Markdown; - reads them from standard input.")
@workspace_option("The workspace that it is to lie in, whose members see it.")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    name: str,
    description: str,
    labels: tuple[str, ...],
    metadata: tuple[str, ...],
    notes: str | None,
    workspace: str | None,
) -> None:
    """Make a model: a name under which versions are kept.

    \b
    Examples:
      det model create digits
      det model create digits 'handwritten digits' --label vision --metadata dataset=v3
    """
    made = invocation.client.create_model(
        name,
        description,
        printing.metadata_of(metadata),
        labels,
        notes=printing.text_of(notes) or "",
        workspace=workspace or "",
    )
    invocation.tell(made.view, f"Created model {made.model_id}: {clean(made.name)}")


@model.command(name="list")
@click.option("--name", metavar="PART", help="Only those with this in their name.")
@click.option("--owner", metavar="USER", help="Only this user's.")
@click.option("--label", "labels", multiple=True, metavar="WORD", help="Only those with this label; repeat it.")
@click.option(
    "-w",
    "--workspace",
    "--workspace-names",
    "workspace",
    metavar="NAME",
    help="Only those that lie in this workspace.",
    shell_complete=workspace_names,
)
@click.option("-a", "--all", "everything", is_flag=True, help="Archived ones, too.")
@click.option(
    "--sort-by",
    type=click.Choice(["name", "description", "creation_time", "last_updated_time", "num_versions"]),
    default="last_updated_time",
    show_default=True,
    help="The order.",
)
@click.option("--order-by", type=click.Choice(["asc", "desc"]), help="Default: desc for times, asc for the others.")
@csv_option
@json_option
@pass_invocation
def list_command(
    invocation: Invocation,
    name: str | None,
    owner: str | None,
    labels: tuple[str, ...],
    workspace: str | None,
    everything: bool,
    sort_by: str,
    order_by: str | None,
) -> None:
    """List models.

    \b
    Examples:
      det model list
      det m list --label vision --sort-by name
    """
    order = order_by or ("desc" if sort_by.endswith("_time") or sort_by == "num_versions" else "asc")

    def listed(archived: bool | None) -> list[Model]:
        key = ModelSortBy[sort_by.upper()]
        return invocation.client.list_models(
            key, order, name, labels=labels, owner=owner, archived=archived, workspace=workspace
        )

    found = listed(None if everything else False)
    if invocation.answered([one.view for one in found]):
        return
    hidden = [] if found or everything or wants_csv() else listed(True)
    if hidden:
        say(hidden_note(len(hidden), "model"))
    else:
        printing.print_models([one.view for one in found], filtered=bool(name or owner or labels or workspace))


@model.command()
@printing.version_argument
@json_option
@pass_invocation
def describe(invocation: Invocation, reference: str) -> None:
    """Show a model; with @VERSION, that version and where it comes from.

    \b
    Examples:
      det model describe digits
      det m describe digits@production
    """
    if names_version(reference):
        version = invocation.client.get_model_version(reference)
        if not invocation.answered(version.view):
            printing.print_version(version.view)
        return
    found = invocation.client.get_model(reference)
    if not invocation.answered(found.view):
        printing.print_model(found.view)


@model.command()
@model_argument
@click.option("--name", help="Another name.")
@click.option("--description", help="What it is; empty removes it.")
@click.option("--notes", metavar="TEXT", help="Notes in Markdown; - reads them from standard input.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata to set; repeat it.")
@click.option("--remove-metadata", multiple=True, metavar="KEY", help="Metadata to remove; repeat it.")
@click.option("--add-label", multiple=True, metavar="WORD", help="A label to add; repeat it.")
@click.option("--remove-label", multiple=True, metavar="WORD", help="A label to remove; repeat it.")
@json_option
@pass_invocation
def edit(
    invocation: Invocation,
    model: str,
    name: str | None,
    description: str | None,
    notes: str | None,
    metadata: tuple[str, ...],
    remove_metadata: tuple[str, ...],
    add_label: tuple[str, ...],
    remove_label: tuple[str, ...],
) -> None:
    """Change what is written about a model.

    \b
    Examples:
      det model edit digits --description 'handwritten digits' --add-label vision
      det model edit digits --notes - < notes.md
    """
    _edit(
        invocation,
        model,
        "Changed",
        name=name,
        description=description,
        notes=printing.text_of(notes),
        set_metadata=printing.metadata_of(metadata),
        remove_metadata=list(remove_metadata),
        add_labels=list(add_label),
        remove_labels=list(remove_label),
    )


@model.command()
@model_argument
@json_option
@pass_invocation
def archive(invocation: Invocation, model: str) -> None:
    """Have lists leave a model out; it gets no versions then.

    \b
    Example:
      det model archive digits
    """
    _edit(invocation, model, "Archived", archived=True)


@model.command()
@model_argument
@json_option
@pass_invocation
def unarchive(invocation: Invocation, model: str) -> None:
    """Have lists show a model again.

    \b
    Example:
      det model unarchive digits
    """
    _edit(invocation, model, "Unarchived", archived=False)


def _edit(invocation: Invocation, model: str, done: str, **changes: Any) -> None:
    view = invocation.client.session.run(registry.edit_model(model, **changes))
    invocation.tell(view, f"{done} model {view.id}: {clean(view.name)}")


@model.command()
@model_argument
@click.argument("workspace", metavar="[WORKSPACE]", default="", shell_complete=workspace_names)
@json_option
@pass_invocation
def move(invocation: Invocation, model: str, workspace: str) -> None:
    """Move a model: the members of that workspace see it from then on, with the checkpoints of its versions.

    Without WORKSPACE, to the personal one of its owner.

    \b
    Example:
      det model move digits ada/vision
    """
    view = invocation.client.session.run(projects.move_model(model, workspace))
    invocation.tell(view, f"Moved model {view.id} to {clean(view.workspace or 'the personal workspace of its owner')}")


@model.command()
@model_argument
@force_option
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, model: str, force: bool, yes: bool) -> None:
    """Delete a model with its versions; their checkpoints stay, and may be deleted then.

    \b
    Example:
      det model delete digits --yes
    """
    confirmed(f"Delete model {clean(model)} with its versions? This cannot be undone.", yes=yes)
    view = invocation.client.session.run(registry.delete_model(model, force=force))
    invocation.tell(view, f"Deleted model {view.id}: {clean(view.name)}")


@model.command()
@model_argument
@click.option("--user", metavar="U", help="A user of the Hub.")
@click.option("--group", metavar="G", help="A group of the Hub: all its members.")
@click.option("--write", is_flag=True, help="They may also register versions, move labels and edit it.")
@click.option("--remove", is_flag=True, help="Remove the share.")
@json_option
@pass_invocation
def share(invocation: Invocation, model: str, user: str | None, group: str | None, write: bool, remove: bool) -> None:
    """Let others read a model, and download the checkpoints of its versions.

    Without --user and --group, show with whom it is shared. Only its owner and administrators can share or delete it.

    \b
    Examples:
      det model share digits --group vision
      det m share digits --user bob --write
      det m share digits --user bob --remove
    """
    if user is not None and group is not None:
        raise click.UsageError("give --user or --group, not both; run the command twice for both")
    if user is None and group is None and (write or remove):
        raise click.UsageError("name a user or a group: add --user U or --group G")
    found = invocation.client.get_model(model)
    if user is None and group is None:
        grants = found.list_grants()
    elif remove:
        grants = found.unshare(user=user, group=group)
    else:
        grants = found.share(user=user, group=group, write=write)
    if invocation.as_json:
        say_json(grants)
    elif not grants:
        say(f"Model {clean(found.name)} is not shared.")
    else:
        rows = [
            (one.kind, one.name, "read and change" if one.write else "read", one.granted_by, moment(one.created_at))
            for one in grants
        ]
        table(("With", "Name", "May", "Granted by", "Since"), rows)
