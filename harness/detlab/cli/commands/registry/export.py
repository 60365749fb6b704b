"""`det model export`: a version in a form that others read."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, say, say_json
from detlab.errors import DetlabError

if TYPE_CHECKING:
    from detlab.export.oci_registry import Login
    from detlab.schemas.wire.registry import VersionView


@click.command()
@click.argument("reference", metavar="MODEL@VERSION")
@click.option(
    "--to",
    "form",
    type=click.Choice(["mlflow", "oci", "card", "bom"]),
    required=True,
    help="mlflow: a folder that MLflow loads and serves; oci: an artifact in a registry of containers; card: a model"
    " card in Markdown; bom: a bill of materials, CycloneDX.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder or file to create. Cards and bills are printed without.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The version's files, downloaded before. Default: they are downloaded, and removed afterwards.",
)
@click.option("--run-code", is_flag=True, help="mlflow: run the checkpoint's own code here, to trace its model.")
@click.option(
    "--example",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="mlflow: an input to trace with, .npy, .npz or .json. Default: the first batch of the training data.",
)
@click.option("--model", "model_index", type=int, metavar="INDEX", help="mlflow: which of the trial's models, from 0.")
@click.option("--registry", metavar="HOST/NAME[:TAG]", help="oci: where to push to. Default tag: the version's number.")
@click.option("--replace", is_flag=True, help="oci: take the tag from another artifact that has it.")
@click.option("--username", help="oci: who logs in. Default: what `docker login` stored.")
@click.option("--password-stdin", is_flag=True, help="oci: read the password from standard input.")
@click.option("--plain-http", is_flag=True, help="oci: without TLS, for a registry on this machine.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="oci: certificate of the authority that signed the registry's.",
)
@json_option
@pass_invocation
def export(
    invocation: Invocation,
    /,
    reference: str,
    form: str,
    output: Path | None,
    folder: Path | None,
    registry: str | None,
    **options: Any,
) -> None:
    """Write a version of a model in a form that others read.

    Nothing of the checkpoint is run unless --run-code says so. An export is whole or not there.

    \b
    Examples:
      det model export digits@production --to mlflow -o digits-mlflow --example batch.npy --run-code
      det model export digits@3 --to oci --registry localhost:5000/models/digits --plain-http
      det model export digits@3 --to card -o model-card.md
      det model export digits@3 --to bom
    """
    _check(form, output, registry, options)
    found = _version(invocation, reference)
    with _files(found, folder) as files:
        if form == "mlflow":
            assert output is not None
            done = _mlflow(found.view, files, output, options)
        elif form == "oci":
            assert registry is not None
            done = _oci(found.view, files, registry, options)
        else:
            done = _document(found.view, files, form, output)
    if invocation.as_json:
        say_json(done)
    elif "text" in done:
        say(done["text"].rstrip("\n"))
    else:
        say(f"{clean(found.view.model)} version {found.view.version} as {form}: {clean(done['where'])}")


def _check(form: str, output: Path | None, registry: str | None, options: dict[str, Any]) -> None:
    """Refuse options that do not go together, before anything is downloaded."""
    if form == "mlflow" and output is None:
        raise click.UsageError("--to mlflow needs a folder to create: -o FOLDER")
    if form == "oci" and registry is None:
        raise click.UsageError("--to oci needs a place to push to: --registry HOST/NAME[:TAG]")
    if form == "oci" and output is not None:
        raise click.UsageError("--to oci writes no file: leave -o out")
    own = {
        "mlflow": ("run_code", "example", "model_index"),
        "oci": ("replace", "username", "password_stdin", "plain_http", "ca_file"),
    }
    for of, names in own.items():
        given = [
            name for name in names if options[name] is not None and options[name] is not False and options[name] != ""
        ]
        if form != of and given:
            flag = "--model" if given[0] == "model_index" else "--" + given[0].replace("_", "-")
            raise click.UsageError(f"{flag} is for --to {of}")
    if bool(options["username"]) != options["password_stdin"]:
        raise click.UsageError("--username and --password-stdin go together")


def _version(invocation: Invocation, reference: str) -> Any:
    """Return the client's `ModelVersion`: `view` has its lineage, `download(folder)` its files."""
    client: Any = invocation.client
    return client.get_model_version(reference)


@contextmanager
def _files(found: Any, folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="detlab-export-") as scratch:
        yield Path(found.download(Path(scratch) / "files"))


def _mlflow(view: VersionView, files: Path, output: Path, options: dict[str, Any]) -> dict[str, Any]:
    from detlab.export.mlflow import write_mlflow

    chosen = {"run_code": options["run_code"], "example": options["example"], "model": options["model_index"]}
    return {"where": str(write_mlflow(view, files, output, **chosen))}


def _login(options: dict[str, Any]) -> Login:
    from detlab.export.oci_registry import Login

    password = sys.stdin.readline().rstrip("\r\n") if options["password_stdin"] else ""
    if options["password_stdin"] and not password:
        raise DetlabError("there is no password on standard input", hint="Pipe it: … < password-file")
    return Login(options["username"] or "", password, options["plain_http"], options["ca_file"])


def _oci(view: VersionView, files: Path, registry: str, options: dict[str, Any]) -> dict[str, Any]:
    from detlab.export.oci import push_oci

    pushed = push_oci(view, files, registry, _login(options), replace=options["replace"])
    return {"where": pushed.reference, "digest": pushed.digest, "layers": pushed.layers}


def _document(view: VersionView, files: Path, form: str, output: Path | None) -> dict[str, Any]:
    from detlab.export import bill_of_materials, contents_of, model_card
    from detlab.files import write_atomic

    text = (model_card if form == "card" else bill_of_materials)(view, contents_of(files))
    if output is None:
        return {"text": text}
    if os.path.lexists(output):
        raise DetlabError(f"{output} exists already", hint="Name a file that does not exist yet, or remove this one.")
    try:
        write_atomic(output, text.encode(), mode=0o644, replace=False)
    except OSError as error:
        raise DetlabError(f"{output} cannot be written: {error.strerror or error}") from error
    return {"where": str(output)}
