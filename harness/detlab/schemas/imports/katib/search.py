"""A Katib `Experiment` (kubeflow.org/v1beta1) as an experiment config: objective, algorithm, parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.searcher_base import STEP_TIMES
from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.imports import spaces
from detlab.schemas.imports.katib import keys
from detlab.schemas.imports.katib.trials import add_trial
from detlab.schemas.imports.ledger import ImportKind, Ledger
from detlab.schemas.imports.spaces import ImportedAxis
from detlab.schemas.imports.trials import checkpoints_needed

API_VERSION = "kubeflow.org/v1beta1"
TRIALS = 100
"""Trials of a file that names no number: a search needs one."""
POPULATION = 40
"""Katib's default of `n_population`."""
PARALLEL = 3
"""Katib's default of `parallelTrialCount`."""
SEED = "reproducibility.experiment_seed"


@dataclass(frozen=True)
class Algorithm:
    """What becomes of a Katib algorithm.

    Attributes:
        method: The search method it becomes.
        settings: Where its settings go: a key of the searcher, or `SEED`.
        differs: What the method does differently.
    """

    method: str
    settings: dict[str, str] = field(default_factory=dict)
    differs: str = ""


_RESOURCE = {"r_l": "max_time", "eta": "divisor", "resource_name": "time_metric"}
_POPULATION = {
    "n_population": "population_size",
    "truncation_threshold": "replace_function.truncate_fraction",
    "resample_probability": "explore_function.resample_probability",
}
_STARTUP = {"random_state": SEED, "n_startup_trials": "startup_trials"}

ALGORITHMS: dict[str, Algorithm] = {
    "random": Algorithm("random", {"random_state": SEED}),
    "grid": Algorithm("grid", {"random_state": SEED}),
    "bayesianoptimization": Algorithm(
        "bayesian",
        {"random_state": SEED, "n_initial_points": "startup_trials"},
        "a Gaussian process or TPE of Optuna, chosen by space and budget",
    ),
    "tpe": Algorithm("tpe", _STARTUP, "Optuna's, multivariate"),
    "multivariate-tpe": Algorithm("tpe", _STARTUP),
    "cmaes": Algorithm("cmaes", {"random_state": SEED}),
    "sobol": Algorithm("sobol", {"random_state": SEED}),
    "hyperband": Algorithm("hyperband", _RESOURCE, "a trial pauses at its rung, and continues from its checkpoint"),
    "pbt": Algorithm("pbt", _POPULATION, "the whole population trains at a time"),
}
"""Katib's algorithms."""

REFUSED: dict[str, str] = {
    "enas": "a controller draws the architectures of `nasConfig`, and there is none here",
    "darts": "one trial trains all operations of `nasConfig` at once, and nothing here makes such a network",
}
"""Algorithms that search architectures, and why they cannot be imported."""
_NAS_HINT = "write the choices of layers as hyperparameters (nested ones, too) of random or tpe"
STRATEGIES = ("min", "max", "latest")
"""Katib's ways to make one value of a trial's reports."""


def recognises(raw: dict[str, Any]) -> bool:
    """Whether a parsed file is a Katib Experiment of the version that is read here."""
    return raw.get("apiVersion") == API_VERSION and raw.get("kind") == "Experiment"


def nearly(raw: dict[str, Any]) -> Problem | None:
    """Say what is wrong with a file that is a Katib Experiment of another version."""
    if not str(raw.get("apiVersion", "")).startswith("kubeflow.org/") or raw.get("kind") != "Experiment":
        return None
    return Problem("apiVersion", f"is {raw['apiVersion']}; only {API_VERSION} can be imported")


def ledger(raw: dict[str, Any]) -> Ledger:
    """Return the ledger of a Katib Experiment."""
    return Ledger(raw, keys.TARGETS, keys.REASONS, keys.shape)


