"""`det artifact …`: list, describe, log, download, edit, delete, lineage."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.commands.projects.options import workspace_option
from detlab.cli.commands.registry import printing
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, facts, moment, say, say_json, table
from detlab.cli.output.progress import bar
from detlab.client.artifacts.draft import Artifact
from detlab.client.operations.artifacts import artifacts
from detlab.client.operations.artifacts.artifacts import split_artifact
from detlab.schemas.wire.artifacts.artifacts import ArtifactFile, ArtifactVersionView
from detlab.schemas.wire.registry import LineageEdge, LineageGraph
from detlab.schemas.wire.storage import size_text

COMMANDS = {"artifact": "Named folders in versions: list, log, download, lineage, …"}
_BACK = {"uses": "used by", "logged by": "made", "is": "registered as", "saved by": "saved"}
"""What an edge of a lineage is called from its other end."""

_reference = click.argument("reference", metavar="NAME[:VERSION]")
_force = click.option("--force", is_flag=True, help="Also if runs use it, or aliases point at it.")


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "delete"})
def artifact() -> None:
    """Keep folders of files under a name, in versions that never change.

    A version is named NAME:v3, NAME:ALIAS or NAME:latest; another's is OWNER/NAME:v3.

    \b
    Examples:
      det artifact log cats data/cats --alias raw
      det artifact download cats:raw -o cats/
      det artifact lineage cats:latest
    """


@artifact.command(name="list")
@click.option("--name", metavar="TEXT", help="Only those with this in their names.")
@click.option("--type", "kind", metavar="TYPE", help="Only those of this type.")
@click.option("--owner", metavar="USER", help="Only this user's.")
@workspace_option("Only those that lie in this workspace.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="COUNT", help="Only the newest so many.")
@csv_option
@json_option
@pass_invocation
def list_artifacts(
    invocation: Invocation,
    name: str | None,
    kind: str | None,
    owner: str | None,
    workspace: str | None,
    limit: int | None,
) -> None:
    """List artifacts, newest first.

    \b
    Examples:
      det artifact list --type dataset
      det artifact list --workspace vision --json
    """
    wanted = artifacts.list_artifacts(limit=limit, name=name, kind=kind, owner=owner, workspace=workspace)
    found = invocation.client.session.run(wanted)
    if invocation.answered(found, "No artifacts. Log one: det artifact log NAME FOLDER"):
        return
    rows = [
        (one.reference, one.kind, one.versions, size_text(one.size), one.workspace, moment(one.updated_at))
        for one in found
    ]
    table(("Name", "Type", "Versions", "Size", "Workspace", "Changed"), rows, right=("Versions", "Size"))


@artifact.command()
@_reference
@click.option("--files", "with_files", is_flag=True, help="List all files of the version, with --json, too.")
@json_option
@pass_invocation
def describe(invocation: Invocation, reference: str, with_files: bool) -> None:
    """Show an artifact with its versions; with a VERSION, or --files, one version with its files.

    \b
    Examples:
      det artifact describe cats
      det artifact describe cats:v3 --files
    """
    run = invocation.client.session.run
    name, version = split_artifact(reference)
    if ":" in reference or with_files:
        view = run(artifacts.get_version(name, version))
        listed = run(artifacts.list_files(view.artifact_id, view.version)) if with_files else []
        if invocation.as_json and with_files:
            say_json({**view.model_dump(mode="json"), "entries": [one.model_dump(mode="json") for one in listed]})
        elif not invocation.answered(view):
            _describe_version(view, listed)
        return
    one = run(artifacts.get_artifact(name))
    versions = run(artifacts.list_versions(one.id))
    if invocation.as_json:
        every = [each.model_dump(mode="json") for each in versions]
        say_json({**one.model_dump(mode="json"), "every_version": every})
        return
    facts(
        [
            ("name", one.reference),
            ("type", one.kind),
            ("description", one.description),
            ("owner", one.owner),
            ("workspace", one.workspace),
            ("stored", size_text(one.size)),
            ("changed", moment(one.updated_at)),
        ]
    )
    say("")
    rows = [
        (
            *(f"v{each.version}", ", ".join(each.aliases), each.files, size_text(each.size)),
            *(each.owner, moment(each.created_at), each.comment),
        )
        for each in versions
    ]
    table(("Version", "Aliases", "Files", "Size", "By", "Logged", "Comment"), rows, right=("Files", "Size"))


def _describe_version(view: ArtifactVersionView, listed: list[ArtifactFile]) -> None:
    facts(
        [
            ("version", f"{view.artifact_reference}:v{view.version}"),
            ("type", view.kind),
            ("aliases", ", ".join(view.aliases)),
            ("comment", view.comment),
            ("files", f"{view.files:,}" + (f", {view.references:,} of them references" if view.references else "")),
            ("size", size_text(view.size)),
            ("digest", view.digest),
            ("by", view.owner),
            ("logged", moment(view.created_at)),
            ("logged by run", ", ".join(view.logged_by)),
            ("used by runs", ", ".join(view.used_by)),
            *((f"metadata {key}", value) for key, value in view.metadata.items()),
        ]
    )
    if listed:
        say("")
        rows = [(one.path, size_text(one.size), one.digest, one.uri) for one in listed]
        table(("Path", "Size", "Digest", "Reference"), rows, right=("Size",), spare=("Digest",))


@artifact.command()
@click.argument("name")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--reference", "references", multiple=True, metavar="[PATH=]URI", help="Refer to an object; repeat it.")
@click.option("--type", "kind", metavar="TYPE", help="What it is; of a new artifact: dataset.")
@click.option("--alias", "aliases", multiple=True, metavar="ALIAS", help="A name of the version; repeat it.")
@click.option("--description", metavar="TEXT", help="Of the artifact.")
@click.option("--comment", default="", metavar="TEXT", help="Of the version.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata; repeat it. A value is JSON or text.")
@click.option("--run", default="", metavar="RUN", help="The run that has made it.")
@workspace_option("Where a new artifact is to lie, whose members see it.")
@json_option
@pass_invocation
def log(
    invocation: Invocation,
    name: str,
    paths: tuple[Path, ...],
    references: tuple[str, ...],
    kind: str | None,
    aliases: tuple[str, ...],
    description: str | None,
    comment: str,
    metadata: tuple[str, ...],
    run: str,
    workspace: str | None,
) -> None:
    """Log files, folders and references as a version. Only what the artifact does not have is sent.

    A folder alone gives its files, several things keep their names. The content of the newest version is that version.

    \b
    Examples:
      det artifact log cats data/cats --alias raw
      det artifact log weights model.safetensors --type model --metadata epochs=3
      det artifact log imagenet --reference train.tar=s3://bucket/train.tar
    """
    made = Artifact(
        name,
        kind,
        description,
        printing.metadata_of(metadata),
        comment=comment,
        aliases=aliases,
        workspace=workspace or "",
    )
    for path in paths:
        if path.is_dir():
            made.add_dir(path, None if len(paths) == 1 else path.resolve().name)
        else:
            made.add_file(path)
    for said in references:
        # Only an address has `://` or `data:` before its first `=`.
        inside, equals, uri = said.partition("=")
        named = bool(equals) and "://" not in inside and not inside.startswith("data:")
        made.add_reference(uri if named else said, inside if named else None)
    with bar(f"Artifact {clean(name)}", quiet=invocation.as_json) as progress:
        version = invocation.client.log_artifact(made, run=run, progress=progress)
    if not invocation.answered(version.view):
        say(f"{clean(version.reference)}: {version.view.files:,} files, {size_text(version.size)}")


@artifact.command()
@_reference
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create: artifacts/NAME-vN if none."
)
@click.option("--only", "globs", multiple=True, metavar="PATTERN", help="Only files that match; repeat it.")
@click.option("--references", is_flag=True, help="Fetch what references lead to, with credentials of this machine.")
@json_option
@pass_invocation
def download(
    invocation: Invocation, reference: str, output_dir: Path | None, globs: tuple[str, ...], references: bool
) -> None:
    """Download a version; each file is verified, and no partial folder is left behind.

    \b
    Examples:
      det artifact download cats:v3 -o cats/
      det artifact download ada/imagenet --references
    """
    version = invocation.client.get_artifact(reference)
    with bar(f"Artifact {clean(version.reference)}", quiet=invocation.as_json) as progress:
        path = version.download(output_dir, globs=globs, references=references, progress=progress)
    if invocation.as_json:
        say_json({"artifact": version.reference, "path": str(path)})
    else:
        say(f"{clean(version.reference)}: {clean(path)}")


@artifact.command()
@_reference
@click.option("--alias", "aliases", multiple=True, metavar="ALIAS", help="Give the version an alias; repeat it.")
@click.option("--remove-alias", multiple=True, metavar="ALIAS", help="Take an alias away; repeat it.")
@click.option("--comment", metavar="TEXT", help="Of the version.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata of the version to set; repeat it.")
@click.option("--description", metavar="TEXT", help="Of the artifact.")
@click.option("--name", metavar="NAME", help="Another name of the artifact.")
@workspace_option("The workspace to move the artifact to; empty: your personal one.")
@json_option
@pass_invocation
def edit(
    invocation: Invocation,
    reference: str,
    aliases: tuple[str, ...],
    remove_alias: tuple[str, ...],
    comment: str | None,
    metadata: tuple[str, ...],
    description: str | None,
    name: str | None,
    workspace: str | None,
) -> None:
    """Change what is written about an artifact or a version; the files of a version never change.

    \b
    Examples:
      det artifact edit cats:v3 --alias production
      det artifact edit cats --workspace vision
    """
    run = invocation.client.session.run
    named, version = split_artifact(reference)
    of_artifact = {"description": description, "name": name, "workspace": workspace}
    of_version = aliases or remove_alias or metadata or comment is not None
    if not of_version and all(value is None for value in of_artifact.values()):
        raise click.UsageError("name what is to be changed: see det artifact edit --help")
    view = run(artifacts.get_version(named, version)) if of_version else None
    if view is not None:
        view = run(
            artifacts.edit_version(
                view.artifact_id,
                view.version,
                add_aliases=list(aliases),
                remove_aliases=list(remove_alias),
                comment=comment,
                set_metadata=printing.metadata_of(metadata),
            )
        )
    changes = {key: value for key, value in of_artifact.items() if value is not None}
    whole = run(artifacts.edit_artifact(named, **changes)) if changes else None
    told = view if view is not None else whole
    if not invocation.answered(told):
        say(f"Changed {clean(reference)}")


@artifact.command()
@_reference
@_force
@yes_option
@json_option
@pass_invocation
def delete(invocation: Invocation, reference: str, force: bool, yes: bool) -> None:
    """Delete a version, or without a VERSION the artifact with all of them.

    \b
    Examples:
      det artifact delete cats:v1
      det artifact delete cats --force --yes
    """
    run = invocation.client.session.run
    name, version = split_artifact(reference)
    if ":" in reference:
        view = run(artifacts.get_version(name, version))
        said = f"{view.artifact_reference}:v{view.version}"
        confirmed(f"Delete {clean(said)} with its files? This cannot be undone.", yes=yes)
        gone = run(artifacts.delete_version(view.artifact_id, view.version, force=force))
        invocation.tell(gone, f"Deleted {clean(said)}")
        return
    one = run(artifacts.get_artifact(name))
    confirmed(f"Delete {clean(one.reference)} with {one.versions} versions? This cannot be undone.", yes=yes)
    whole = run(artifacts.delete_artifact(one.id, force=force))
    invocation.tell(whole, f"Deleted {clean(whole.reference)}")


@artifact.command()
@_reference
@json_option
@pass_invocation
def lineage(invocation: Invocation, reference: str) -> None:
    """Show what a version was made from, and what was made with it, up to versions of models.

    \b
    Example:
      det artifact lineage cats:raw
    """
    found = invocation.client.session.run(artifacts.lineage(*split_artifact(reference)))
    if invocation.answered(found):
        return
    printing.print_graph(found)
    back = _reversed(found)
    if back.edges:
        say("")
        printing.print_graph(back)


def _reversed(found: LineageGraph) -> LineageGraph:
    """Return what was made with something, of a graph of what it was made from."""
    edges = [
        LineageEdge(source=one.target, target=one.source, label=_BACK[one.label])
        for one in found.edges
        if one.label in _BACK
    ]
    head = found.nodes[0].id if found.nodes else ""
    return LineageGraph(nodes=found.nodes, edges=edges if any(one.source == head for one in edges) else [])
