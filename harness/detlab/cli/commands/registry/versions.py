"""`det model …`: the commands about versions, their labels, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detlab.cli.commands.download import fetch
from detlab.cli.commands.registry import printing
from detlab.cli.commands.registry.printing import force_option, model_argument, version_argument
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.operations import registry
from detlab.client.operations.registry import names_version, split_reference
from detlab.client.registry.facts import EVALUATED_GROUPS
from detlab.client.registry.models import ModelVersion
from detlab.client.transport.calls import Flow
from detlab.client.transport.downloads import AnyMode
from detlab.schemas.wire.registry import VersionView

_expected = click.option(
    "--expected",
    type=int,
    metavar="NUMBER",
    help="The version that has the label now, 0 for none: if another has it, nothing changes.",
)
_reason = click.option("--reason", default="", help="Why, for the history.")


@click.command(name="list-versions")
@model_argument
@click.option("-n", "--limit", type=int, metavar="COUNT", help="Only the newest so many.")
@csv_option
@json_option
@pass_invocation
def list_versions(invocation: Invocation, model: str, limit: int | None) -> None:
    """List the versions of a model, newest first.

    \b
    Examples:
      det model list-versions digits
      det m versions digits --json | jq -r '.[0].checkpoint'
    """
    found = invocation.client.session.run(registry.list_versions(model, limit))
    if not invocation.answered(found):
        printing.print_versions(found)


@click.command(name="register-version")
@model_argument
@click.argument("uuid", required=False)
@click.option("--experiment", "experiment_id", type=int, metavar="ID", help="The best checkpoint of this experiment.")
@click.option(
    "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A folder, made anywhere."
)
@click.option("--semver", help="A semantic version, above those before it.")
@click.option("--to", "labels", multiple=True, metavar="LABEL", help="A label to move to it; repeat it.")
@click.option("--name", default="", help="Its name.")
@click.option("--comment", default="", help="What it is.")
@click.option("--notes", metavar="TEXT", help="Notes in Markdown; - reads them from standard input.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata; repeat it.")
@_reason
@json_option
@pass_invocation
def register(
    invocation: Invocation,
    model: str,
    uuid: str | None,
    experiment_id: int | None,
    folder: Path | None,
    semver: str | None,
    labels: tuple[str, ...],
    name: str,
    comment: str,
    notes: str | None,
    metadata: tuple[str, ...],
    reason: str,
) -> None:
    """Make a checkpoint a version of a model, with its lineage; the same one again is the same version.

    With --folder, a trial without slots saves the folder first; nothing in it is opened.

    \b
    Examples:
      det model register digits 3f2b0c1e-… --semver 1.2.0
      det m register digits --experiment 7 --to staging --reason 'nightly search'
      det m register digits --folder exported/
    """
    if sum(given is not None for given in (uuid, experiment_id, folder)) != 1:
        raise click.UsageError("name a checkpoint, or --experiment, or --folder")
    if folder is not None and not any(path.is_file() for path in folder.rglob("*")):
        raise click.UsageError(f"there is no file in the folder {clean(str(folder))}")
    more: dict[str, Any] = {
        "name": name,
        "comment": comment,
        "notes": printing.text_of(notes) or "",
        "metadata": printing.metadata_of(metadata),
        "semver": semver,
        "labels": labels,
        "reason": reason,
    }
    if folder is not None:
        made = invocation.client.register_folder(
            model, folder, notice=lambda one: note(f"Experiment {one.id} saves the folder …"), **more
        )
    else:
        into = invocation.client.get_model(model)
        made = into.register_version(uuid, experiment_id=experiment_id, **more)
    _say(invocation, made, "Registered")


def _say(invocation: Invocation, made: ModelVersion, done: str) -> None:
    if invocation.answered(made.view):
        return
    told = f" ({made.semver})" if made.semver else ""
    labels = f", {', '.join(made.labels)}" if made.labels else ""
    say(f"{done} {clean(made.model_name)}@{made.model_version}{told}{labels}: checkpoint {made.checkpoint_uuid}")


@click.command(name="add-evaluation")
@version_argument
@click.argument("trial", type=int)
@click.option("--name", default="", help="What it is called; default: the name of its experiment.")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Metrics to take; default: validation, inference."
)
@json_option
@pass_invocation
def add_evaluation(invocation: Invocation, reference: str, trial: int, name: str, groups: tuple[str, ...]) -> None:
    """Note what a trial that used a version has found out about it, such as one of torch_batch_process.

    \b
    Example:
      det model add-evaluation digits@3 41 --name 'test set of May'
    """
    model, version = split_reference(reference)
    found = invocation.client.get_model(model).get_version(version)
    noted = found.add_evaluation(trial, name=name, groups=groups or EVALUATED_GROUPS)
    if invocation.answered(found.view):
        return
    metrics = ", ".join(f"{clean(metric)} {value:g}" for metric, value in noted["metrics"].items())
    say(f"Noted for {clean(found.model_name)}@{found.model_version}: trial {trial}, {metrics}")


@click.command(name="edit-version")
@version_argument
@click.option("--name", help="Its name.")
@click.option("--comment", help="What it is; empty removes it.")
@click.option("--notes", metavar="TEXT", help="Notes in Markdown; - reads them from standard input.")
@click.option("--semver", help="A semantic version, above those before it.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata to set; repeat it.")
@click.option("--remove-metadata", multiple=True, metavar="KEY", help="Metadata to remove; repeat it.")
@json_option
@pass_invocation
def edit_version(
    invocation: Invocation,
    reference: str,
    name: str | None,
    comment: str | None,
    notes: str | None,
    semver: str | None,
    metadata: tuple[str, ...],
    remove_metadata: tuple[str, ...],
) -> None:
    """Change what is written about a version.

    \b
    Example:
      det model edit-version digits@3 --semver 1.2.0 --comment 'trained on v3'
    """
    model, version = split_reference(reference)
    view = invocation.client.session.run(
        registry.edit_version(
            model,
            version,
            name=name,
            comment=comment,
            notes=printing.text_of(notes),
            semver=semver,
            set_metadata=printing.metadata_of(metadata),
            remove_metadata=list(remove_metadata),
        )
    )
    invocation.tell(view, f"Changed {clean(view.model)}@{view.version}")


@click.command(name="delete-version")
@version_argument
@force_option
@yes_option
@json_option
@pass_invocation
def delete_version(invocation: Invocation, reference: str, force: bool, yes: bool) -> None:
    """Delete a version; its checkpoint stays, and may be deleted then. Its number is never given again.

    \b
    Example:
      det model delete-version digits@3 --yes
    """
    model, version = split_reference(reference)
    if not names_version(reference):
        raise click.UsageError(f"name the version: {clean(reference)}@NUMBER")
    confirmed(f"Delete version {clean(version)} of model {clean(model)}? This cannot be undone.", yes=yes)
    view = invocation.client.session.run(registry.delete_version(model, version, force=force))
    invocation.tell(view, f"Deleted {clean(view.model)}@{view.version}")


# --- labels


@click.command()
@version_argument
@click.argument("label_name", metavar="LABEL")
@_reason
@_expected
@json_option
@pass_invocation
def label(invocation: Invocation, reference: str, label_name: str, reason: str, expected: int | None) -> None:
    """Give a label, such as production, to a version, and take it from the one that had it.

    \b
    Examples:
      det model label digits@3 production --reason 'beats 2 on the new test set'
      det m label digits@staging production --expected 2
    """
    model, version = split_reference(reference)
    move = invocation.client.session.run(registry.move_label(model, label_name, version, reason, expected))
    if not invocation.answered(move):
        before = f" (it was on {move.from_version})" if move.from_version is not None else ""
        say(f"{clean(model)}@{clean(move.label)} is version {move.to_version}{before}")


@click.command()
@model_argument
@click.argument("label_name", metavar="LABEL")
@_reason
@_expected
@json_option
@pass_invocation
def unlabel(invocation: Invocation, model: str, label_name: str, reason: str, expected: int | None) -> None:
    """Take a label away: no version has it then.

    \b
    Example:
      det model unlabel digits staging --reason 'the test is over'
    """
    move = invocation.client.session.run(registry.remove_label(model, label_name, reason, expected))
    invocation.tell(move, f"Version {move.from_version} of {clean(model)} no longer has the label {clean(move.label)}")


@click.command()
@model_argument
@click.option("--label", "label_name", metavar="LABEL", help="Only of this label.")
@csv_option
@json_option
@pass_invocation
def history(invocation: Invocation, model: str, label_name: str | None) -> None:
    """Show who moved which label when and why, newest first.

    \b
    Example:
      det model history digits --label production
    """
    found = invocation.client.session.run(registry.history(model, label_name))
    if not invocation.answered(found):
        printing.print_moves(found)


# --- finding and comparing


@click.command()
@model_argument
@click.argument("versions", metavar="[VERSION]...", nargs=-1)
@json_option
@pass_invocation
def compare(invocation: Invocation, model: str, versions: tuple[str, ...]) -> None:
    """Show versions side by side: metrics, hyperparameters, and what differs of config, packages and code.

    \b
    Examples:
      det model compare digits                the newest two
      det m compare digits production latest
    """
    found = invocation.client.session.run(registry.compare(model, versions))
    if invocation.as_json:
        say_json(found)
    elif found.versions:
        printing.print_comparison(found)
    else:
        say(f"Model {clean(model)} has no versions.")


_limit = click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Most versions."
)


@click.command()
@click.argument("metric")
@click.option("--where", default="", metavar="CONDITION", help="Only versions that fulfil it.")
@click.option("--smaller", "smaller_is_better", is_flag=True, help="Smaller is better.")
@_limit
@csv_option
@json_option
@pass_invocation
def best(invocation: Invocation, metric: str, where: str, smaller_is_better: bool, limit: int) -> None:
    """Find the best versions of all models by a metric at their steps.

    A condition compares label, name, owner, version, version.label, semver, format, experiment, hp.NAME, metrics and
    keys of the metadata, by = != < <= > >= and in, joined by and, or, not.

    \b
    Examples:
      det model best accuracy --where 'label = vision and dataset = v3'
      det m best loss --smaller --where 'hp.lr < 0.1 and not version.label in (old, broken)'
    """
    wanted = registry.search(metric, where, smaller_is_better=smaller_is_better, limit=limit)
    _print_found(invocation, wanted, metric)


@click.command()
@click.option("--where", default="", metavar="CONDITION", help="See det model best --help.")
@_limit
@csv_option
@json_option
@pass_invocation
def search(invocation: Invocation, where: str, limit: int) -> None:
    """Find versions of all models by a condition, newest first.

    \b
    Example:
      det model search --where 'experiment = 7 or version.label = production'
    """
    _print_found(invocation, registry.search(None, where, limit=limit))


def _print_found(invocation: Invocation, wanted: Flow[list[VersionView]], metric: str = "") -> None:
    found = invocation.client.session.run(wanted)
    if not invocation.answered(found):
        printing.print_found(found, metric)


@click.command()
@version_argument
@json_option
@pass_invocation
def lineage(invocation: Invocation, reference: str) -> None:
    """Show where a version comes from, as a tree.

    \b
    Example:
      det model lineage digits@production
    """
    found = invocation.client.session.run(registry.lineage(*split_reference(reference)))
    if not invocation.answered(found):
        printing.print_graph(found)


@click.command()
@version_argument
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: checkpoints/UUID."
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "direct", "master", "task"]),
    default="auto",
    show_default=True,
    help="direct: from the storage, mounted here or with this machine's credentials; master: through the master;"
    " task: by a task of yours; auto: direct if possible.",
)
@json_option
@pass_invocation
def download(invocation: Invocation, reference: str, output_dir: Path | None, mode: AnyMode) -> None:
    """Download the files of a version; each is verified, and no partial folder is left behind.

    \b
    Example:
      det model download digits@production -o serving/
    """
    fetch(invocation, invocation.client.get_model_version(reference).get_checkpoint(), output_dir, mode)
