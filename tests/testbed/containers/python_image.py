"""A base image with a Python, made from this machine's: what `FROM python:3.12-slim` is where there is a registry.

Unlike the images of `docker_images` it is whole by itself, so that an image can be built from it.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.containers.docker import Engine

IMAGE = "testbed/python:1"
_PROGRAMS = (
    "bash dash sh env ls cat sleep echo id mkdir rm cp mv chmod chown date tail head grep sed uname true false nproc"
    " dirname basename tar"
)
_LIBRARIES = "libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libstdc++.so.6 libgcc_s.so.1 libgomp.so.1 libanl.so.1"
"""What wheels are linked with, beside what Python itself needs."""
_LEFT_OUT = re.compile(
    r"/(site|dist)-packages(/|$)|/lib/python3[^/]*/test(/|$)|__pycache__|\.a$|/(idlelib|tkinter)(/|$)"
)
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_WHEELS = Path("/usr/share/python-wheels")
"""pip for new environments, where a system's Python keeps it apart."""


def build(engine: Engine) -> None:
    """Make the image, unless the engine has it."""
    if engine.request("GET", f"/images/{IMAGE}/json")[0] == 200:
        return
    path = f"ENV PATH={sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    engine.add_image(IMAGE, _archive(), path, 'CMD ["python3"]')


def _archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):  # links of a merged /usr come first
            tar.add(f"/{name}", arcname=name, recursive=False)
        for name, mode in (
            ("tmp", 0o1777),
            *((name, 0o755) for name in ("proc", "sys", "dev", "run", "home", "opt", "root")),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        for name, text in _ACCOUNTS.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        done: set[str] = set()
        for found in sorted(_files()):
            _add(tar, found, done)
        for folder in (_LIBRARY, _WHEELS):
            if folder.is_dir():
                tar.add(folder, arcname=str(folder).lstrip("/"), filter=_kept)
    return buffer.getvalue()


def _files() -> set[str]:
    programs = [found for name in _PROGRAMS.split() if (found := shutil.which(name, path="/usr/bin:/bin"))]
    programs.append(f"{sys.base_prefix}/bin/python3")
    modules = [str(path) for path in _LIBRARY.glob("lib-dynload/*.so") if "_tkinter" not in path.name]
    linked = subprocess.run(["ldd", *programs, *modules], capture_output=True, text=True, check=False).stdout
    libraries = set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", linked, re.MULTILINE))
    folder = next((Path(name).parent for name in sorted(libraries) if "libc.so" in name), Path("/lib"))
    libraries |= {str(folder / name) for name in _LIBRARIES.split() if (folder / name).exists()}
    libraries |= {str(path) for path in (*folder.glob("libnss_*.so.2"), *Path("/lib64").glob("ld-linux-*.so.*"))}
    others = ("/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt")
    return {*programs, *libraries, *(name for name in others if Path(name).exists())}


def _add(tar: tarfile.TarFile, name: str, done: set[str]) -> None:
    """Add a file under its real folder, and what it links to."""
    path = Path(name)
    while True:
        path = path.parent.resolve() / path.name
        if str(path) in done:
            return
        done.add(str(path))
        tar.add(path, arcname=str(path).lstrip("/"), recursive=False)
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def _kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.search(f"/{info.name}") else info
