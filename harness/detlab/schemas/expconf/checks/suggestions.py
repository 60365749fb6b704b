"""Did you mean …? Hints for keys that no block knows."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any, TypeGuard

from detlab.schemas.expconf.blocks import searchers, stopping, storage
from detlab.schemas.expconf.blocks.environment import EnvironmentConfig, EnvironmentVariablesMap, ResourcesConfig
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.extras import OptimizationsConfig, ProfilingConfig, ReproducibilityConfig
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.expconf.blocks.searchers import UnnamedSearcher
from detlab.schemas.expconf.blocks.storage import UntypedStorage

WORD_CHARS, MOST_NAMES = 100, 1000
"""Characters of a word for which a similar one is looked for, and how many it may mean: people misspell no longer ones,
and the time grows with the square of the characters."""
RENAMED: dict[str, str] = {
    "batches_per_step": "it is called `scheduling_unit` since Determined 0.13, and deprecated",
    "hyperparameter": "it is called `hyperparameters`",
    "hparams": "it is called `hyperparameters`",
    "integration": "it is called `integrations`",
    "slots": "it is `resources.slots_per_trial`",
    "actions": "one policy has one `action`; write a second policy for a second action",
    "max_steps": "lengths are in training code, or `searcher.max_time` for adaptive searchers",
    "warm_start": "it is `searcher.warm_start` for results, `searcher.source_trial_id` for weights",
}

SYNONYMS: dict[str, tuple[str, ...]] = {
    "minval": ("min", "low", "lower", "min_value"),
    "maxval": ("max", "high", "upper", "max_value"),
    "vals": ("values", "choices", "list", "options"),
    "val": ("value",),
    "step": ("q",),
    "center": ("mean", "mu", "default"),
    "slot_hours": ("gpu_hours", "hours"),
    "wall_clock": ("time", "timeout", "max_time", "seconds", "time_budget"),
    "max_trials": ("n_trials", "num_trials", "num_samples", "run_cap", "budget_trials"),
    "max_concurrent_trials": ("n_jobs", "parallel_trials", "max_parallel", "parallelism"),
    "slots_per_trial": ("gpu", "gpus", "num_gpus", "n_gpus"),
    "smaller_is_better": ("direction", "goal", "minimize", "maximize", "mode"),
    "weights": ("probabilities", "probs"),
    "goal": ("target", "stop_score"),
}
"""Keys by the names that other tools have for them."""

_BAYESIAN = "use `bayesian`: a Gaussian process or TPE, chosen by space and budget"
METHODS: dict[str, str] = {
    "gridsearch": "use `grid`",
    "randomsearch": "use `random`",
    **dict.fromkeys(("quasirandom", "qmc", "qmcsampler", "halton"), "use `sobol`"),
    "optuna": "use `tpe`, `gp`, `cmaes` or `nsga2`, Optuna's samplers, or `bayesian`, which chooses",
    "hyperopt": "use `tpe`",
    "multivariatetpe": "use `tpe`, which is multivariate",
    **dict.fromkeys(("bayes", "bayesopt", "bayesianoptimization", "bo", "skopt", "ax", "smac", "auto"), _BAYESIAN),
    **dict.fromkeys(("gaussianprocess", "gpsampler", "botorch"), "use `gp`"),
    "nsgaii": "use `nsga2`",
    "evolution": "use `cmaes`, `dehb`, or `nsga2` for several metrics",
    "populationbasedtraining": "use `pbt`",
    **dict.fromkeys(("successivehalving", "sha"), "use `async_halving`, or `asha`"),
    "asynchyperband": "use `hyperband`, which is asynchronous",
    **dict.fromkeys(("median", "medianstop", "medianstopping"), "it is a policy: `stopping: [{name: median}]`"),
}
"""Which search method other tools' names stand for, by the name in small letters alone."""

MOST_LISTED = 16
"""Keys of a block that are listed for one that it does not know."""
_LOW, _HIGH, _CHOICES = ("min", "low", "lower"), ("max", "high", "upper"), ("values", "choices", "list")
_BESIDE = {"distribution", "q", "step", "log", "base", "count", "dtype"}


def normal(name: object) -> str:
    """Return a name in small letters, without what separates its words."""
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


