"""What is kept of the code of a run, and what of it is left out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.track.code import gather, masked, packages, without_password


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["python", "train.py", "--lr", "0.1"], ["python", "train.py", "--lr", "0.1"]),
        (["--api-key", "s3cret", "x"], ["--api-key", MASK, "x"]),
        (["--api-key=s3cret"], [f"--api-key={MASK}"]),
        (["--password", "--flag"], ["--password", "--flag"]),
        (["--hub_token", "a\nb"], ["--hub_token", MASK]),
    ],
)
def test_secrets_of_a_command_line_are_masked(words: list[str], shown: list[str]) -> None:
    assert masked(words) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:t0ken@git.example/a/b.git", "https://git.example/a/b.git"),
        ("https://git.example/a/b.git?token=x#y", "https://git.example/a/b.git"),
        ("git@git.example:a/b.git", "git@git.example:a/b.git"),
        ("ada:t0ken@git.example:a/b.git", "git.example:a/b.git"),
        ("/srv/git/b", "/srv/git/b"),
        ("", ""),
    ],
)
def test_an_address_is_kept_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_installed_packages_are_named_as_a_file_of_requirements_has_them() -> None:
    assert any(line.startswith("pydantic==") for line in packages())


def git(folder: Path, *words: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("a = 1\n")
    (folder / ".env").write_text("KEY=old\n")
    git(folder, "init")
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-m", "first")
    git(folder, "remote", "add", "origin", "https://me:pw@git.example/a.git")
    return folder


def test_a_run_of_a_commit_names_it_and_has_no_diff(repository: Path, tmp_path: Path) -> None:
    tags = gather(repository / "sub", str(repository / "train.py"), tmp_path / "files")
    assert len(tags["mlflow.source.git.commit"]) == 40
    assert tags["mlflow.source.git.branch"] == "main"
    assert tags["mlflow.source.git.repoURL"] == "https://git.example/a.git"
    assert (tmp_path / "files" / "code" / "train.py").read_text() == "a = 1\n"
    assert not (tmp_path / "files" / "code" / "diff.patch").exists()


def test_what_differs_from_the_commit_is_kept_but_for_files_of_secrets(repository: Path, tmp_path: Path) -> None:
    (repository / "train.py").write_text("a = 2\n")
    (repository / ".env").write_text("KEY=n3wsecret\n")
    (repository / "new.py").write_text("")
    tags = gather(repository / "sub", str(repository / ".env"), tmp_path / "files")
    diff = (tmp_path / "files" / "code" / "diff.patch").read_text()
    assert "+a = 2" in diff
    assert "n3wsecret" not in "".join(one.read_text() for one in (tmp_path / "files").rglob("*") if one.is_file())
    assert (tmp_path / "files" / "code" / "untracked.txt").read_text() == "new.py\n"
    assert tags["detlab.git.changed"] == "2"


def test_no_program_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\n")
    evil.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv"):
        git(repository, "config", name, str(evil))
    (repository / ".gitattributes").write_text("* diff=evil\n")
    (repository / "train.py").write_text("a = 3\n")
    gather(repository, "", tmp_path / "files")
    assert "+a = 3" in (tmp_path / "files" / "code" / "diff.patch").read_text()
    assert not marker.exists()


def test_a_folder_without_git_has_its_packages(tmp_path: Path) -> None:
    tags = gather(tmp_path, "", tmp_path / "files")
    assert tags["mlflow.source.type"] == "NOTEBOOK"
    assert "mlflow.source.git.commit" not in tags
    assert (tmp_path / "files" / "requirements.txt").stat().st_size > 0
