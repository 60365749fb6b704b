"""The unpacker against enemies: every way out of the directory, every bomb."""

import gzip
import io
import os
import tarfile

import pytest

from detlab.launch.layout import ArchiveLimits, UnsafeBundle, safe_path, unpack


def member(name, kind=tarfile.REGTYPE, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(tmp_path, *members, form=tarfile.PAX_FORMAT):
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target"
    path.mkdir()
    return path


def everything_below(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*"))


def test_files_directories_and_the_executable_bit(tmp_path, target):
    path = archive(
        tmp_path,
        member("pkg", tarfile.DIRTYPE, mode=0o777),
        member("pkg/a.py", data=b"a", mode=0o666),
        member("deep/er/run.sh", data=b"r", mode=0o4711),
        member("empty", mode=0),
    )
    assert unpack(path, target) == 3
    assert (target / "pkg/a.py").read_bytes() == b"a"
    modes = {name: (target / name).stat().st_mode & 0o7777 for name in ("pkg/a.py", "deep/er/run.sh", "empty")}
    assert modes == {"pkg/a.py": 0o644, "deep/er/run.sh": 0o755, "empty": 0o644}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_of_either_format_work(tmp_path, target, form):
    name = "d" * 90 + "/" + "f" * 90 + "/" + "ü" * 60
    assert unpack(archive(tmp_path, member(name, data=b"x"), form=form), target) == 1
    assert (target / name).read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "a/..", "..", "x" * 1025, "/".join("a" * 65)])
def test_paths_that_lead_out_or_are_too_long(tmp_path, target, name):
    with pytest.raises(UnsafeBundle):
        unpack(archive(tmp_path, member(name, data=b"x")), target)
    assert not (tmp_path / "evil").exists()
    assert not any(p.is_file() for p in target.rglob("*"))


def test_paths_that_tar_cannot_even_carry():
    for name in ("", "a\0b"):
        with pytest.raises(UnsafeBundle):
            safe_path(name)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S", b"V", b"z"]
)
def test_anything_but_files_and_directories_is_refused(tmp_path, target, kind):
    path = archive(tmp_path, member("link", kind, linkname="/etc/passwd"), member("link/x", data=b"x"))
    with pytest.raises(UnsafeBundle):
        unpack(path, target)
    assert everything_below(target) == []


def test_a_sparse_file_by_pax_headers_is_refused(tmp_path, target):
    info, data = member("sparse", data=b"0\n" + b"x" * 510)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
    with pytest.raises(UnsafeBundle):
        unpack(archive(tmp_path, (info, data)), target)


@pytest.mark.parametrize("second", [member("a", data=b"2"), member("A/../a", data=b"2"), member("a/b", data=b"2")])
def test_a_name_twice_is_refused(tmp_path, target, second):
    with pytest.raises(UnsafeBundle):
        unpack(archive(tmp_path, member("a", data=b"1"), second), target)
    assert (target / "a").read_bytes() == b"1"


def test_a_file_where_a_directory_is(tmp_path, target):
    with pytest.raises(UnsafeBundle):
        unpack(archive(tmp_path, member("d/x", data=b"1"), member("d", data=b"2")), target)


def test_a_file_with_a_file_as_its_parent_is_an_error(tmp_path, target):
    with pytest.raises(UnsafeBundle):
        unpack(archive(tmp_path, member("f", data=b"1"), member("f/x", data=b"2")), target)


def test_a_bomb_is_stopped_by_its_announced_size(tmp_path, target):
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("bomb")
    info.size = 1 << 30
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf())
        for _ in range(64):
            file.write(b"\0" * (1 << 20))
    with pytest.raises(UnsafeBundle, match="bytes unpacked"):
        unpack(path, target, ArchiveLimits(size=10 << 20))
    assert everything_below(target) == []


def test_many_small_files_add_up(tmp_path, target):
    members = [member(f"f{n}", data=b"x" * 100) for n in range(20)]
    with pytest.raises(UnsafeBundle, match="1000 bytes"):
        unpack(archive(tmp_path, *members), target, ArchiveLimits(size=1000))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UnsafeBundle, match="10 entries"):
        unpack(archive(tmp_path, *members), other, ArchiveLimits(entries=10))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_bomb_is_stopped_before_it_is_read_into_memory(tmp_path, target, kind):
    path = tmp_path / "bomb.tar.gz"
    info = tarfile.TarInfo("pax")
    info.type = kind
    info.size = 1 << 33
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.write(b"\0" * (1 << 20))
    with pytest.raises(UnsafeBundle):
        unpack(path, target)


@pytest.mark.parametrize("data", [b"", b"no gzip", gzip.compress(b"no tar" * 200), gzip.compress(b"x")])
def test_rubbish_is_no_bundle(tmp_path, target, data):
    path = tmp_path / "b"
    path.write_bytes(data)
    with pytest.raises(UnsafeBundle):
        unpack(path, target)


def test_a_truncated_bundle_is_an_error(tmp_path, target):
    whole = archive(tmp_path, member("a", data=os.urandom(100_000))).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnsafeBundle):
        unpack(tmp_path / "cut", target)
