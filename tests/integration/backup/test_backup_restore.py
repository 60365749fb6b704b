"""A state folder is copied and restored, on SQLite and PostgreSQL: what is in the archive, what becomes of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from backup_sites import Site, make_site
from click.testing import CliRunner, Result

from detlab.errors import DetlabError
from detlab_hub.backup import archive as archives
from detlab_hub.backup import commands, restoring
from detlab_hub.embedded import lifecycle, moves
from detlab_hub.embedded.moves import ArchiveError
from detlab_hub.embedded.state import StateFolder
from detlab_hub.store import Store, installation
from detlab_hub.store.queries import uids as queries
from detlab_hub.store.tables import CheckpointRow, RemovalRow, UidRow
from testbed.databases.store_rows import add_experiment, add_trial

NewSite = Callable[..., Site]


def config_of(site: Site) -> Path | None:
    """Configuration with the database of a site that is not filled yet."""
    path = site.root.parent / "config.py"
    return path if path.exists() else None


def restored_elsewhere(site: Site, new_site: NewSite, file: Path, **options) -> Site:
    site.backup(file, **options)
    other = new_site(filled=False)
    other.restore(file, config=config_of(other))
    return other


def test_a_restored_folder_has_all_that_the_first_had(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    other = restored_elsewhere(site, new_site, tmp_path / "x.tar.gz")
    query = "SELECT id, owner, state, config FROM experiments ORDER BY id"
    assert len(other.ask(query)) == site.experiments
    assert other.ask(query) == site.ask(query)
    before, after = site.tree(), other.tree()
    for name in ("bundles/ab/abcd", "outputs/ef01", "db/cluster_id", "users.json", "plan.json", "certificate.pem"):
        assert after[name] == before[name], name
    secrets = {name for name in before if name.startswith("secrets/")}
    assert len(secrets) > 8
    assert {name: after[name] for name in secrets} == {name: before[name] for name in secrets}
    assert {stat.S_IMODE((other.root / name).stat().st_mode) for name in secrets} == {0o600}
    assert stat.S_IMODE((other.root / "certificate.pem").stat().st_mode) == 0o644
    assert not [name for name in after if name.startswith(("logs/", "homes/", "agent/", "checkpoints/", ".restoring"))]


def test_the_archive_is_its_makers_alone_and_says_what_it_is(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    previous = os.umask(0)
    try:
        made = site.backup(tmp_path / "x.tar.gz")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(made.file.stat().st_mode) == 0o600
    assert (made.manifest.cluster_id, made.manifest.folder) == ("c0ffee", str(site.root))
    assert made.manifest.schema_revision == site.ask("SELECT version_num FROM alembic_version")[0][0]
    assert archives.verify(made.file) == made.manifest
    assert list(tmp_path.glob(".detlab-backup-*")) == []


def test_parts_can_be_left_out_and_are_left_alone_by_a_restore(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    made = site.backup(tmp_path / "x.tar.gz", secrets=False, code=False)
    assert made.manifest.parts == ["state"]
    assert not [name for name in made.manifest.members if name.split("/")[0] in {"secrets", "bundles", "outputs"}]
    assert "certificate.pem" not in made.manifest.members
    before = site.tree()
    site.restore(made.file, replace=True)
    after = site.tree()
    kept = [name for name in before if name.split("/")[0] in {"secrets", "bundles", "outputs", "homes", "checkpoints"}]
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}


def test_a_state_that_is_there_is_refused_or_goes_aside(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    made = site.backup(tmp_path / "x.tar.gz")
    (site.root / "users.json").write_text('{"ada": 20000, "later": 20001}')
    store = site.open()
    store.write_sync(lambda s: s.connection().exec_driver_sql("UPDATE experiments SET name = 'changed'"))
    store.close()
    before = site.tree()
    with pytest.raises(ArchiveError, match="not empty") as refused:
        site.restore(made.file)
    assert "--replace" in str(refused.value.hint)
    assert site.tree() == before
    done = site.restore(made.file, replace=True)
    assert done.aside is not None
    assert done.aside.is_dir()
    assert (done.aside / "users.json").read_text() == '{"ada": 20000, "later": 20001}'
    assert (done.aside / "secrets" / "user_token").read_bytes() == before["secrets/user_token"]
    assert "changed" not in {name for (name,) in site.ask("SELECT name FROM experiments")}
    assert (site.root / "homes" / "ada" / "notes.txt").read_text() == "mine"
    assert (site.root / "checkpoints" / "uuid-1" / "model.pt").read_bytes() == b"weights"
    if site.url.startswith("postgres"):
        assert done.database_copy is not None
        assert done.database_copy.read_bytes().startswith(b"PGDMP")
        assert stat.S_IMODE(done.database_copy.stat().st_mode) == 0o600
    else:
        aside = Site(site.folder, f"sqlite:///{done.aside}/db/detlab.sqlite")
        assert {name for (name,) in aside.ask("SELECT name FROM experiments")} == {"changed"}


def assign(site: Site, **uids: int) -> None:
    """Give users uids, as the master does."""

    def write(session) -> None:
        queries.lock_next(session)
        for owner, uid in uids.items():
            session.add(UidRow(owner=owner, uid=uid, account=False, since=1.0))
        queries.set_next(session, max(uids.values()) + 1)

    store = site.open()
    store.write_sync(write)
    store.close()


def test_uids_that_were_given_since_stay_their_owners(new_site: NewSite, tmp_path: Path) -> None:
    """Homes stay where they are: the next new user must not be given the uid that owns one of them."""
    site = new_site()
    assign(site, ada=20000, ben=20001)
    made = site.backup(tmp_path / "x.tar.gz")
    assign(site, later=20002, last=20003)
    site.restore(made.file, replace=True)
    assert site.ask("SELECT owner, uid FROM user_uids ORDER BY uid") == [
        ("ada", 20000),
        ("ben", 20001),
        ("later", 20002),
        ("last", 20003),
    ]
    store = site.open()
    assert store.write_sync(queries.lock_next) == 20004
    store.close()


def test_uids_of_the_file_that_were_given_since_stay_their_owners(new_site: NewSite, tmp_path: Path) -> None:
    """A database that has assigned none takes the file over, once."""
    site = new_site()
    made = site.backup(tmp_path / "x.tar.gz")
    (site.root / "users.json").write_text('{"ada": 20000, "later": 20001}')
    site.restore(made.file, replace=True)
    assert json.loads((site.root / "users.json").read_text()) == {"ada": 20000, "later": 20001}


def test_a_restored_master_gets_the_lease_at_once_under_a_new_epoch(new_site: NewSite, tmp_path: Path) -> None:
    """The copy is taken while a master runs, and says that it holds the lease."""
    site = new_site()
    old = site.open()
    try:
        made = site.backup(tmp_path / "x.tar.gz")
        other = new_site(filled=False)
        other.restore(made.file, config=config_of(other))
        new = Store.open(other.url, holder="the restored master")
        try:
            assert new.epoch > old.epoch
            assert new.write_sync(lambda s: 7) == 7
        finally:
            new.close()
        assert old.write_sync(lambda s: 8) == 8, "the old one has its own database, and is not disturbed"
    finally:
        old.close()


def test_checkpoints_come_along_and_are_found_in_the_new_folder(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    old, elsewhere = str(site.root / "checkpoints"), "/mnt/elsewhere"
    store = site.open()
    block = {"type": "shared_fs", "host_path": old, "save_trial_best": 1}

    def put(session) -> None:
        text = f"UPDATE experiments SET config = '{json.dumps({'checkpoint_storage': block})}' WHERE id = 1"
        session.connection().exec_driver_sql(text)
        other = json.dumps({"checkpoint_storage": {"type": "shared_fs", "host_path": elsewhere}})
        session.connection().exec_driver_sql(f"UPDATE experiments SET config = '{other}' WHERE id = 2")

    store.write_sync(put)
    store.close()
    (site.root / "checkpoints" / ".unfinished-20000").mkdir()
    (site.root / "checkpoints" / ".unfinished-20000" / "half").write_text("not yet")
    (site.root / "checkpoints" / "a link").symlink_to("/etc/passwd")
    os.mkfifo(site.root / "checkpoints" / "a pipe")
    if os.geteuid() == 0:
        os.chown(site.root / "checkpoints" / "uuid-1", 20000, 20000)
        os.chown(site.root / "checkpoints" / "uuid-1" / "model.pt", 20000, 20000)
    (site.root / "checkpoints" / "uuid-1").chmod(0o700)
    other = restored_elsewhere(site, new_site, tmp_path / "x.tar.gz", checkpoints=True)
    assert sorted(path.name for path in (other.root / "checkpoints").iterdir()) == ["uuid-1"]
    made = other.root / "checkpoints" / "uuid-1"
    assert (made / "model.pt").read_bytes() == b"weights"
    assert (made.stat().st_uid, made.stat().st_mode) == (
        (site.root / "checkpoints" / "uuid-1").stat().st_uid,
        (site.root / "checkpoints" / "uuid-1").stat().st_mode,
    )
    found = [
        json.loads(c) if isinstance(c, str) else c for (c,) in other.ask("SELECT config FROM experiments ORDER BY id")
    ]
    assert found[0] == {"checkpoint_storage": {**block, "host_path": str(other.root / "checkpoints")}}
    assert found[1]["checkpoint_storage"]["host_path"] == elsewhere


def test_what_was_in_the_trash_has_its_time_left_after_a_restore(
    new_site: NewSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken out of the trash since the backup would be removed at once: the copy does not know of that."""
    site = new_site()
    store = site.open()

    def put(session) -> None:
        experiment = add_experiment(session)
        trial = add_trial(session, experiment)
        for number, begun in enumerate((None, 5.0)):
            uuid = f"00000000-0000-4000-8000-{number:012d}"
            session.add(CheckpointRow(uuid=uuid, trial_id=trial, experiment_id=experiment, run=1, state="DELETED"))
            session.flush()
            session.add(RemovalRow(uuid=uuid, due_at=1000.0, begun_at=begun))

    store.write_sync(put)
    store.close()
    site.backup(tmp_path / "x.tar.gz")
    later = SimpleNamespace(time=lambda: time.time() + 9 * 86400, strftime=time.strftime)
    monkeypatch.setattr(restoring, "time", later)
    other = new_site(filled=False)
    other.restore(tmp_path / "x.tar.gz", config=config_of(other))
    (first,), (second,) = other.ask("SELECT due_at FROM checkpoint_removals ORDER BY uuid")
    assert first == pytest.approx(1000.0 + 9 * 86400, abs=600)
    assert second == 1000.0, "its files may be gone in part"


