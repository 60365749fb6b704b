"""The command line, `det`. Sub-commands load when they are called."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """Run `det` with arguments (default: the process's) and exit with its status."""
    from detlab.cli.root import det

    sys.exit(det.main(args=list(args) if args is not None else None, prog_name="det"))
