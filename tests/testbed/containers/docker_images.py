"""Images for tests, made on this machine in a moment, without a registry.

`EMPTY` has no files of its own: with `host_mounts()` it shows this machine's programs and this test environment, so
that anything the tests can import runs in a container too, JupyterLab and TensorBoard included. `BARE` is the same with
the Python that this environment was made from: without any package. `SHELL` is busybox alone: no Python.

A cluster whose agent gives every container the host's directories (`cluster_config()`) needs no mounts in its configs.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.containers.docker import Engine

EMPTY = "testbed/empty:1"
BARE = "testbed/bare:1"
SHELL = "testbed/shell:1"


def build_all(engine: Engine) -> None:
    """Make every image that the engine has not got yet."""
    for name, make in ((EMPTY, _empty), (BARE, _bare), (SHELL, _shell)):
        if engine.request("GET", f"/images/{name}/json")[0] != 200:
            make(engine)


def host_mounts() -> list[Path]:
    """Directories of this machine that make `EMPTY` a whole system, read-only under the same paths."""
    root = Path(__file__).resolve().parents[3]
    wanted = [Path("/usr"), Path("/etc/ssl"), Path(sys.base_prefix), Path(sys.prefix)]
    wanted += [root / "harness", root / "hub_ext", root / "kernel_magics", root / "server_ext"]
    found = dict.fromkeys(path for path in wanted if path.is_dir())
    return [path for path in found if not any(path != other and path.is_relative_to(other) for other in found)]


def cluster_config(*images: str) -> str:
    """Lines of `detlab_config.py`: containers may be used, and are whole systems.

    Args:
        images: What the Hub's form proposes.
    """
    volumes = [f"{path}:{path}:ro" for path in host_mounts()]
    return (
        f"c.EmbeddedCluster.docker = True\nc.EmbeddedCluster.docker_volumes = {volumes!r}\n"
        f"c.DetSpawner.images = {list(images)!r}\n"
    )


def spawner_config(spawner: str, engine: Engine) -> str:
    """Lines of a Hub's configuration: a spawner made from DockerSpawner starts servers in `EMPTY`, a whole system.

    Args:
        spawner: Name of the class.
        engine: Where it starts them.
    """
    traits = {
        "client_kwargs": {"base_url": engine.url, "version": "auto"},
        "image": EMPTY,
        "pull_policy": "never",
        "remove": True,
        "use_internal_ip": True,
        "network_name": "bridge",
        "cmd": ["jupyterhub-singleuser"],
        "read_only_volumes": {str(path): str(path) for path in host_mounts()},
        "notebook_dir": "/tmp",
        "environment": {"HOME": "/tmp"},
        "extra_create_kwargs": {"user": "1000:1000"},
    }
    return "".join(f"c.{spawner}.{name} = {value!r}\n" for name, value in traits.items())


def build_with_accounts(engine: Engine, image: str, files: Mapping[str, bytes], links: Mapping[str, str]) -> None:
    """Make an image like `EMPTY` with other accounts.

    Args:
        engine: Which gets it.
        image: Its name.
        files: Path without the first slash -> content; of `etc/passwd` and `etc/group` there is nothing else.
        links: The same for symbolic links.
    """
    _whole(engine, image, f"{sys.prefix}/bin:{sys.base_prefix}/bin", files, links)


def _empty(engine: Engine) -> None:
    _whole(engine, EMPTY, f"{sys.prefix}/bin:{sys.base_prefix}/bin", accounts_here())


def _bare(engine: Engine) -> None:
    _whole(engine, BARE, f"{sys.base_prefix}/bin", accounts_here())


def accounts_here() -> dict[str, bytes]:
    """Return this machine's accounts, as files of an image."""
    return {f"etc/{name}": Path("/etc", name).read_bytes() for name in ("passwd", "group")}


def _whole(
    engine: Engine, image: str, path: str, files: Mapping[str, bytes], links: Mapping[str, str] | None = None
) -> None:
    archive = whole_system(files, links)
    engine.add_image(image, archive, f"ENV PATH={path}:/usr/local/bin:/usr/bin:/bin", 'CMD ["/bin/sh"]')


def whole_system(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """Return a tar of what is a whole system once the host's directories are in it."""
    with _Archive() as archive:
        for name in ("usr", "etc", "proc", "sys", "dev", "root", "opt", "run", "var", "home"):
            archive.directory(name)
        for name in ("tmp", "var/tmp"):
            archive.directory(name, 0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            archive.link(name, f"usr/{name}")
        archive.file("etc/nsswitch.conf", Path("/etc/nsswitch.conf").read_bytes())
        for name, data in files.items():
            archive.file(name, data)
        for name, target in (links or {}).items():
            archive.link(name, target)
    return archive.data


def _shell(engine: Engine) -> None:
    busybox = shutil.which("busybox", path="/bin:/usr/bin")
    assert busybox is not None
    with _Archive() as archive:
        for name in ("bin", "proc", "sys", "dev", "etc"):
            archive.directory(name)
        archive.directory("tmp", 0o1777)
        archive.file("bin/busybox", Path(busybox).read_bytes(), 0o755)
        archive.link("bin/sh", "busybox")
    engine.add_image(SHELL, archive.data, 'CMD ["/bin/sh"]')


class _Archive:
    """A tar in memory."""

    def __enter__(self) -> _Archive:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")
        return self

    def __exit__(self, *error: object) -> None:
        self._tar.close()
        self.data = self._buffer.getvalue()

    def directory(self, name: str, mode: int = 0o755) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(info)

    def link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(info)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), mode
        self._tar.addfile(info, io.BytesIO(data))
