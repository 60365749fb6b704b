"""200 no-op trials of ten reports under Ray Tune's ASHA, two at a time: prints one JSON object.

python noop_ray.py TRIALS REUSE FOLDER      REUSE: 1 keeps actors from trial to trial
"""

import json
import os
import sys
import time

os.environ.update(RAY_USAGE_STATS_ENABLED="0", TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1", RAY_AIR_NEW_OUTPUT="0")


def main():
    trials, reuse, folder = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3]
    import ray
    from ray import tune

    def train(config):
        for step in range(1, 11):
            tune.report({"loss": config["lr"] + 1.0 / step, "batches": step})

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    scheduler = tune.schedulers.ASHAScheduler(time_attr="batches", max_t=10, grace_period=1, reduction_factor=3)
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"lr": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            scheduler=scheduler,
            num_samples=trials,
            max_concurrent_trials=2,
            reuse_actors=reuse,
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    began = time.perf_counter()
    found = tuner.fit()
    seconds = time.perf_counter() - began
    assert len(found) == trials
    assert not found.errors
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
