"""What hatchling calls when it builds or installs detlab: makes the blocking client, and adds it to what is built."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MAKE_SYNC = Path("harness/make_sync.py")


class MakeSync(BuildHookInterface):
    """Also runs for editable installations and for a source distribution; needs nothing but the standard library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the modules; git ignores them, and what git ignores is in no wheel unless it is named."""
        maker = runpy.run_path(str(Path(self.root) / MAKE_SYNC))
        maker["make"]()
        folder = maker["CLIENT"].relative_to(self.root)
        build_data["artifacts"] += [f"/{folder / name}" for name in maker["MODULES"].values()]
