"""Bundles that cost more than they weigh, and names that mean another place, at all who read bundles.

Each of the first three kept the master busy for minutes or ended a request with a traceback, out of 20 kB.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detlab.client.bundling.bundle import build_bundle
from detlab.errors import BundleError
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, members, open_bundle, tree_digest
from detlab.launch.layout import unpack
from detlab_hub.services.admission.preparing import bundle_files
from detlab_hub.services.experiments.code import LIMITS, list_files

MEMORY = 8 << 20
SECONDS = 10.0
"""Of processor time, with every allocation traced; each takes less than one without."""


def unpacked(archive: Path) -> list[str]:
    target = archive.parent / "target"
    target.mkdir()
    unpack(archive, target)
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if not path.is_dir())


def digested(archive: Path) -> list[str]:
    """What the master does with an upload, and an agent with a download."""
    assert tree_digest(archive).startswith("tree:")
    return [file.path for file in list_files(archive)]


READERS: list[Callable[[Path], list[str]]] = [
    unpacked,
    lambda archive: [file.path for file in list_files(archive)],
    lambda archive: sorted(bundle_files(archive)),
    digested,
]
READER = pytest.mark.parametrize("read", READERS, ids=["unpack", "code", "submission", "digest"])


def block(kind: bytes, name: str, body: bytes = b"", size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % tarfile.BLOCKSIZE)


def record(key: str, value: str) -> bytes:
    rest = f" {key}={value}\n".encode()
    length = len(rest) + len(str(len(rest)))
    return f"{length + (len(str(length)) > len(str(len(rest))))}".encode() + rest


def extended(**fields: str) -> bytes:
    body = b"".join(record(key.replace("__", "."), value) for key, value in fields.items())
    return block(tarfile.XHDTYPE, "x", body)


def chain() -> Iterator[bytes]:
    """Headers before headers: a level of recursion each."""
    for _ in range(1500):
        yield extended(comment="x")
    yield block(tarfile.REGTYPE, "a")


def chain_of_names() -> Iterator[bytes]:
    for _ in range(1500):
        yield block(tarfile.GNUTYPE_LONGNAME, "x", b"name\0")
    yield block(tarfile.REGTYPE, "a")


def sparse() -> Iterator[bytes]:
    """The map of a sparse file, read number by number, each out of a copy of the rest."""
    yield extended(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name="s", GNU__sparse__realsize="1")
    yield block(tarfile.REGTYPE, "a", b"99999999\n" + b"1\n" * 300_000)


def sparse_of_before() -> Iterator[bytes]:
    yield extended(GNU__sparse__size="1", GNU__sparse__numblocks="1", GNU__sparse__map="0,1" * 10_000)
    yield block(tarfile.REGTYPE, "a", b"x")


def fields() -> Iterator[bytes]:
    """Fields that nobody reads, 64 kB for each of many empty files: they stayed in memory."""
    for number in range(300):
        yield extended(comment="x" * 65_000)
        yield block(tarfile.REGTYPE, f"f{number}")
    yield block(tarfile.SYMTYPE, "link")


def digits() -> Iterator[bytes]:
    """What a search for "digits, then a word" takes quadratic time over (CVE-2024-6232)."""
    for number in range(40):
        yield extended(comment="1" * 65_000)
        yield block(tarfile.REGTYPE, f"f{number}")
    yield block(tarfile.SYMTYPE, "link")


def common() -> Iterator[bytes]:
    """Fields for all entries after them, of which each entry got a copy."""
    body = b"".join(record(f"k{number}", "v") for number in range(4000))
    for number in range(6):
        yield block(tarfile.XGLTYPE, "g", body)
        yield block(tarfile.REGTYPE, f"f{number}")
    yield block(tarfile.SYMTYPE, "link")


def large() -> Iterator[bytes]:
    """A thousandth of what it says."""
    yield block(tarfile.REGTYPE, "a", size=(2 << 30) + 1)
    yield bytes(1 << 20)


def negative() -> Iterator[bytes]:
    yield extended(size="-5")
    yield block(tarfile.REGTYPE, "a", b"x")


def malformed() -> Iterator[bytes]:
    yield block(tarfile.XHDTYPE, "x", b"-7 a=b\n0 c=d\n")
    yield block(tarfile.REGTYPE, "a", b"x")


BOMBS = [chain, chain_of_names, sparse, sparse_of_before, fields, digits, common, large, negative, malformed]


@READER
@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.__name__ for bomb in BOMBS])
def test_a_bomb_costs_next_to_nothing(tmp_path, read, bomb):
    archive = tmp_path / "bundle.tar.gz"
    with gzip.open(archive, "wb", 1) as file:
        for piece in bomb():
            file.write(piece)
        file.write(bytes(1024))
    assert archive.stat().st_size < 2 << 20
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises((UnsafeBundle, BundleError)):
            read(archive)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        assert time.process_time() - begin < SECONDS
    finally:
        tracemalloc.stop()


BAD_SUM = block(tarfile.REGTYPE, "b", b"x").replace(b"ustar", b"xstar")


@READER
@pytest.mark.parametrize(
    "rest",
    [
        extended(path="b") + bytes(1024),
        extended(path="b"),
        extended(path="b") + BAD_SUM + bytes(1024),
        block(tarfile.GNUTYPE_LONGNAME, "x", b"b\0") + extended(path="b") + bytes(1024),
        extended(path="b") + block(tarfile.GNUTYPE_LONGNAME, "x", b"b\0") + bytes(1024),
        BAD_SUM + bytes(1024),
        BAD_SUM[:100],
    ],
    ids=["end", "nothing", "sum", "name-end", "end-name", "plain-sum", "short"],
)
def test_a_bundle_that_is_damaged_after_its_first_file_is_refused_whole(tmp_path, read, rest):
    """It was taken for one that ends there."""
    archive = tmp_path / "bundle.tar.gz"
    with gzip.open(archive, "wb") as file:
        file.write(block(tarfile.REGTYPE, "a", b"x") + rest)
    with pytest.raises((UnsafeBundle, BundleError)):
        read(archive)


def test_nothing_beyond_the_limits_is_decompressed(tmp_path):
    """Zeros without end, of which one kilobyte makes a megabyte, in a file of the announced size."""
    archive = tmp_path / "bundle.tar.gz"
    limits = ArchiveLimits(size=1 << 20)
    with gzip.open(archive, "wb") as file:
        for _ in range(30):
            file.write(bytes(1 << 20))  # an archive ends at the first two empty blocks
    with open_bundle(archive, limits) as tar:
        assert list(members(tar, limits)) == []
        assert tar.fileobj.tell() < 100_000
    with gzip.open(archive, "wb", 1) as file:
        file.write(block(tarfile.DIRTYPE, "d", size=1 << 40))
        file.write(block(tarfile.REGTYPE, "a", size=1 << 40))
    with pytest.raises(UnsafeBundle), open_bundle(archive, limits) as tar:
        list(members(tar, limits))
    assert LIMITS.size <= ArchiveLimits().size


def archive_of(path: Path, name: str) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    return path


@READER
@pytest.mark.parametrize(
    "name", ["..", "../evil", "a/../../evil", "/etc/evil", "//etc/evil", "./../evil", "a/..", "..//evil", "x" * 1025]
)
def test_a_path_that_leads_out_is_refused(tmp_path, read, name):
    with pytest.raises((UnsafeBundle, BundleError)):
        read(archive_of(tmp_path / "bundle.tar.gz", name))
    assert not list(tmp_path.rglob("evil"))


@READER
@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e/evil",
        "%252e%252e%252fevil",
        "..%2fevil",
        "..\\evil",
        "C:\\evil",
        "\\\\host\\evil",
        "file:/etc/evil",
        "https:/elsewhere.example/evil",
        "~/evil",
        "$HOME/evil",
        "a\nb/evil",
        "\u202elive\x1b[31m",
        ".../evil",
        "..\u2215evil",
        "\uff0e\uff0e/evil",
    ],
)
def test_a_name_that_means_a_path_elsewhere_is_a_name_here(tmp_path, read, name):
    assert read(archive_of(tmp_path / "bundle.tar.gz", name)) == [name]
    assert not (tmp_path / "evil").exists()
    assert not Path("/etc/evil").exists()


@READER
def test_a_nul_ends_a_name_before_it_is_judged(tmp_path, read):
    archive = tmp_path / "bundle.tar.gz"
    with gzip.open(archive, "wb") as file:
        file.write(extended(path="safe\0/../../evil") + block(tarfile.REGTYPE, "a", b"x") + bytes(1024))
    with pytest.raises((UnsafeBundle, BundleError)):
        read(archive)


def test_what_the_client_packs_is_read_by_all(tmp_path):
    """Names of any length in any script, which travel in extended headers, and a header of `git archive`."""
    names = {f"{'ordner' * 20}/{'größe' * 30}/重み.py": "1", "a.py": "2", f"{'x' * 99}.py": "3"}
    bundle = build_bundle(files=names)
    for number, read in enumerate(READERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "bundle.tar.gz").write_bytes(bundle.data)
        assert read(folder / "bundle.tar.gz") == sorted(names)
    of_git = tmp_path / "git.tar.gz"
    with gzip.open(of_git, "wb") as file:
        commit = record("comment", os.urandom(20).hex())
        file.write(block(tarfile.XGLTYPE, "pax_global_header", commit) + block(tarfile.REGTYPE, "a.py", b"x"))
        file.write(bytes(1024))
    assert unpacked(of_git) == ["a.py"]
