"""What the installation itself switches on, with no option given by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_relay_is_enabled_by_installing_detlab(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    listing = subprocess.run(
        [sys.executable, "-m", "jupyter", "server", "extension", "list"],
        env={**env, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = listing.stdout + listing.stderr
    assert "- Validating detlab_server..." in said, said
    relay = said.split("- Validating detlab_server...")[1].splitlines()[1]
    assert "OK" in relay, said
