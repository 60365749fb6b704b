"""Configuration file of the embedded Hub; the state folder is in DETLAB_STATE_DIR."""

# ruff: noqa: F821  (the Hub runs this file with the names `c` and `load_subconfig`)
import os
from pathlib import Path

from detlab_hub.embedded.hub import load

load(c, load_subconfig, Path(os.environ["DETLAB_STATE_DIR"]))  # type: ignore[name-defined]  # as above
