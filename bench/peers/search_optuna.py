"""Optuna's study of so many trials in a database: what a trial, an ask and a report with a decision cost. Prints JSON.

python search_optuna.py URL TRIALS MEASURED
"""

import json
import sys
import time


def main():
    url, before, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {"lr": FloatDistribution(1e-4, 1e-1, log=True), "layers": IntDistribution(1, 8)}
    space["act"] = CategoricalDistribution(["relu", "gelu"])
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=url, sampler=sampler, pruner=pruner, direction="minimize")
    done = [
        optuna.trial.create_trial(
            params={"lr": 0.01, "layers": 1 + number % 8, "act": "relu"},
            distributions=space,
            value=1.0 + number % 97,
            intermediate_values={1: 1.0 + number % 97},
        )
        for number in range(before)
    ]
    study.add_trials(done)
    found = {"ask": [], "report": [], "tell": []}
    for number in range(count):
        marks = [time.process_time()]
        trial = study.ask(space)
        marks.append(time.process_time())
        trial.report(1.0 + number % 89, 1)
        trial.should_prune()
        marks.append(time.process_time())
        study.tell(trial, 1.0 + number % 89)
        marks.append(time.process_time())
        for name, began, ended in zip(found, marks, marks[1:], strict=False):
            found[name].append((ended - began) * 1000)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
