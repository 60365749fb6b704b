"""Methods that learn from finished trials where to look next: `tpe`, `gp`, `cmaes`, `nsga2`, `bayesian`.

The search itself (`method`) is deterministic and imports nothing heavy. Points come from Optuna's samplers (`samplers`)
in a separate process, which gets the search's records with each question.
"""
