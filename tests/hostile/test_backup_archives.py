"""Archives of `det backup`: no other user reads one, and one that an attacker made reaches nothing but the state."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from detlab_hub.backup.archive import unpack, verify
from detlab_hub.backup.restoring import restore
from detlab_hub.backup.writing import BackupOptions, backup
from detlab_hub.embedded.moves import ArchiveError
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.store import Store


def quiet(message: str) -> None:
    """What is said on the way is no matter here."""


@pytest.fixture
def site(open_folder: Path, request: pytest.FixtureRequest) -> StateFolder:
    """A state folder where every user may look for it."""
    root = open_folder / request.node.name.partition("[")[0][:40] / ".detlab"
    root.parent.mkdir(mode=0o755)
    folder = StateFolder(root)
    folder.create()
    folder.make_secrets(["ada"], "ada")
    folder.write_plan(StartPlan(1, 2, 3, 4, "ada"))
    for name in ("detlab", "jupyterhub"):
        Store.open(f"sqlite:///{root}/db/{name}.sqlite", holder="x").close()
    return folder


def as_somebody(do: Callable[[], object]) -> bool:
    """Whether a user without rights could do something."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here because only root can become another user")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            do()
            code = 0
        except OSError:
            code = 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, 2}
    return code == 0


def test_no_other_user_reads_an_archive_while_it_is_made_or_afterwards(site: StateFolder) -> None:
    target = site.root.parent / "x.tar.gz"
    looked = []

    def look(*_: object) -> None:
        folder = site.root.parent
        readable = [
            str(path)
            for path in [*folder.iterdir(), *folder.glob(".detlab-backup-*/*")]
            if path != site.root and as_somebody(lambda path=path: os.scandir(path) if path.is_dir() else path.open())
        ]
        looked.append(readable)

    previous = os.umask(0)
    try:
        backup(site, BackupOptions(file=target), look)
    finally:
        os.umask(previous)
    look()
    assert len(looked) > 3
    assert [readable for readable in looked if readable] == []
    assert as_somebody(lambda: os.scandir(site.root.parent)), "the folder itself may be read"


def test_links_that_a_user_planted_among_checkpoints_are_not_followed(site: StateFolder) -> None:
    """A backup is root's: what it follows it reads, and what it restores it gives away."""
    secret = site.root.parent / "shadow"
    secret.write_text("only root reads this")
    secret.chmod(0o600)
    (site.root / "checkpoints" / "link").symlink_to(secret)
    (site.root / "checkpoints" / "folder").symlink_to(site.root.parent)
    made = site.root / "checkpoints" / "uuid"
    made.mkdir()
    (made / "model.pt").symlink_to(secret)
    (made / "state.pt").write_text("weights")
    target = site.root.parent / "x.tar.gz"
    backup(site, BackupOptions(file=target, checkpoints=True), quiet)
    raw = gzip.decompress(target.read_bytes())
    assert b"weights" in raw
    assert b"only root reads this" not in raw


def entry(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc", "size": 0}
HOSTILE = {
    "above": [entry("secrets/../../outside")],
    "absolute": [entry("/outside")],
    "in two steps": [entry("bundles/link", b"", **LINK), entry("bundles/link/outside")],
    "link": [entry("secrets/user_token", b"", **LINK)],
    "hard link": [entry("secrets/user_token", b"", type=tarfile.LNKTYPE, linkname="/etc/shadow")],
    "device": [entry("checkpoints/disk", b"", type=tarfile.BLKTYPE, devmajor=8)],
    "pipe": [entry("checkpoints/pipe", b"", type=tarfile.FIFOTYPE)],
    "agent": [entry("agent/token")],
    "home": [entry("homes/ada/.bashrc")],
    "lock": [entry("supervisor.lock")],
    "intent": [entry("restoring.json", b"{}")],
    "twice": [entry("plan.json"), entry("plan.json")],
    "empty name": [entry("secrets//token")],
    "dot": [entry("./plan.json")],
    "a folder as a file": [entry("bundles", b""), entry("bundles/x")],
    "larger than the disk": [entry("bundles/x", b"", size=1 << 60)],
}


def write(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], manifest: dict[str, object] | None) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content) if len(content) == info.size else None)
        if manifest is not None:
            info, content = entry("manifest.json", json.dumps(manifest).encode())
            tar.addfile(info, io.BytesIO(content))


def manifest_of(entries: list[tuple[tarfile.TarInfo, bytes]]) -> dict[str, object]:
    """What an attacker writes who knows the format: nothing but the entries themselves is wrong."""
    files = {info.name: content for info, content in entries if info.type == tarfile.REGTYPE}
    return {
        "format": 1,
        "detlab": "1",
        "schema_revision": None,
        "cluster_id": "x",
        "created_at": 0,
        "parts": ["state", "secrets", "code", "checkpoints"],
        "databases": {},
        "folder": "/",
        "members": {
            name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_reaches_nothing(name: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    folder = StateFolder(place / ".detlab")
    folder.create()
    before = sorted(str(path) for path in place.rglob("*"))
    hostile = tmp_path / "hostile.tar.gz"
    write(hostile, HOSTILE[name], manifest_of(HOSTILE[name]))
    with pytest.raises(ArchiveError) as refused:
        restore(hostile, folder, replace=True, config=None, say=quiet)
    assert refused.value.message.startswith((f"{hostile} is not restored", f"{hostile} is not a valid archive"))
    (folder.root / "supervisor.lock").unlink()
    assert sorted(str(path) for path in place.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.tar.gz", "place"]
    with pytest.raises(ArchiveError):
        verify(hostile)


def test_an_archive_that_lists_a_file_it_lacks_or_lacks_its_list_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "no_list.tar.gz", [entry("plan.json")], None)
    with pytest.raises(ArchiveError, match="has no end"):
        unpack(tmp_path / "no_list.tar.gz", tmp_path)
    write(tmp_path / "list.tar.gz", [], {"format": 99, "members": {}})
    with pytest.raises(ArchiveError, match=r"manifest\.json cannot be read"):
        verify(tmp_path / "list.tar.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["list.tar.gz", "no_list.tar.gz", "plan.json"]


def test_a_member_never_gets_rights_that_its_file_did_not_have(tmp_path: Path) -> None:
    """No setuid program, and nothing of the operator's for others to read that was not."""
    made = [entry("secrets/user_token", mode=0o4777), entry("checkpoints/u/run", mode=0o6755, uid=20000, gid=20000)]
    write(tmp_path / "x.tar.gz", made, None)
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "x.tar.gz", tmp_path)
    assert oct((tmp_path / "secrets" / "user_token").stat().st_mode & 0o7777) == oct(0o600)
    assert oct((tmp_path / "checkpoints" / "u" / "run").stat().st_mode & 0o7777) == oct(0o755)
