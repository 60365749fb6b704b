"""The wheel brings the front ends as they were built: nobody who installs it needs node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
)


@pytest.mark.slow
def test_the_wheel_has_the_built_front_ends_and_nothing_that_builds_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(
        build,
        env={**os.environ, "SKIP_JUPYTER_BUILDER": "1"},  # they are there: `make front` made them
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("detlab-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    for pattern in WANTED:
        found = [name for name in sizes if re.fullmatch(pattern, name)]
        assert found, pattern
        assert all(sizes[name] for name in found), pattern
    assert not [name for name in sizes if "node_modules" in name or name.endswith((".ts", ".tsx"))]