def convert(ledger: Ledger) -> dict[str, Any]:
    """Return the config of a Katib Experiment."""
    config: dict[str, Any] = {}
    if _refused(ledger):
        return config
    _metadata(ledger, config)
    searcher = _searcher(ledger, config)
    resource = searcher.get("time_metric")
    config["hyperparameters"] = _hyperparameters(ledger, searcher, resource)
    add_trial(ledger, config)
    config["searcher"] = searcher
    _goal(ledger, config)
    _early_stopping(ledger, config)
    _strategies(ledger, searcher)
    if needs := checkpoints_needed(searcher):
        ledger.to_do.append(needs)
    if "metric" in searcher:
        ledger.to_do.append(
            f"report {searcher['metric']!r} by core.train.report_validation_metrics: what trials print is not read"
        )
    if resource is not None and resource not in STEP_TIMES:
        ledger.to_do.append(f"report {resource!r}, the searcher's time_metric, with it: how far the trial has trained")
    return config


def _refused(ledger: Ledger) -> bool:
    """Whether the file searches architectures, which is a mistake by its name."""
    path = ("spec", "algorithm", "algorithmName")
    name = str(ledger.at(path)).lower()
    if name in REFUSED:
        ledger.mistake(path, f"{name} searches architectures (NAS): {REFUSED[name]}", _NAS_HINT)
    elif ledger.at(("spec", "nasConfig")) is not None:
        ledger.mistake(("spec", "nasConfig"), "searches architectures (NAS), which nothing here does", _NAS_HINT)
    return bool(ledger.problems)


def _strategies(ledger: Ledger, searcher: dict[str, Any]) -> None:
    """Say what becomes of the strategy of the objective's metric: here a trial's best report counts."""
    above: Path = ("spec", "objective", "metricStrategies")
    best = "min" if searcher.get("smaller_is_better") else "max"
    for index, item in enumerate(ledger.items(above)):
        place = (*above, index)
        name, value = (item.get(key) if isinstance(item, dict) else None for key in ("name", "value"))
        if value not in STRATEGIES:
            ledger.mistake((*place, "value"), f"{value!r} is no strategy of Katib", f"it has {', '.join(STRATEGIES)}")
        elif name == searcher.get("metric") and value == best:
            ledger.left_out(place, f"not needed: a trial's best report counts, which is its {best}")
        elif name == searcher.get("metric"):
            ledger.left_out(place, f"{value}: a trial's best report counts here, which is its {best}")
            how = "once, when a trial ends" if value == "latest" else f"as the {value} of a trial so far"
            ledger.to_do.append(f"report {name!r} {how}: of several reports the {best} counts here, not the {value}")


def _metadata(ledger: Ledger, config: dict[str, Any]) -> None:
    name = ledger.text(("metadata", "name"))
    if name is not None:
        config["name"] = name
        ledger.kept(("metadata", "name"))
    labels = ledger.mapping(("metadata", "labels"))
    for key, value in labels.items():
        if isinstance(value, dict | list):
            ledger.mistake(("metadata", "labels", key), "must be a text")
            continue
        config.setdefault("labels", []).append(f"{key}={value}")
        ledger.kept(("metadata", "labels", key))


# --- the search


def _searcher(ledger: Ledger, config: dict[str, Any]) -> dict[str, Any]:
    name = _algorithm_name(ledger)
    algorithm = ALGORITHMS[name] if name else ALGORITHMS["random"]
    common = _objective(ledger)
    concurrent = _count(ledger, ("spec", "parallelTrialCount"))
    trials = _count(ledger, ("spec", "maxTrialCount"))
    settings, seed = _settings(ledger, algorithm)
    if seed is not None:
        config["reproducibility"] = {"experiment_seed": seed}
    budget = {"max_trials": trials or TRIALS, "max_concurrent_trials": concurrent or PARALLEL}
    block = _block(ledger, name or "random", common, budget, settings)
    _note_algorithm(ledger, algorithm, block, settings)
    _note_budget(ledger, block, trials)
    return block


def _algorithm_name(ledger: Ledger) -> str | None:
    path = ("spec", "algorithm", "algorithmName")
    name = ledger.text(path)
    if name is None:
        if not ledger.problems:
            ledger.mistake(path, "is missing", f"one of {', '.join(ALGORITHMS)}")
        return None
    if name.lower() not in ALGORITHMS:
        near = closest(name, ALGORITHMS)
        hint = f"did you mean `{near}`?" if near else f"known are {', '.join(ALGORITHMS)}"
        ledger.mistake(path, f"{name!r} is no algorithm of Katib that can be imported", hint)
        return None
    return name.lower()


