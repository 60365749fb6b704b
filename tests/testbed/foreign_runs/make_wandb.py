"""Make the folder of wandb-0.31.zip or wandb-0.16.zip with W&B's own client: python make_wandb.py FOLDER

In an environment with `wandb==0.31.0 numpy pillow` or `wandb==0.16.6 "numpy<2" pillow setuptools`, nothing of which
is needed to read them. The log folders and `requirements.txt` are left out of the archives.
"""

import math
import os
import pathlib
import sys

import numpy as np
import wandb

CONFIG = {"lr": 0.1, "opt": "adam", "net": {"depth": 3, "bias": True}, "layers": [8, 4], "none": None}


def first() -> None:
    """Log a run with everything in it."""
    named = {"group": "g", "job_type": "train", "notes": "a **note**", "tags": ["a", "b"]}
    with wandb.init(project="digits", name="first", config=CONFIG, **named) as run:
        run.config.update({"batch": 16})
        for step in range(30):
            run.log({"loss": 1 / (step + 1), "val": {"acc": step / 30}, "odd": math.nan if step == 3 else 1.0})
        picture = wandb.Image(np.zeros((4, 4, 3), dtype=np.uint8))
        run.log({"picture": picture, "text": "said", "flag": True, "big": math.inf})
        run.log({"late": 5}, step=100)
        run.summary["best"] = 0.97
        run.summary["word"] = "done"
        run.summary["loss"] = 0.01
        pathlib.Path("weights.bin").write_bytes(b"w" * 64)
        run.save("weights.bin")
        pathlib.Path(run.dir, "own.txt").write_text("own")
        artifact = wandb.Artifact("data", type="dataset")
        artifact.add_file("weights.bin")
        run.log_artifact(artifact)


def large_and_failed() -> None:
    """Log a run with a record over several blocks, and one that fails."""
    with wandb.init(project="digits", name="large") as run:
        run.log({f"metric/{number}": float(number) for number in range(1500)})
    run = wandb.init(project="other", name="fails")
    run.log({"loss": 3})
    run.finish(exit_code=1)


if __name__ == "__main__":
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    first()
    large_and_failed()
