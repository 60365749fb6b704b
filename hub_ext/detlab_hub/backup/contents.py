"""The content of an archive: parts of a state folder and its databases, and its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.engine import URL
from traitlets.config import Config

from detlab_hub.embedded.moves import ArchiveError
from detlab_hub.embedded.settings import read_config
from detlab_hub.embedded.state import StateFolder
from detlab_hub.store.engine import parse_url, sqlite_path

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 256 << 20
DATABASES: dict[str, str] = {"master": "detlab", "hub": "jupyterhub"}
"""Name of each database's copy in `db/`, without its ending."""
GIVEN_CONFIG = "given_config.py"
"""The file that `det up --config` named."""

DatabaseName = Literal["master", "hub"]
USERS_FILE = "users.json"
"""The uids that agents of earlier versions assigned; a database that has not assigned any takes them over."""
Part = Literal["state", "secrets", "code", "checkpoints"]
PARTS: dict[Part, tuple[str, ...]] = {
    "state": ("db", "plan.json", "detlab_config.py", GIVEN_CONFIG, USERS_FILE, "user_map.json"),
    "secrets": ("secrets", "certificate.pem", "servers.pem"),
    "code": ("bundles", "outputs"),
    "checkpoints": ("checkpoints", "artifacts", "media"),
}
"""Names in the state folder. Certificates are copied with their keys."""
OF_ONE_RUN = ("agent", "instances", "supervisor.json", "cluster.json")
"""Files of the processes of one cluster: a restored one starts without them."""


class BackupMember(BaseModel):
    """A file of an archive."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    size: int
    sha256: str


class BackupManifest(BaseModel):
    """The manifest of an archive; its last member.

    Attributes:
        format: Of the archive; a newer one is refused.
        detlab: Version that made it.
        schema_revision: Of the master's database.
        cluster_id: The id of the copied cluster.
        created_at: Seconds since the epoch.
        parts: The parts in it; restoring leaves other parts as they are.
        databases: Kind of each database: sqlite or postgresql.
        folder: The state folder that was copied.
        members: Its files, by name.
    """

    model_config = ConfigDict(extra="ignore")

    format: int
    detlab: str
    schema_revision: str | None
    cluster_id: str
    created_at: float
    parts: list[Part]
    databases: dict[DatabaseName, Literal["sqlite", "postgresql"]]
    folder: str
    members: dict[str, BackupMember]


def read_manifest(raw: bytes) -> BackupManifest:
    """Read a manifest.

    Raises:
        ArchiveError: It is not a manifest, or one of a newer version.
    """
    try:
        found = BackupManifest.model_validate_json(raw)
    except ValidationError as error:
        raise ArchiveError(f"its {MANIFEST} cannot be read: {error.errors()[0]['msg']}") from error
    if found.format > FORMAT:
        raise ArchiveError(
            f"it was made by detlab {found.detlab}, in a format ({found.format}) that this version does not know",
            hint="upgrade: pip install --upgrade 'detlab[hub]'",
        )
    return found


def config_of(folder: StateFolder, given: Path | None) -> Config:
    """Return the operator's configuration as the parts of a cluster read it.

    Args:
        folder: The state folder.
        given: A file to read after `detlab_config.py`.
    """
    files = [path for path in (folder.config_file, given) if path is not None and path.exists()]
    return read_config(files)


def database_urls(folder: StateFolder, config: Config) -> dict[DatabaseName, URL]:
    """Return the addresses of both databases; files by their absolute paths."""
    said: dict[DatabaseName, Any] = {
        "master": config.DetHub.get("db_url"),
        "hub": config.JupyterHub.get("db_url"),
    }
    return {
        name: _absolute(parse_url(str(url or f"sqlite:///{folder.root / 'db' / DATABASES[name]}.sqlite")), folder)
        for name, url in said.items()
    }


def _absolute(url: URL, folder: StateFolder) -> URL:
    path = sqlite_path(url)
    if url.get_backend_name() == "sqlite" and path is None:
        raise ArchiveError("a database in memory cannot be copied", hint="set c.DetHub.db_url to a file")
    return url if path is None else url.set(database=str(folder.root / path))