def test_a_damaged_archive_changes_nothing(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    file = tmp_path / "x.tar.gz"
    whole = site.backup(file).file.read_bytes()
    before, rows = site.tree(), site.ask("SELECT count(*) FROM experiments")
    for number, damaged in enumerate([whole[:-1000], whole[:200], b"", b"\0" * 1000, altered(whole)]):
        (tmp_path / f"damaged{number}").write_bytes(damaged)
        with pytest.raises(ArchiveError, match=r"not a valid archive|is damaged|not restored|cannot be read"):
            site.restore(tmp_path / f"damaged{number}", replace=True)
        assert site.tree() == before
    assert site.ask("SELECT count(*) FROM experiments") == rows


def altered(whole: bytes) -> bytes:
    """An archive whose container is sound, with one byte of a member changed."""
    import gzip

    raw = bytearray(gzip.decompress(whole))
    raw[raw.index(b"codecode") + 5] ^= 1
    return gzip.compress(bytes(raw))


def test_an_archive_of_a_newer_schema_is_refused(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    store = site.open()
    store.write_sync(lambda s: s.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    made = site.backup(tmp_path / "x.tar.gz")
    other = new_site(filled=False)
    with pytest.raises(ArchiveError, match="schema 9999"):
        other.restore(made.file, config=config_of(other))


@pytest.mark.postgres
def test_a_database_in_use_or_not_empty_is_refused(postgres_server, tmp_path: Path) -> None:
    with postgres_server.database("backup_in_use") as url:
        site = make_site(tmp_path / "first", url)
        made = site.backup(tmp_path / "x.tar.gz")
        other = Site(type(site.folder)(tmp_path / "second"), url)
        with pytest.raises(ArchiveError, match="is not empty"):
            other.restore(made.file)
        running = site.open()
        with pytest.raises(ArchiveError, match="in use by the master 'a master'"):
            other.restore(made.file, replace=True)
        running.close()
        done = other.restore(made.file, replace=True)
        assert done.database_copy is not None
        with pytest.raises(DetlabError, match="configuration says sqlite"):
            Site(type(site.folder)(tmp_path / "third"), url).restore(made.file, config=_empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty.py").write_text("")
    return folder / "empty.py"


def test_a_database_file_elsewhere_is_copied_and_restored(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    site = make_site(tmp_path / "site", f"sqlite:///{disk}/own.db")
    made = site.backup(tmp_path / "x.tar.gz")
    store = site.open()
    store.write_sync(lambda s: s.connection().exec_driver_sql("UPDATE experiments SET name = 'changed'"))
    store.close(release=False)
    (disk / "own.db-wal").write_bytes(b"left by a kill")
    other = Site(type(site.folder)(tmp_path / "other"), site.url)
    with pytest.raises(ArchiveError, match=r"own\.db is there already"):
        other.restore(made.file)
    other.restore(made.file, replace=True)
    assert "changed" not in {name for (name,) in site.ask("SELECT name FROM experiments")}
    assert len(list(disk.glob("own.db.before-*"))) == 1
    assert not (disk / "own.db-wal").exists()


def test_a_running_cluster_is_not_restored_into(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    made = site.backup(tmp_path / "x.tar.gz")
    with site.folder.lock(), pytest.raises(ArchiveError, match="a cluster runs"):
        site.restore(made.file, replace=True)


def test_a_backup_of_no_cluster_or_over_a_file_is_refused(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    site.backup(tmp_path / "x.tar.gz")
    with pytest.raises(ArchiveError, match="exists already"):
        site.backup(tmp_path / "x.tar.gz")
    with pytest.raises(ArchiveError, match="is not the state folder"):
        Site(type(site.folder)(tmp_path / "nothing"), "").backup(tmp_path / "y.tar.gz")
    assert not (tmp_path / "y.tar.gz").exists()


# --- crashes

KILLED = """
import os, shutil, sys
from pathlib import Path
from detlab_hub.backup.restoring import restore
from detlab_hub.embedded.state import StateFolder

archive, source, target = map(Path, sys.argv[1:])

def one(folder, left):
    def count(event, arguments):
        nonlocal left
        if event in {"os.rename", "os.mkdir", "os.remove", "os.rmdir"} and str(folder) in str(arguments[0]):
            left -= 1
            if left < 0:
                os._exit(9)
    sys.addaudithook(count)
    restore(archive, StateFolder(folder), replace=True, config=None, say=lambda text: None)
    os._exit(0)

for number in range(200):
    folder = target / f"killed{number}"
    shutil.copytree(source, folder, symlinks=True)
    child = os.fork()
    if child == 0:
        try:
            one(folder, number)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code)
    if code != 9:
        break
"""


def test_a_restore_that_is_killed_leaves_the_old_state_or_goes_on_to_the_new_one(tmp_path: Path) -> None:
    """At each change of a name in the folder; then `det up` finishes it, or finds the old state whole."""
    site = make_site(tmp_path / "first", None)
    made = site.backup(tmp_path / "x.tar.gz")
    store = site.open()
    store.write_sync(lambda s: s.connection().exec_driver_sql("UPDATE experiments SET name = 'changed'"))
    store.close()
    (site.root / "secrets" / "user_token").write_text("changed")
    old = essential(site)
    command = [sys.executable, "-c", KILLED, str(made.file), str(site.root), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    codes = [int(line) for line in done.stdout.split()]
    assert codes == [9] * (len(codes) - 1) + [0], done.stderr
    ended = []
    for number in range(len(codes)):
        folder = tmp_path / f"killed{number}"
        here = Site(type(site.folder)(folder), f"sqlite:///{folder}/db/detlab.sqlite")
        lifecycle._finish_restore(here.folder, lambda text: None)
        changed = "changed" in {name for (name,) in here.ask("SELECT name FROM experiments")}
        assert changed == (essential(here) == old), f"a mixture, killed at {number}"
        assert changed == ((folder / "secrets" / "user_token").read_text() == "changed"), f"a mixture at {number}"
        ended.append(changed)
    assert sorted(ended, reverse=True) == ended, "old up to some point, and new from there on"
    assert 2 < ended.count(False) < len(ended) - 2


def essential(site: Site) -> dict[str, bytes | None]:
    kept = ("secrets/", "bundles/", "outputs/", "plan.json", "agent/")
    return {name: value for name, value in site.tree().items() if name.startswith(kept)}


@pytest.mark.postgres
def test_a_restore_that_was_killed_while_it_filled_a_database_has_to_be_done_again(
    postgres_server, tmp_path: Path
) -> None:
    with postgres_server.database("backup_killed") as url:
        site = make_site(tmp_path / "first", url)
        made = site.backup(tmp_path / "x.tar.gz")
        intent = moves.Intent(archive=str(made.file), aside=str(tmp_path / "a"), waits_for_database=True, moves=[])
        moves.write_intent(site.folder, intent)
        with pytest.raises(ArchiveError, match="interrupted while its database was filled") as refused:
            lifecycle._finish_restore(site.folder, lambda text: None)
        assert f"det restore --replace --dir {site.root} {made.file}" in str(refused.value.hint)
        site.restore(made.file, replace=True)
        assert not site.folder.restore_note.exists()
        lifecycle._finish_restore(site.folder, lambda text: None)


# --- the command line


def test_the_commands_say_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path / "site", None)
    settled(site)
    monkeypatch.chdir(tmp_path)

    def run(command: click.Command, *arguments: str) -> Result:
        return CliRunner().invoke(command, arguments, catch_exceptions=True)

    made = run(commands.backup, "--dir", str(site.root), "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert Path(told["file"]).parent == tmp_path
    assert Path(told["file"]).name.startswith("detlab-c0ffee-")
    assert told["parts"] == ["state", "secrets", "code"]
    assert "Copying the database" in made.stderr
    refused = run(commands.restore, told["file"], "--dir", str(site.root))
    assert isinstance(refused.exception, ArchiveError)
    done = run(commands.restore, told["file"], "--dir", str(site.root), "--replace")
    assert done.exit_code == 0, done.output
    assert f"Next: det up --dir {site.root}" in done.stdout
    assert "What was there before is in" in done.stdout
    assert "It holds the cluster's secrets" in run(commands.backup, "--dir", str(site.root), "x.tar.gz").stdout
    again = run(commands.restore, "x.tar.gz", "--dir", str(site.root), "--replace", "--json")
    assert json.loads(again.stdout)["next"] == f"det up --dir {site.root}"


def settled(site: Site, *, take_over: bool = False) -> installation.Installation:
    """What a master that starts there finds that it is."""
    store = site.open()
    try:
        now = 1_800_000_000.0
        return store.write_sync(lambda s: installation.settle(s, site.url, now, take_over=take_over))
    finally:
        store.close()


def test_a_restored_copy_waits_to_be_told_and_the_original_does_not(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    first = settled(site)
    other = restored_elsewhere(site, new_site, tmp_path / "x.tar.gz")
    copy = settled(other)
    assert copy.is_copy
    assert settled(other) == copy, "a restart does not change it"
    assert settled(site) == first
    told = settled(other, take_over=True)
    assert (told.is_copy, told.epoch > first.epoch, told.instance != first.instance) == (False, True, True)
    assert settled(other) == told


def test_a_backup_of_an_earlier_version_is_a_copy_too(new_site: NewSite, tmp_path: Path) -> None:
    assert settled(restored_elsewhere(new_site(), new_site, tmp_path / "x.tar.gz")).is_copy


def test_a_restore_in_place_is_what_was_there_before(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    first = settled(site)
    made = site.backup(tmp_path / "x.tar.gz")
    assert not site.restore(made.file, replace=True).is_copy
    after = settled(site)
    assert (after.instance, after.epoch, after.is_copy) == (first.instance, first.epoch, False)


def test_a_copy_that_is_restored_anew_stays_a_copy(new_site: NewSite, tmp_path: Path) -> None:
    site = new_site()
    settled(site)
    other = restored_elsewhere(site, new_site, tmp_path / "x.tar.gz")
    settled(other)
    assert other.restore(tmp_path / "x.tar.gz", replace=True, config=config_of(other)).is_copy
    assert settled(other).is_copy


def test_a_folder_that_was_copied_by_hand_is_a_copy_and_a_moved_one_is_not(tmp_path: Path) -> None:
    site = make_site(tmp_path / "first" / ".detlab", None)
    first = settled(site)
    shutil.copytree(site.root, tmp_path / "second")
    copied = Site(StateFolder(tmp_path / "second"), f"sqlite:///{tmp_path}/second/db/detlab.sqlite")
    assert settled(copied).is_copy
    site.root.rename(tmp_path / "moved")
    moved = Site(StateFolder(tmp_path / "moved"), f"sqlite:///{tmp_path}/moved/db/detlab.sqlite")
    assert settled(moved) == first
