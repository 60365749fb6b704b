"""200 no-op trials of ten reports under syne-tune's ASHA, two at a time: prints one JSON object.

python noop_syne.py TRIALS FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

TRIAL = """
import argparse
from syne_tune import Reporter
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_known_args()[0].lr  # syne-tune gives arguments of its own, too
report = Reporter()
for step in range(1, 11):
    report(loss=lr + 1.0 / step, batches=step)
"""


def main():
    trials, folder = int(sys.argv[1]), Path(sys.argv[2])
    os.environ["SYNETUNE_FOLDER"] = str(folder)
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import uniform
    from syne_tune.optimizer.baselines import ASHA

    script = folder / "trial.py"
    script.write_text(TRIAL)
    space = {"lr": uniform(0.0, 1.0)}
    scheduler = ASHA(space, metric="loss", time_attr="batches", max_t=10, grace_period=1, reduction_factor=3)
    tuner = Tuner(
        trial_backend=LocalBackend(entry_point=str(script)),
        scheduler=scheduler,
        stop_criterion=StoppingCriterion(max_num_trials_started=trials),
        n_workers=2,
        sleep_time=0.1,
        print_update_interval=1000,
    )
    began = time.perf_counter()
    tuner.run()
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