def _block(
    ledger: Ledger, name: str, common: dict[str, Any], budget: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    match name:
        case "grid":
            block = {"name": "grid", **common, "max_concurrent_trials": budget["max_concurrent_trials"]}
            capped = ledger.at(("spec", "maxTrialCount")) is not None
            return {**block, "max_trials": budget["max_trials"]} if capped else block
        case "hyperband":
            return {"name": "hyperband", **common, **budget, **_resource(ledger, settings)}
        case "pbt":
            return _population(ledger, common, budget, settings)
        case _:
            return {"name": ALGORITHMS[name].method, **common, **budget, **settings}


def _resource(ledger: Ledger, settings: dict[str, Any]) -> dict[str, Any]:
    for key, to in _RESOURCE.items():
        if to not in settings and key != "eta":
            ledger.mistake(("spec", "algorithm", "algorithmSettings"), f"lacks `{key}`, which hyperband needs")
    return {"divisor": 3, **settings}


def _population(
    ledger: Ledger, common: dict[str, Any], budget: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    size = int(settings.get("population_size", POPULATION))
    block: dict[str, Any] = {
        "name": "pbt",
        **common,
        "population_size": size,
        "num_rounds": max(1, math.ceil(budget["max_trials"] / max(size, 1))),
        "time_metric": "steps",
        "length_per_round": 1,
        "replace_function": {},
        "explore_function": {"resample_probability": 0},
    }
    for target, value in settings.items():
        group, _, key = target.partition(".")
        if key:
            block[group][key] = value
    ledger.added("searcher.length_per_round", "1: a Katib trial is one round, as long as its command trains")
    ledger.to_do.append("set `searcher.length_per_round` to the steps that one Katib trial trained")
    return block


def _note_algorithm(ledger: Ledger, algorithm: Algorithm, block: dict[str, Any], settings: dict[str, Any]) -> None:
    path = ("spec", "algorithm", "algorithmName")
    if ledger.at(path) is None:
        return
    if algorithm.differs:
        ledger.changed(path, algorithm.differs)
    else:
        ledger.kept(path)
    known = dict(_setting_places(ledger, algorithm))
    above: Path = ("spec", "algorithm", "algorithmSettings")
    for index, item in enumerate(ledger.items(above)):
        if (*above, index) not in known and isinstance(item, dict):
            ledger.left_out((*above, index), f"{item.get('name')}: {block['name']} has no such setting")
    for place, target in known.items():
        if target != SEED and target.partition(".")[0] not in block:
            ledger.left_out((*place, "name"), f"{block['name']} has no such setting")
            ledger.left_out((*place, "value"), f"{block['name']} has no such setting")


def _note_budget(ledger: Ledger, block: dict[str, Any], trials: int | None) -> None:
    path = ("spec", "maxTrialCount")
    if ("max_trials" in block or "num_rounds" in block) and trials is None:
        ledger.added("searcher.max_trials", f"{TRIALS}: the file names no number of trials, and a search needs one")
    if "num_rounds" in block and trials is not None:
        ledger.changed(path, f"{trials} trials of Katib are so many rounds of a population", "searcher.num_rounds")
    parallel = ("spec", "parallelTrialCount")
    if ledger.at(parallel) is None and "max_concurrent_trials" in block:
        ledger.added("searcher.max_concurrent_trials", f"Katib's default, {PARALLEL}")
    elif ledger.at(parallel) is not None and "max_concurrent_trials" not in block:
        ledger.left_out(parallel, f"{block['name']} has no such limit")


def _setting_places(ledger: Ledger, algorithm: Algorithm) -> list[tuple[Path, str]]:
    """Return the places of the settings that have a counterpart, with their targets."""
    above: Path = ("spec", "algorithm", "algorithmSettings")
    found = [((*above, index), item) for index, item in enumerate(ledger.items(above))]
    return [
        (place, algorithm.settings[str(item["name"])])
        for place, item in found
        if isinstance(item, dict) and str(item.get("name")) in algorithm.settings
    ]


def _settings(ledger: Ledger, algorithm: Algorithm) -> tuple[dict[str, Any], int | None]:
    found: dict[str, Any] = {}
    for place, target in _setting_places(ledger, algorithm):
        raw = ledger.at((*place, "value"))
        value: Any = raw if target == "time_metric" else number(raw)
        if value is None or (target == "time_metric" and not isinstance(raw, str)):
            ledger.mistake((*place, "value"), f"must be {'a text' if target == 'time_metric' else 'a number'}")
            continue
        found[target] = math.ceil(value) if target == "max_time" else value
        to = target if target == SEED else f"searcher.{target}"
        ledger.kept((*place, "name"), to)
        ledger.kept((*place, "value"), to)
    seed = found.pop(SEED, None)
    return found, None if seed is None else int(seed)


def _objective(ledger: Ledger) -> dict[str, Any]:
    at = ("spec", "objective")
    block: dict[str, Any] = {}
    metric = ledger.text((*at, "objectiveMetricName"))
    if metric is None:
        ledger.mistake((*at, "objectiveMetricName"), "is missing")
    else:
        block["metric"] = metric
        ledger.kept((*at, "objectiveMetricName"))
    kind = ledger.at((*at, "type"))
    if kind not in ("minimize", "maximize"):
        ledger.mistake((*at, "type"), "must be minimize or maximize")
    else:
        block["smaller_is_better"] = kind == "minimize"
        ledger.kept((*at, "type"))
    return block


def _count(ledger: Ledger, path: Path) -> int | None:
    value = ledger.at(path)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        ledger.mistake(path, "must be a whole number of at least 1")
        return None
    ledger.kept(path)
    return value


# --- when trials end


def _goal(ledger: Ledger, config: dict[str, Any]) -> None:
    path = ("spec", "objective", "goal")
    raw = ledger.at(path)
    if raw is None:
        return
    goal = number(raw)
    if goal is None:
        ledger.mistake(path, "must be a number")
        return
    config["searcher"]["goal"] = goal
    ledger.kept(path)


_MEDIAN = {"min_trials_required": ("min_trials", 3), "start_step": ("warmup", 4)}


def _early_stopping(ledger: Ledger, config: dict[str, Any]) -> None:
    at: Path = ("spec", "earlyStopping")
    if ledger.at(at) is None:
        return
    name = ledger.at((*at, "algorithmName"))
    if name != "medianstop":
        ledger.mistake((*at, "algorithmName"), f"{name!r} is no early stopping of Katib", "it has medianstop")
        return
    ledger.changed((*at, "algorithmName"), "compares best reports, not running averages")
    policy: dict[str, Any] = {"name": "median"} | dict(_MEDIAN.values())
    for index, item in enumerate(ledger.items((*at, "algorithmSettings"))):
        place = (*at, "algorithmSettings", index)
        key = item.get("name") if isinstance(item, dict) else None
        value = number(item.get("value")) if isinstance(item, dict) else None
        if not isinstance(key, str) or key not in _MEDIAN:
            if key is not None:
                ledger.left_out(place, f"{key}: the policy has no such setting")
            continue
        if value is None:
            ledger.mistake((*place, "value"), "must be a number")
            continue
        policy[_MEDIAN[key][0]] = int(value)
        ledger.kept((*place, "name"), f"stopping.{_MEDIAN[key][0]}")
        ledger.kept((*place, "value"), f"stopping.{_MEDIAN[key][0]}")
    config.setdefault("stopping", []).append(policy)


# --- the space


def number(value: object) -> float | int | None:
    """Return the number that a value is or, as Katib writes it, spells; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return spaces.rounded(found) if math.isfinite(found) else None


def _hyperparameters(ledger: Ledger, searcher: dict[str, Any], resource: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, item in enumerate(ledger.items(("spec", "parameters"))):
        at: Path = ("spec", "parameters", index)
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            ledger.mistake((*at, "name"), "is missing")
            continue
        if name in found:
            ledger.mistake((*at, "name"), f"{name!r} is given twice")
            continue
        if name == resource and "max_time" in searcher:
            why = f"it is {searcher['max_time']}, as r_l says: a trial trains to the end unless it is stopped"
            axis = ImportedAxis(
                searcher["max_time"], why, ("parameterType", "min", "max", "step", "list", "distribution")
            )
        else:
            axis = _axis(ledger, at, grid=searcher["name"] == "grid") or ImportedAxis(None)
        found[name] = axis.spec
        _note_parameter(ledger, at, axis, f"hyperparameters.{name}")
    return found


def _note_parameter(ledger: Ledger, at: Path, axis: ImportedAxis, to: str) -> None:
    ledger.kept((*at, "name"), to)
    if "parameterType" in axis.unused:
        ledger.left_out((*at, "parameterType"), axis.differs)
    elif ledger.at((*at, "parameterType")) is not None:
        ledger.kept((*at, "parameterType"), to)
    space = ledger.at((*at, "feasibleSpace"))
    for key, value in space.items() if isinstance(space, dict) else ():
        if key not in ("min", "max", "step", "list", "distribution"):
            continue
        places: list[Path] = [(*at, "feasibleSpace", key)]
        if key == "list":
            places = [(*places[0], index) for index in range(len(value) if isinstance(value, list) else 0)]
        for place in places:
            if key in axis.unused:
                ledger.left_out(place, axis.differs)
            elif axis.differs:
                ledger.changed(place, axis.differs, to)
            else:
                ledger.kept(place, to)


def _axis(ledger: Ledger, at: Path, *, grid: bool) -> ImportedAxis | None:
    kind = ledger.at((*at, "parameterType"))
    match kind:
        case "categorical" | "discrete":
            return _choices(ledger, at, numeric=kind == "discrete")
        case "int" | "double":
            return _range(ledger, at, kind, grid=grid)
        case _:
            ledger.mistake((*at, "parameterType"), "must be double, int, discrete or categorical")
            return None


def _choices(ledger: Ledger, at: Path, *, numeric: bool) -> ImportedAxis | None:
    values = ledger.items((*at, "feasibleSpace", "list"))
    if not values:
        ledger.mistake((*at, "feasibleSpace", "list"), "must have values")
        return None
    if not numeric:
        return spaces.choice(values)
    numbers = [number(value) for value in values]
    if None in numbers:
        ledger.mistake((*at, "feasibleSpace", "list"), "must have numbers, since the type is discrete")
        return None
    return spaces.choice(sorted(one for one in numbers if one is not None), ordered=True)


def _bounds(ledger: Ledger, at: Path, kind: str) -> tuple[Any, Any, Any] | None:
    before = len(ledger.problems)
    found: list[Any] = []
    for key in ("min", "max", "step"):
        raw = ledger.at((*at, "feasibleSpace", key))
        value = None if raw in (None, "") else number(raw)
        if value is None and (key != "step" or raw not in (None, "")):
            ledger.mistake((*at, "feasibleSpace", key), "is missing" if raw is None else "must be a number")
        elif value is not None and kind == "int" and not isinstance(value, int):
            ledger.mistake((*at, "feasibleSpace", key), "must be a whole number, since the type is int")
        elif key == "step" and value is not None and value <= 0:
            ledger.mistake((*at, "feasibleSpace", key), "must be above 0")
        found.append(value)
    if len(ledger.problems) > before:
        return None
    low, high, step = found
    if low > high:
        ledger.mistake((*at, "feasibleSpace"), f"min {low} is above max {high}")
        return None
    return low, high, step


def _range(ledger: Ledger, at: Path, kind: str, *, grid: bool) -> ImportedAxis | None:
    bounds = _bounds(ledger, at, kind)
    if bounds is None:
        return None
    low, high, step = bounds
    distribution = ledger.at((*at, "feasibleSpace", "distribution")) or "uniform"
    if distribution not in ("uniform", "logUniform", "normal", "logNormal"):
        ledger.mistake((*at, "feasibleSpace", "distribution"), "must be uniform, logUniform, normal or logNormal")
        return None
    logarithm = distribution in ("logUniform", "logNormal")
    if logarithm and low <= 0:
        ledger.mistake((*at, "feasibleSpace", "min"), "must be above 0 on a logarithmic scale")
        return None
    if kind == "int":
        axis = spaces.whole(low, high, step, grid=grid)
        if logarithm and (axis := spaces.on_log_scale(axis)).differs:
            return axis
    elif logarithm:
        axis = spaces.logarithmic(low, high, step, grid=grid)
    else:
        axis = spaces.real(low, high, step, grid=grid)
    return spaces.around_middle(axis) if distribution in ("normal", "logNormal") else axis


IMPORT = ImportKind(
    "Katib Experiment", f"`apiVersion: {API_VERSION}` and `kind: Experiment`", recognises, ledger, convert, nearly
)
"""What `det config import` finds under this package's name."""
