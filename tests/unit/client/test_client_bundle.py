"""Bundles: stable digests, git's ignore rules, links, limits."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.client.bundling.bundle import build_bundle
from detlab.errors import BundleError, BundleTooLarge
from detlab.schemas.bundles import BundleEntry, digest_of, file_name

NAMES = st.text("abcé .-_", min_size=1, max_size=6).filter(lambda name: name not in {".", ".."})
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=8)


def write(root: Path, tree: dict[str, bytes]) -> dict[str, bytes]:
    """Write what can be written of a tree; return what was."""
    written = {}
    for path, content in tree.items():
        file = root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            continue
        written[path] = content
    return written


def unpack(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
        assert all(member.isreg() and member.mtime == 0 and member.uid == member.gid == 0 for member in members)
        return {member.name: archive.extractfile(member).read() for member in members}


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, order=st.randoms(use_true_random=False))
def test_the_same_content_gives_the_same_digest(tmp_path: Path, tree: dict[str, bytes], order) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
    written = write(first, tree)
    shuffled = list(written.items())
    order.shuffle(shuffled)
    write(second, dict(shuffled))
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(0o600)
    one, two = build_bundle(first), build_bundle(second)
    entries = [BundleEntry(path, False, hashlib.sha256(content).hexdigest()) for path, content in written.items()]
    assert one.digest == two.digest == digest_of(entries)
    assert one.data == two.data
    assert unpack(one.data) == written
    assert [(file.path, file.size) for file in one.files] == sorted((p, len(c)) for p, c in written.items())


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, change=st.binary(min_size=1, max_size=10))
def test_any_change_changes_the_digest(tmp_path: Path, tree: dict[str, bytes], change: bytes) -> None:
    root = tmp_path / "tree"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    written = write(root, tree)
    before = build_bundle(root).digest
    (root / "new file").write_bytes(change)
    assert build_bundle(root).digest != before
    (root / "new file").unlink()
    for path in written:
        (root / path).write_bytes(written[path] + change)
        assert build_bundle(root).digest != before
        (root / path).write_bytes(written[path])
    assert build_bundle(root).digest == before


_WHOLE = re.compile(r"(\\.|\[[!^]?\]?[^\[\]\\-]*\]|[^\[\]\\])*")


def usual(pattern: str) -> bool:
    """Leave out where git departs from its own manual: `//`, and a `**` beside something else than a slash.

    And what is no pattern: an open bracket, a range or an escape that ends early. Git lets those match nothing.
    """
    if "//" in pattern or "\\/" in pattern or re.search(r"[^/]\*\*|\*\*[^/]", pattern):
        return False
    return _WHOLE.fullmatch(pattern) is not None and not re.search(r"\[[!^]?\]", pattern)


PATTERNS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "*",
                "*.b",
                "!a",
                "/a",
                "a/",
                "!a/b",
                "**/b",
                "a/**",
                "a/*/c",
                "[ab]",
                "[^/]",
                "[a/]",
                "?",
                "!*/",
                "#a",
                "",
            ]
        ),
        st.text("abc*?/![]-^\\ #:", min_size=1, max_size=7).filter(usual),
    ),
    max_size=5,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patterns=PATTERNS,
    paths=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join), min_size=1, max_size=8),
)
def test_ignore_rules_are_those_of_git(repository: Path, patterns: list[str], paths: list[str]) -> None:
    for entry in repository.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    written = write(repository, dict.fromkeys(paths, b""))
    (repository / ".gitignore").write_text("\n".join(patterns))
    told = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = {path for path in told.split("\0") if path} - {".gitignore"}
    (repository / ".detignore").write_text("\n".join(patterns))
    found = {file.path for file in build_bundle(repository).files} - {".gitignore", ".detignore"}
    assert found == expected, (patterns, sorted(written))


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("*\n!*/\n!*.py\n", ["a.py", "data/b.py", "data/keep/c.py"]),
        ("data/**\n!data/b.py\n", ["a.py", "data/b.py"]),
        ("data/*\n!data/keep/\n", ["a.py", "data/keep/c.py", "data/keep/x[1].txt"]),
        ("data/\n!data/b.py\n", ["a.py"]),
        ("!data\n", ["a.py", "data/b.py", "data/keep/c.py", "data/keep/x[1].txt"]),
        ("*.[[:lower:]][x-z]\nx\\[1].txt\n", []),
        ("**/keep\n", ["a.py", "data/b.py"]),
    ],
)
def test_usual_lists_do_what_they_do_in_git(tmp_path: Path, lines: str, kept: list[str]) -> None:
    for path in ("a.py", "data/b.py", "data/keep/c.py", "data/keep/x[1].txt", "data/__pycache__/b.pyc"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / ".detignore").write_text(lines)
    assert [file.path for file in build_bundle(tmp_path).files if file.path != ".detignore"] == kept


def test_defaults_stay_behind_and_can_be_taken_back(tmp_path: Path) -> None:
    for path in (".git/config", "pkg/__pycache__/a.pyc", ".venv/x", "node_modules/y", ".detlab/db", "a.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert [file.path for file in build_bundle(tmp_path).files] == ["a.py"]
    (tmp_path / ".detignore").write_text("!.venv/\n")
    assert [file.path for file in build_bundle(tmp_path).files] == [".detignore", ".venv/x", "a.py"]


def test_secrets_and_histories_never_travel(tmp_path: Path) -> None:
    """Regression: `!*/`, a usual line in lists of what to keep, took `.git` and `.detlab` back in."""
    for path in (".git/config", "sub/.git", ".detlab/secrets/user_token", "mine/secrets/user_token", "a.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / ".detignore").write_text("*\n!*/\n!*\n!.detlab/\n!.git\n")
    assert [file.path for file in build_bundle(tmp_path).files] == [".detignore", "a.py"]


def test_a_download_into_the_folder_of_an_experiment_is_not_sent_as_code(tmp_path: Path) -> None:
    uuid = "0b0cf1e4-1f2d-4c1a-9a53-3f0ea2c6e0a1"
    tree = {
        "train.py": b"",
        "best/model.safetensors": b"x",
        ".best.detlab": b"{}",
        f"checkpoints/{uuid}/metadata.json": b"{}",
        f"checkpoints/{uuid}/model.safetensors": b"x",
        ".other.0a1b2c3d.partial/model.safetensors": b"x",
        "own/model.safetensors": b"x",
    }
    write(tmp_path, tree)
    assert {file.path for file in build_bundle(tmp_path).files} == {"train.py", "own/model.safetensors"}
    named = {file.path for file in build_bundle(tmp_path, includes=[tmp_path / "best"]).files}
    assert named == {"train.py", "own/model.safetensors", "best/model.safetensors"}
    (tmp_path / ".detignore").write_text("!/best/\n")
    assert "best/model.safetensors" in {file.path for file in build_bundle(tmp_path).files}


def test_the_executable_bit_travels(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    before = build_bundle(tmp_path).digest
    (tmp_path / "run.sh").chmod(0o700)
    bundle = build_bundle(tmp_path)
    assert bundle.digest != before
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        assert [member.mode for member in archive.getmembers()] == [0o755]


def test_links_inside_are_followed_and_others_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "a.py").write_text("a")
    (root / "link.py").symlink_to("pkg/a.py")
    (root / "again").symlink_to("pkg")
    assert unpack(build_bundle(root).data) == dict.fromkeys(["again/a.py", "link.py", "pkg/a.py"], b"a")
    (tmp_path / "secret").write_text("s")
    (root / "out").symlink_to("../secret")
    (root / "dangling").symlink_to("nowhere")
    (root / "pkg" / "up").symlink_to("..")
    with pytest.raises(BundleError) as caught:
        build_bundle(root)
    for part in ("out: a link that leads out", "dangling: a broken link", "pkg/up: a link in a circle"):
        assert part in caught.value.message
    assert ".detignore" in str(caught.value.hint)
    (root / ".detignore").write_text("/out\ndangling\nup\n")
    assert "pkg/a.py" in {file.path for file in build_bundle(root).files}


def test_too_large_names_the_largest_and_the_way_out(tmp_path: Path) -> None:
    for n in range(8):
        with (tmp_path / f"data{n}.bin").open("wb") as file:
            file.truncate((n + 1) * 4 * 2**20)
    with pytest.raises(BundleTooLarge) as caught:
        build_bundle(tmp_path)
    text = str(caught.value)
    assert "144.0 MiB in 8 files; the limit is 95 MiB" in text
    assert [line.split()[-1] for line in text.splitlines()[1:6]] == [f"data{n}.bin" for n in (7, 6, 5, 4, 3)]
    assert f"'data7.bin' to {tmp_path}/.detignore" in text


def test_includes_and_memory_files(tmp_path: Path) -> None:
    root, extra = tmp_path / "root", tmp_path / "extra"
    (root / "lib").mkdir(parents=True)
    (root / "train.py").write_text("old")
    (root / "lib" / "a.py").write_text("a")
    extra.mkdir()
    (extra / "b.py").write_text("b")
    (tmp_path / "one.py").write_text("one")
    bundle = build_bundle(root, includes=[extra, tmp_path / "one.py"], files={"train.py": "new", "cell/x.py": b"x"})
    assert unpack(bundle.data) == {
        "cell/x.py": b"x",
        "extra/b.py": b"b",
        "lib/a.py": b"a",
        "one.py": b"one",
        "train.py": b"new",
    }
    assert bundle.replaced == ("train.py",)
    assert unpack(build_bundle(files={"a.py": "x"}).data) == {"a.py": b"x"}


def test_only_named_files_without_looking_at_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    (tmp_path / "out").symlink_to("/etc")
    assert [file.path for file in build_bundle(tmp_path, only=["a.py"]).files] == ["a.py"]
    for bad in ("b.py", "out/passwd", "../a.py"):
        with pytest.raises(BundleError):
            build_bundle(tmp_path, only=[bad])


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a//b", "a\\b", "", "a/./b"])
def test_memory_files_stay_inside(name: str) -> None:
    with pytest.raises(BundleError):
        build_bundle(files={name: "x"})


def test_a_file_cannot_be_a_directory_too() -> None:
    with pytest.raises(BundleError, match="a file and a directory"):
        build_bundle(files={"a": "x", "a/b": "y"})


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        build_bundle(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="is not a directory"):
        build_bundle(tmp_path / "file")
    with pytest.raises(BundleError, match=r"include .* does not exist"):
        build_bundle(tmp_path, includes=[tmp_path / "nowhere"])


def test_sockets_and_pipes_stay_behind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.py").write_text("a")
    assert [file.path for file in build_bundle(tmp_path).files] == ["a.py"]


def test_the_digest_is_written_down() -> None:
    """Other programs compute it, too, and stored bundles are known by it: it must not change."""
    bundle = build_bundle(files={"b.py": "print(1)", "a/é.txt": b""})
    text = (
        "detlab bundle 1\n"
        f"644 {hashlib.sha256(b'').hexdigest()} a/é.txt\0"
        f"644 {hashlib.sha256(b'print(1)').hexdigest()} b.py\0"
    )
    assert bundle.digest == f"tree:{hashlib.sha256(text.encode()).hexdigest()}"


def test_the_two_kinds_of_digests_are_stored_apart() -> None:
    number = "ab" * 32
    assert file_name(f"sha256:{number}") == f"{number}.tar.gz"  # where bundles of before lie
    assert file_name(f"tree:{number}") == f"tree-{number}.tar.gz"
    for odd in ("", number, f"md5:{number}", f"tree:{number}0", f"tree:{number.upper()}", f"tree:../{number[3:]}"):
        assert file_name(odd) is None
