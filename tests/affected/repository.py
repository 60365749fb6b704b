"""What git knows: the files, and which of them a change touches."""

from __future__ import annotations

import runpy
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "pyproject.toml"
MAKES_CLIENT = "harness/make_sync.py"
"""Makes modules that are imported like all others, and that git ignores."""


class Unknown(Exception):
    """Git knows no such state of the repository."""


@dataclass(frozen=True)
class Change:
    """What differs from an earlier state."""

    since: str
    files: frozenset[str]
    """Changed, added and deleted, but for `pyproject.toml` where only entry points changed."""
    targets: frozenset[str]
    """Modules whose entry points were added, changed or removed."""


@dataclass(frozen=True)
class EntryPoint:
    """One line of `[project.entry-points]` or `[project.scripts]`."""

    group: str
    name: str
    module: str


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints.

    Raises:
        Unknown: Git refuses.
    """
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unknown(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def all_files(root: Path) -> set[str]:
    """Return all files that git tracks or would add, and the modules that are made from others."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {path for path in (*listed, *made_modules(root)) if path and (root / path).is_file()}


def made_modules(root: Path) -> dict[str, str]:
    """Return the modules of the blocking client, each with the one that it is made from."""
    if not (root / MAKES_CLIENT).is_file():
        return {}
    maker = runpy.run_path(str(root / MAKES_CLIENT))
    folder = maker["CLIENT"].relative_to(root)
    return {str(folder / made): str(folder / origin) for origin, made in maker["MODULES"].items()}


def forked_at(root: Path) -> str:
    """Return where the branch left the main one: what `git diff` is asked about unless somebody says otherwise."""
    for main in ("origin/main", "main", "origin/master", "master"):
        try:
            return git(root, "merge-base", "HEAD", main).strip()
        except Unknown:
            continue
    raise Unknown("there is no branch main here; name a commit: make affected SINCE=HEAD~1")


def change(root: Path, since: str = "") -> Change:
    """Return what differs between an earlier commit and the working tree.

    Raises:
        Unknown: There is no such commit.
    """
    since = since or forked_at(root)
    named = git(root, "diff", "--name-only", "--no-renames", "-z", since, "--").split("\0")
    added = git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    files = {path for path in (*named, *added) if path}
    targets: set[str] = set()
    if PROJECT in files:
        now, then = tomllib.loads((root / PROJECT).read_text()), tomllib.loads(git(root, "show", f"{since}:{PROJECT}"))
        targets = {point.module for point in set(entry_points(now)) ^ set(entry_points(then))}
        if without_entry_points(now) == without_entry_points(then):
            files.remove(PROJECT)
    return Change(since, frozenset(files), frozenset(targets))


def entry_points(project: dict[str, Any]) -> list[EntryPoint]:
    """Return all entry points of a `pyproject.toml`."""
    groups = {**project["project"].get("entry-points", {}), "console_scripts": project["project"].get("scripts", {})}
    return [
        EntryPoint(group, name, target.partition(":")[0])
        for group, points in groups.items()
        for name, target in points.items()
    ]


def without_entry_points(project: dict[str, Any]) -> dict[str, Any]:
    """Return all else of a `pyproject.toml`."""
    rest = {key: value for key, value in project["project"].items() if key not in ("entry-points", "scripts")}
    return {**project, "project": rest}
