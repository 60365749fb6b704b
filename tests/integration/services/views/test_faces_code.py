"""An experiment's code, file by file: what is listed, what is refused, and nobody else's."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config

from detlab.errors import BundleError, BundleTooLarge, NotFound
from detlab.launch.archives import ArchiveLimits
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.experiments.code import FILE_LIMIT, Code, list_files


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def archive(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


async def submit(world: World, tmp_path: Path, bundle: bytes, **more: Any) -> int:
    """An experiment of alice's that runs this bundle."""
    upload = tmp_path / "upload"
    upload.write_bytes(bundle)
    await world.services[Bundles].put(ALICE, sha(bundle), upload)
    made = await world.submit(config(**more), ALICE, bundle=sha(bundle))
    return made.id


@pytest.fixture
async def world(make_world) -> World:
    made: World = await make_world()
    return made


TRAIN = b"print('hello')\n"


async def test_faces_code_lists_files_and_gives_one_by_digest(world: World, tmp_path: Path) -> None:
    folder = tarfile.TarInfo("sub")
    folder.type = tarfile.DIRTYPE
    number = await submit(
        world, tmp_path, archive(("train.py", TRAIN), folder, ("sub/data.bin", b"\0\xff"), ("e", b""))
    )
    listed = await world.services[Code].list(ALICE, number)
    assert [(file.path, file.size, file.digest) for file in listed.items] == [
        ("e", 0, sha(b"")),
        ("sub/data.bin", 2, sha(b"\0\xff")),
        ("train.py", len(TRAIN), sha(TRAIN)),
    ]
    for caller in (ALICE, ROOT):
        assert await world.services[Code].file(caller, number, sha(TRAIN)) == TRAIN
    assert await world.services[Code].file(ALICE, number, sha(b"\0\xff")) == b"\0\xff"
    assert await world.services[Code].file(ALICE, number, sha(b"")) == b""


ENV = b"# of the site\nexport API_KEY=abc\nDB_URL = postgres://u:p@h/d\nPEM='-----BEGIN\nMIIEabc=\n'\n"


async def test_faces_code_shows_no_values_of_a_file_of_secrets(world: World, tmp_path: Path) -> None:
    """`.env` travels with the folder; everybody with whom the experiment is shared read it in the Code tab."""
    bundle = archive(("sub/.env", ENV), ("notes.txt", ENV), ("train.py", TRAIN), (".env.example", b"API_KEY=here\n"))
    number = await submit(world, tmp_path, bundle)
    shown = await world.services[Code].file(ALICE, number, sha(ENV))
    assert shown.decode() == (
        "# of the site\nexport API_KEY=(hidden)\nDB_URL =(hidden)\nPEM=(hidden)\n(hidden)\n(hidden)\n"
    )
    assert await world.services[Code].file(ALICE, number, sha(b"API_KEY=here\n")) == b"API_KEY=here\n"


async def test_faces_code_of_somebody_else_does_not_exist(world: World, tmp_path: Path) -> None:
    number = await submit(world, tmp_path, archive(("train.py", TRAIN)))
    with pytest.raises(NotFound):
        await world.services[Code].list(BOB, number)
    with pytest.raises(NotFound):
        await world.services[Code].file(BOB, number, sha(TRAIN))
    with pytest.raises(NotFound):
        await world.services[Code].list(ALICE, number + 1)


async def test_faces_code_gives_by_digest_only_never_by_path(world: World, tmp_path: Path) -> None:
    number = await submit(world, tmp_path, archive(("train.py", TRAIN)))
    for wanted in ("train.py", "../train.py", sha(b"other"), sha(TRAIN).upper(), sha(TRAIN)[7:], "", "sha256:x"):
        with pytest.raises(NotFound):
            await world.services[Code].file(ALICE, number, wanted)


async def test_faces_code_of_an_experiment_without_code_is_empty(world: World) -> None:
    made = await world.submit(config())
    assert (await world.services[Code].list(ALICE, made.id)).items == []
    with pytest.raises(NotFound):
        await world.services[Code].file(ALICE, made.id, sha(TRAIN))


async def test_faces_code_over_a_megabyte_is_listed_but_not_shown(world: World, tmp_path: Path) -> None:
    exact, over = b"x" * FILE_LIMIT, b"y" * (FILE_LIMIT + 1)
    number = await submit(world, tmp_path, archive(("exact", exact), ("over", over)))
    assert [file.size for file in (await world.services[Code].list(ALICE, number)).items] == [
        FILE_LIMIT,
        FILE_LIMIT + 1,
    ]
    assert await world.services[Code].file(ALICE, number, sha(exact)) == exact
    with pytest.raises(BundleTooLarge):
        await world.services[Code].file(ALICE, number, sha(over))


async def test_faces_code_that_is_gone_is_not_found(world: World, tmp_path: Path) -> None:
    number = await submit(world, tmp_path, archive(("train.py", TRAIN)))
    for path in (tmp_path / "bundles").rglob("*.tar.gz"):
        path.unlink()
    with pytest.raises(NotFound):
        await world.services[Code].list(ALICE, number)


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


@pytest.mark.parametrize(
    "bundle",
    [
        archive(("../evil", b"x")),
        archive(("/etc/passwd", b"x")),
        archive(link("a", "/etc/passwd")),
        b"no archive at all",
        archive(("a", b"x" * 5000))[:-30],
        b"",
    ],
    ids=["leads out", "absolute", "link", "garbage", "cut", "empty"],
)
def test_faces_code_of_a_hostile_bundle_is_refused(tmp_path: Path, bundle: bytes) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(bundle)
    with pytest.raises(BundleError):
        list_files(file)


def test_faces_code_of_a_bomb_is_read_only_so_far(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(archive(*((f"zeros-{number}", b"\0" * 100_000) for number in range(20))))
    with pytest.raises(BundleError, match="unpacked"):
        list_files(file, ArchiveLimits(size=1_000_000))
    with pytest.raises(BundleError, match="entries"):
        list_files(file, ArchiveLimits(entries=10))


def test_faces_code_with_names_that_are_no_text_can_be_sent(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(archive(("caf\udce9.py", b"x"), ("<script>.py", b"y"), ("a\nb", b"z")))
    names = [entry.path for entry in list_files(file)]
    assert names == ["<script>.py", "a\nb", "caf\N{REPLACEMENT CHARACTER}.py"]
    assert "\\ud" not in "".join(names).encode().decode()


def test_faces_code_a_path_that_comes_twice_is_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(archive(("a", b"first"), ("a", b"second")))
    (only,) = list_files(file)
    assert only.digest == sha(b"second")
