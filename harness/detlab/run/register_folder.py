"""The trial behind `det model register NAME --folder DIR`: it saves a folder of its code as a checkpoint.

    python -m detlab.run.register_folder FOLDER

So a model that was made elsewhere gets to where checkpoints lie, whatever storage that is, in its user's rights, and
has a lineage. No file is opened but to be copied.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from detlab import core


def main(arguments: Sequence[str] | None = None) -> int:
    """Save the folder; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1 or not Path(words[0]).is_dir():
        sys.stderr.write(f"name one folder of this task's code, not {words}\n")
        return 2
    with core.init() as core_context:
        uuid = core_context.checkpoint.upload(words[0], {"steps_completed": 0, "made_from": "folder"})
        # At a later step than the checkpoint's: it is no metric of the model.
        count = sum(path.is_file() for path in Path(words[0]).rglob("*"))
        core_context.train.report_validation_metrics(1, {"files": count})
    sys.stdout.write(f"the folder is checkpoint {uuid}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
