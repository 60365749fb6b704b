"""Bundles that would hurt the master, which lists their files when an experiment is submitted."""

import gzip
import io
import tarfile

import pytest

from detlab.errors import BundleError
from detlab_hub.services.admission.preparing import bundle_files

MIB = 1 << 20


def write_bundle(path, members):
    """A tar.gz of (header, bytes)."""
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for info, data in members:
            info.size = len(data)
            stream.write(info.tobuf(tarfile.GNU_FORMAT))
            stream.write(data + bytes(-len(data) % 512))
        stream.write(bytes(1024))


def header(name, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info


def test_the_files_of_a_bundle_are_listed(tmp_path):
    path = tmp_path / "b.tar.gz"
    write_bundle(path, [(header("./train.py"), b"x"), (header("d", tarfile.DIRTYPE), b""), (header("d/y.py"), b"")])
    assert bundle_files(path) == {"train.py", "d/y.py"}


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
def test_a_long_name_of_megabytes_is_not_read_into_memory(tmp_path, kind):
    """5 MB packed made the master read a name of 1 GB, and 95 MB, the cap, one that no machine holds."""
    path = tmp_path / "b.tar.gz"
    write_bundle(path, [(header("././@LongLink", kind), b"a" * MIB), (header("x"), b"")])
    with pytest.raises(BundleError, match="cannot be used"):
        bundle_files(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_no_agent_would_unpack_is_refused_at_submit(tmp_path, kind):
    path = tmp_path / "b.tar.gz"
    write_bundle(path, [(header("x", kind), b"")])
    with pytest.raises(BundleError, match="neither a regular file nor a directory"):
        bundle_files(path)


@pytest.mark.slow
def test_more_files_than_an_agent_unpacks_are_refused_at_submit(tmp_path):
    path = tmp_path / "b.tar.gz"
    write_bundle(path, [(header(f"f{number}"), b"") for number in range(50_001)])
    with pytest.raises(BundleError, match="50000 entries"):
        bundle_files(path)


@pytest.mark.parametrize("data", [b"", b"no gzip", gzip.compress(b"no tar" * 1000), gzip.compress(bytes(2048))[:-5]])
def test_what_is_no_archive_is_said(tmp_path, data):
    path = tmp_path / "b.tar.gz"
    path.write_bytes(data)
    with pytest.raises(BundleError):
        bundle_files(path)


def test_a_bundle_of_pythons_own_tarfile_is_listed(tmp_path):
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("a" * 150 + "/" + "b" * 90 + ".py")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"ok"))
    assert bundle_files(path) == {info.name}