_BLOCKS: dict[str, type[Block]] = {
    "": ExperimentConfig,
    "searcher": UnnamedSearcher,
    "resources": ResourcesConfig,
    "environment": EnvironmentConfig,
    "checkpoint_storage": UntypedStorage,
    "reproducibility": ReproducibilityConfig,
    "profiling": ProfilingConfig,
    "optimizations": OptimizationsConfig,
}


@cache
def _homes() -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for block, model in _BLOCKS.items():
        for key in model.model_fields:
            homes.setdefault(key, []).append(f"{block}.{key}" if block else key)
    return homes


def _of_siblings(key: str, model: type[Block]) -> str | None:
    """Return the hint for a key that other search methods or storage types have, and this one has not."""
    for field, members in (
        ("name", searchers.BUILT_IN),
        ("name", stopping.BUILT_IN),
        ("type", storage.MEMBERS),
    ):
        own = next((name for name, member in members.items() if member is model), None)
        having = [f"`{name}`" for name, member in members.items() if key in member.model_fields]
        if own is not None and having:
            whose = " and ".join([", ".join(having[:-1]), having[-1]] if having[1:] else having)
            return f"`{own}` does not use it; {whose} {'do' if having[1:] else 'does'}: remove it, or change `{field}`"
    return None


def closest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that is most like the given one, if any is close."""
    given, names = str(word).lower(), [name for name in islice(known, MOST_NAMES) if len(name) <= WORD_CHARS]
    if len(given) > WORD_CHARS:
        return None
    matches = difflib.get_close_matches(given, names, n=1, cutoff=0.7)
    if matches:
        return matches[0]
    # two letters in the other order are much of a short word
    return next((name for name in names if len(given) > 2 and sorted(name) == sorted(given)), None)


def _synonym(key: str, model: type[Block]) -> str | None:
    return next((own for own, others in SYNONYMS.items() if key.lower() in others and own in model.model_fields), None)


@cache
def _of_another_version(model: type[Block]) -> str:
    """Return the hint for a key that resembles no known one: client and master may differ in version."""
    try:
        here = f"detlab {version('detlab')}"
    except PackageNotFoundError:
        here = "this detlab"
    known = list(model.model_fields)
    listed = f" here (there are {', '.join(known)})" if 0 < len(known) <= MOST_LISTED else ""
    return f"{here} has no such key{listed}; a newer version may: compare client and master with `det version`"


def for_group(group: Mapping[str, Any]) -> str | None:
    """Return how a group of constants is written that looks like a range of another tool; None if it does not."""
    low, high, choices = (
        next((group[word] for word in words if word in group), None) for words in (_LOW, _HIGH, _CHOICES)
    )
    if not group.keys() <= {*_LOW, *_HIGH, *_CHOICES, *_BESIDE}:
        return None
    if isinstance(choices, list) and low is None and high is None:
        return f"for a choice write {{type: categorical, vals: {json.dumps(choices, default=str)[:60]}}}"
    if not (_is_number(low) and _is_number(high)):
        return None
    if group.get("log") is True and isinstance(low, int) and isinstance(high, int) and low >= 1:
        return f"for a range write {{type: int, minval: {low}, maxval: {high}, log: true}}"
    if "log" in str(group.get("distribution", "")).lower() or group.get("log"):
        ends = [f"{round(math.log10(end), 4) + 0.0:g}" if end > 0 else "…" for end in (low, high)]
        return f"for a range write {{type: log, base: 10, minval: {ends[0]}, maxval: {ends[1]}}}, in exponents"
    kind = "int" if isinstance(low, int) and isinstance(high, int) else "double"
    return f"for a range write {{type: {kind}, minval: {low}, maxval: {high}}}"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def for_key(key: object, model: type[Block], where: str) -> str:
    """Return a hint for an unknown key of a block.

    Args:
        key: The unknown key.
        model: The block that refused it.
        where: Path of the block; empty for the whole config.
    """
    text = str(key)
    if model is EnvironmentVariablesMap:
        return f"write NAME=VALUE texts, all in a list (or a list for each of cpu, cuda, rocm): [{text}=…]"
    if (others := _of_siblings(text, model)) is not None:
        return others
    near = _synonym(text, model) or closest(text, model.model_fields)
    if near is not None:
        return f"did you mean `{near}`?"
    if text in RENAMED:
        return RENAMED[text]
    elsewhere = [home for home in _homes().get(text, []) if home.rpartition(".")[0] != where]
    if len(elsewhere) == 1:
        return f"it belongs at `{elsewhere[0]}`"
    return _of_another_version(model)
