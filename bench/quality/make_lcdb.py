"""Make `data/lcdb.npz` of the learning curves of LCDB 0.1 (Mohr et al., ECML PKDD 2022; MIT licence).

    pip download --no-deps --no-binary :all: lcdb==0.1.0 && tar xzf lcdb-0.1.0.tar.gz
    python bench/quality/make_lcdb.py lcdb-0.1.0/lcdb/database-accuracy.csv

Kept are, for each of 248 tasks, 20 learners and 5 outer splits, the validation error at each number of training
samples, in thousandths, a mean over the inner splits; 65,535 where there is none.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from quality.curves import LCDB, NONE


def main() -> None:
    """Read the database, write the file."""
    rows = pd.read_csv(sys.argv[1], usecols=["openmlid", "learner", "outer_seed", "size_train", "score_valid"])
    mean = rows.groupby(["openmlid", "learner", "outer_seed", "size_train"]).score_valid.mean().reset_index()
    learners, tasks = sorted(mean.learner.unique()), sorted(mean.openmlid.unique())
    sizes_of = {task: sorted(found) for task, found in mean.groupby("openmlid").size_train.unique().items()}
    most = max(map(len, sizes_of.values()))
    sizes = np.zeros((len(tasks), most), np.int32)
    errors = np.full((len(tasks), len(learners), 5, most), NONE, np.uint16)
    for at, task in enumerate(tasks):
        sizes[at, : len(sizes_of[task])] = sizes_of[task]
    places = {task: {size: at for at, size in enumerate(found)} for task, found in sizes_of.items()}
    for task, learner, split, size, score in mean.itertuples(index=False):
        where = tasks.index(task), learners.index(learner), split, places[task][size]
        errors[where] = round((1 - score) * 1000)
    names = [name.split(".")[-1] for name in learners]
    np.savez_compressed(LCDB, tasks=np.array(tasks, np.int32), learners=np.array(names), sizes=sizes, errors=errors)


if __name__ == "__main__":
    main()
