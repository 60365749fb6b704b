"""One import from beginning to end: open a source, find the workspace, copy runs and registered models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from detlab.client.operations import workspaces
from detlab.errors import ConfigError, DetlabError, Forbidden, Problem
from detlab.importers.copying import CopyOptions, Progress, RunCopies
from detlab.importers.destination import DEFAULT, ImportDestination
from detlab.importers.foreign import ImportSource
from detlab.importers.left_out import LeftOut
from detlab.importers.mlflow.folder import MlflowFolder
from detlab.importers.mlflow.server import MlflowServer
from detlab.importers.registry import RegistryCopies
from detlab.importers.report import ImportReport
from detlab.importers.tracking_api import TrackingApi
from detlab.importers.wandb.runs import WandbFolder
from detlab.schemas.wire.workspaces import folder_name

if TYPE_CHECKING:
    from detlab.client.client import Client
    from detlab.schemas.wire.workspaces import WorkspaceView

PREFIX = "mlflow/"
"""Below which the master speaks MLflow's protocol."""
NOWHERE = "Uncategorized"
"""The project of a personal workspace for what names none."""
_DATABASE = b"SQLite format 3\x00"


def mlflow_source(where: str, left_out: LeftOut, *, file_bytes: int, others_token: str | None) -> ImportSource:
    """Open what MLflow has.

    Args:
        where: The address of a tracking server, or a folder.
        left_out: Takes what is not read.
        file_bytes: Of a file, at most.
        others_token: The token for the cluster, which never goes to a server.

    Raises:
        DetlabError: It is neither.
    """
    scheme = urlsplit(where).scheme if "://" in where or where.startswith("file:") else ""
    if scheme in {"http", "https"}:
        return MlflowServer(where, left_out, file_bytes=file_bytes, others_token=others_token)
    if scheme and scheme != "file":
        raise _database(where)
    folder = Path(unquote(urlsplit(where).path) if scheme else where).expanduser()
    if _is_database(folder):
        raise _database(f"sqlite:///{folder.resolve()}")
    return MlflowFolder(_existing(folder), left_out)


def wandb_source(where: str, left_out: LeftOut) -> ImportSource:
    """Open a folder of W&B's runs.

    Raises:
        DetlabError: It is none.
    """
    return WandbFolder(_existing(Path(where).expanduser()), left_out)


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise DetlabError(f"there is no folder {folder}", hint="Name a folder on this machine.")
    return folder


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False


def _database(address: str) -> DetlabError:
    shown = urlsplit(address)
    named = address if not shown.password else address.replace(shown.password, "PASSWORD")
    return DetlabError(
        f"{named[:300]} is a database of MLflow, which is read through its server",
        hint=f"Start one where MLflow is installed, and name its address:\n"
        f"  mlflow server --backend-store-uri {named[:300]} --port 5000\n"
        f"  det import mlflow http://127.0.0.1:5000",
    )


def run_import(
    client: Client,
    source: ImportSource,
    left_out: LeftOut,
    options: CopyOptions,
    *,
    workspace: str = "",
    project: str = "",
    progress: Progress | None = None,
) -> ImportReport:
    """Copy a source into a cluster.

    Args:
        client: The cluster.
        source: What is read.
        left_out: Has what the source leaves out.
        options: What is copied.
        workspace: Where; empty: the personal one.
        project: Into which all runs go; empty: one for each experiment.
        progress: Told after each run.

    Raises:
        DetlabError: The source or the cluster does not answer, or the user may not write there.
    """
    view = _workspace(client, workspace)
    if not options.dry:
        client.session.address.unchanged("POST")
    api = TrackingApi(client.session.http, f"the cluster {client.address.url}", prefix=PREFIX)
    to = ImportDestination(api, view, _project(project, personal=view is None))
    to.check()
    named = "" if view is None else f"{view.owner}/{view.name}"
    report = ImportReport(source.label, named, options.dry, left_out)

    def stop() -> None:
        api.stopped.set()
        source.stop()

    copies = RunCopies(source, to, report, options, progress=progress, stop=stop)
    copies.copy()
    if options.files:
        RegistryCopies(source, client, api, copies, report, workspace=named, dry=options.dry).copy()
    return report


def _project(name: str, *, personal: bool) -> str:
    """Return the name of the project for all runs, as the protocol has it.

    Raises:
        ConfigError: It cannot be one.
    """
    if not name or (personal and name == NOWHERE):
        return DEFAULT if name else ""
    try:
        return folder_name(name)
    except ValueError as error:
        raise ConfigError([Problem("project", str(error))], f"{name[:200]!r} cannot be a project: {error}") from error


def _workspace(client: Client, name: str) -> WorkspaceView | None:
    """Return the workspace of a name; None: the caller's personal one."""
    if not name:
        return None
    view = client.session.run(workspaces.workspace(name))
    if not view.personal:
        return view
    if view.owner != client.whoami().name:
        raise Forbidden(
            f"{view.owner}'s personal workspace is theirs alone", hint="Name one of which you are a member: -w NAME"
        )
    return None
