"""Images for a real node, made of nothing: a tree of mount points, on which the node mounts this machine's programs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PYTHON = "localhost/detlab-test/python:1"
"""Has this Python with all of detlab."""
BARE = "localhost/detlab-test/bare:1"
"""Has a shell, and finds no Python."""
PAUSE = "localhost/detlab-test/pause:1"
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_FOLDERS = ("usr", "etc", "etc/ssl", "proc", "sys", "dev", "run", "var", "root", "home", "opt")
ROOT = Path(__file__).parents[3]


def shown() -> list[Path]:
    """Return the folders of this machine that every container of the node sees."""
    found = [Path("/usr"), Path("/etc/ssl"), ROOT, Path(sys.prefix), Path(sys.base_prefix)]
    found.append(Path(sysconfig.get_path("purelib")))
    kept: list[Path] = []
    for path in sorted({one.resolve() for one in found}):
        if path.exists() and not any(path.is_relative_to(one) for one in kept):
            kept.append(path)
    return kept


def _parents(paths: Iterable[Path]) -> list[str]:
    names = {str(one).lstrip("/") for path in paths for one in [path, *path.parents]} - {"", "."}
    return sorted(names | set(_FOLDERS))


def layer(extra: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return a layer of mount points, with some files in it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, target in _LINKS.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
        for name in [*_parents(shown()), "tmp", "var/tmp"]:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(member)
        files = {"etc/passwd": (_PASSWD.encode(), 0o644), "etc/group": (b"root:x:0:\n", 0o644), **extra}
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def archive(name: str, content: bytes, environment: Mapping[str, str], command: Sequence[str]) -> bytes:
    """Return an image of one layer as `docker save` writes it."""
    digest = hashlib.sha256(content).hexdigest()
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Env": [f"{key}={value}" for key, value in environment.items()], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [],
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        parts = {"config.json": _json(config), "manifest.json": _json(manifest), f"{digest}/layer.tar": content}
        for path, part in parts.items():
            member = tarfile.TarInfo(path)
            member.size = len(part)
            tar.addfile(member, io.BytesIO(part))
    return data.getvalue()


def archives(pause: Path) -> dict[str, bytes]:
    """Return all images by their names; `pause` is the program that holds a pod's namespaces."""
    path = f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin"
    plain = layer({})
    return {
        PAUSE: archive(PAUSE, layer({"pause": (pause.read_bytes(), 0o755)}), {"PATH": "/"}, ["/pause"]),
        PYTHON: archive(PYTHON, plain, {"PATH": path, "LANG": "C.UTF-8"}, ["python3"]),
        BARE: archive(BARE, plain, {"PATH": "/opt/none"}, ["/bin/sh"]),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
