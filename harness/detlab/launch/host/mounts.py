"""Let a user reach a few paths behind directories that only root may enter, without opening those directories.

In a mount namespace of the task's own, an impassable ancestor (say `/root`, 0700, with the Python installation in
it) is covered by a small empty file system, and only the needed paths are bound back in. Nothing changes for any
other process.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from detlab.pasted import word

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 0x1, 0x2, 0x4, 0x20
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MAX_LINKS = 40


class Unreachable(Exception):
    """A path cannot be made reachable; the message says which directory is in the way and how to mend it."""


@dataclass(frozen=True)
class Need:
    """A path that the task must reach."""

    path: Path
    writable: bool = False


@dataclass(frozen=True)
class Route:
    """Where a needed path really lies, and the symbolic links met on the way there."""

    target: Path
    links: tuple[tuple[Path, str], ...]
    crossed: tuple[Path, ...]
    """Directories that must be passed, in order."""


def trace(path: Path) -> Route:
    """Follow `path` component by component.

    Raises:
        FileNotFoundError: A part of the path does not exist.
        OSError: There are too many links.
    """
    links: list[tuple[Path, str]] = []
    crossed: dict[Path, None] = {}
    parts = list(path.parts[1:])
    here = Path("/")
    while parts:
        part = parts.pop(0)
        if part == "..":
            here = here.parent
            continue
        crossed[here] = None
        step = here / part
        if stat.S_ISLNK(step.lstat().st_mode):
            if len(links) >= _MAX_LINKS:
                raise OSError(f"{path}: too many symbolic links")
            target = os.readlink(step)  # noqa: PTH115  # the text of the link, as it stands
            links.append((step, target))
            if target.startswith("/"):
                here = Path("/")
            parts = [piece for piece in target.split("/") if piece not in {"", "."}] + parts
            continue
        here = step
    return Route(here, tuple(links), tuple(crossed))


def passable(directory: Path, uid: int, gids: Iterable[int]) -> bool:
    """Whether the mode bits let this user pass a directory (search permission).

    Access control lists are not looked at; a directory that only they open is treated as closed, which is safe: the
    needed paths in it are then bound in.
    """
    info = directory.stat()
    if info.st_uid == uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid in set(gids):
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)


@dataclass(frozen=True)
class MountPlan:
    """What to cover and what to bind back in. Empty when the user can reach everything as it is."""

    covers: tuple[Path, ...] = ()
    binds: tuple[Need, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()


def make_plan(needs: Sequence[Need], uid: int, gids: Sequence[int]) -> MountPlan:
    """Decide how the user reaches every needed path; needs that do not exist are left out."""
    covers: dict[Path, None] = {}
    routes: list[tuple[Need, Route]] = []
    for need in needs:
        try:
            route = trace(need.path)
        except FileNotFoundError:
            continue
        routes.append((need, route))
        blocked = next((d for d in route.crossed if not passable(d, uid, gids)), None)
        if blocked is not None:
            covers[blocked] = None
    # A cover inside another cover disappears with it.
    tops = [c for c in covers if not any(c != other and c.is_relative_to(other) for other in covers)]

    def hidden(path: Path) -> bool:
        return any(path.is_relative_to(top) for top in tops)

    writable: dict[Path, bool] = {}
    for need, route in routes:
        if hidden(route.target):
            writable[route.target] = writable.get(route.target, False) or need.writable
    links = {link: text for _, route in routes for link, text in route.links if hidden(link)}
    # Parents before children: a deeper bind, perhaps a writable one, then lies on top.
    binds = [Need(path, writable[path]) for path in sorted(writable, key=lambda p: len(p.parts))]
    binds = [b for b in binds if not _covered_by(b, binds)]
    bound = [b.path for b in binds]
    kept = {k: v for k, v in links.items() if not any(k.is_relative_to(path) for path in bound)}
    return MountPlan(tuple(tops), tuple(binds), tuple(kept.items()))


def _covered_by(bind: Need, binds: Sequence[Need]) -> bool:
    """Whether a shorter bind of the same kind already shows this path."""
    return any(
        other.path != bind.path and bind.path.is_relative_to(other.path) and other.writable == bind.writable
        for other in binds
    )


def carry_out(plan: MountPlan) -> None:
    """Enter a private mount namespace and mount as planned; needs root with CAP_SYS_ADMIN.

    Raises:
        Unreachable: The kernel refused.
    """
    if not plan.covers:
        return
    try:
        enter_namespace()
        # The sources are opened before they are covered, and after unshare: a bind must come from this namespace.
        sources = [(bind, os.open(bind.path, os.O_PATH | os.O_CLOEXEC)) for bind in plan.binds]
        for cover in plan.covers:
            _mount("detlab", str(cover), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
        for bind, descriptor in sources:
            _bind(bind, descriptor)
            os.close(descriptor)
        for link, text in plan.links:
            link.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(text)
        for cover in plan.covers:
            _mount("none", str(cover), None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    except OSError as error:
        wanted = ", ".join(str(bind.path) for bind in plan.binds)
        raise Unreachable(
            f"{_names(plan.covers)} cannot be entered by the task's user, who needs {wanted} below it; a private "
            f"mount was refused ({error}). Move the installation to a directory that everybody may enter (for "
            f"example /opt), or run: chmod o+x {' '.join(map(word, plan.covers))}"
        ) from error


def enter_namespace() -> None:
    """Enter a mount namespace of this process's own, from which nothing gets out; needs root with CAP_SYS_ADMIN.

    Raises:
        OSError: The kernel refused.
    """
    _libc_call("unshare", _CLONE_NEWNS)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def bind_file(source: Path, target: Path) -> None:
    """Show a file in place of another one, read-only, in this mount namespace.

    Raises:
        OSError: The kernel refused.
    """
    _mount(str(source), str(target), None, _MS_BIND)
    _mount("none", str(target), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _bind(bind: Need, descriptor: int) -> None:
    source = f"/proc/self/fd/{descriptor}"
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        bind.path.mkdir(parents=True, exist_ok=True)
    else:
        bind.path.parent.mkdir(parents=True, exist_ok=True)
        bind.path.touch(exist_ok=True)
    _mount(source, str(bind.path), None, _MS_BIND | _MS_REC)
    if not bind.writable:
        _mount("none", str(bind.path), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    _libc_call(
        "mount",
        source.encode(),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )


def _libc_call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
