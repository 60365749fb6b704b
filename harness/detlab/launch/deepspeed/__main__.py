"""Run a script with one process per slot for DeepSpeed: Determined's name for it.

    python3 -m detlab.launch.deepspeed [torchrun overrides --] SCRIPT…

The processes are started as `detlab.launch.torch_distributed` does, over several nodes, too: neither DeepSpeed's own
launcher nor SSH between the nodes is needed. `DistributedContext.from_deepspeed()` reads what it sets.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from detlab.launch import torch_distributed


def main(arguments: Sequence[str] | None = None) -> int:
    """Become torchrun, which does not return; return 2 if the arguments are invalid, 1 if the nodes cannot meet."""
    return torch_distributed.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
