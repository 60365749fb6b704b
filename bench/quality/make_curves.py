"""Make `data/curves.npz`: the log loss of 1,200 networks after each of 27 epochs, for each task of `models.py`.

    python bench/quality/make_curves.py --speech FOLDER [TASK ...]      minutes on one core

FOLDER has JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts, which the package `aeon` brings in
`aeon/datasets/data/JapaneseVowels`. A task's array is float16, 1,200×27, its rows in the order of `points`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from quality.curves import NETWORKS, SIZES, points
from quality.models import EPOCHS, TASKS, Batch, load, values

CHUNK = 100


def curves_of(task: str, speech: Path | None) -> np.ndarray:
    """Train all networks of a task."""
    data = load(task, speech)
    every = [values(point) for point in points(SIZES)]
    every_width = sorted(range(len(every)), key=lambda number: every[number]["width"])
    curves = np.zeros((len(every), EPOCHS), np.float16)
    for at in range(0, len(every), CHUNK):
        chosen = every_width[at : at + CHUNK]
        batch = Batch(data, [every[number] for number in chosen], seed=at)
        for epoch in range(EPOCHS):
            batch.epoch()
            curves[chosen, epoch] = batch.validate()
        print(f"{task}: {at + len(chosen)} of {len(every)}", flush=True)
    return curves


def main() -> None:
    """Train the tasks that are named, or all, and write the file; tasks that it has already are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--speech", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    made = dict(np.load(NETWORKS)) if NETWORKS.exists() else {}
    for task in given.tasks:
        began = time.perf_counter()
        made[task] = curves_of(task, given.speech)
        np.savez_compressed(NETWORKS, **made)
        print(f"{task}: {time.perf_counter() - began:.0f} s, best {made[task].min():.3f}", flush=True)


if __name__ == "__main__":
    main()
