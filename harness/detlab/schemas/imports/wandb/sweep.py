"""A W&B sweep as an experiment config."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.imports import spaces
from detlab.schemas.imports.ledger import ImportKind, Ledger
from detlab.schemas.imports.trials import HPARAMS, checkpoints_needed
from detlab.schemas.imports.wandb.spaces import hyperparameters

RUNS = 100
"""Trials of a sweep without a `run_cap`, which would run until it is ended by hand."""
RUNGS = 4
"""Rungs where a sweep names the first one alone."""
TIME = "steps"
"""The time metric of a sweep: its iterations are the reports of a run."""

LENGTHS = frozenset(
    {"epochs", "num_epochs", "n_epochs", "max_epochs", "steps", "max_steps", "num_steps", "iterations", "max_iter"}
)
"""What sweeps call how long a run trains."""
FIXED = {"${interpreter}": "python3", "${args_json_file}": "${args_json}"}
"""Macros of a command that are the same for all sweeps."""
_SPACE = "give `method` and `parameters` instead, or write hyperparameters and searcher by hand"
_MACROS = re.compile(r"\$\{[a-z_]+\}")

TARGETS: dict[str, str] = {
    "name": "name",
    "description": "description",
    "entity": "workspace",
    "project": "project",
    "program": "entrypoint",
    "command": "entrypoint",
    "command[]": "entrypoint",
    "image_uri": "environment.image",
    "method": "searcher.name",
    "metric.name": "searcher.metric",
    "metric.goal": "searcher.smaller_is_better",
    "metric.target": "searcher.goal",
    "run_cap": "searcher.max_trials",
    "scheduler.num_workers": "searcher.max_concurrent_trials",
    "early_terminate.type": "searcher.name",
    "early_terminate.min_iter": "searcher.max_time",
    "early_terminate.max_iter": "searcher.max_time",
    "early_terminate.s": "searcher.num_rungs",
    "early_terminate.eta": "searcher.divisor",
    "parameters.*.value": "hyperparameters",
    "parameters.*.values": "hyperparameters",
    "parameters.*.probabilities": "hyperparameters",
    "parameters.*.distribution": "hyperparameters",
    "parameters.*.min": "hyperparameters",
    "parameters.*.max": "hyperparameters",
    "parameters.*.q": "hyperparameters",
    "parameters.*.mu": "hyperparameters",
    "parameters.*.sigma": "hyperparameters",
    "parameters.*.a": "hyperparameters",
    "parameters.*.b": "hyperparameters",
}
"""Where a key goes."""

REASONS: dict[str, str] = {
    "apiVersion": "says what the file is",
    "kind": "says what the file is",
    "controller": "the master is the controller",
    "job": "jobs of W&B Launch are not known here",
    "metrics": "name one metric: `searcher.metric`",
    "prior_runs": "name earlier experiments of yours in `searcher.warm_start`",
    "scheduler": "the search method is `searcher.name`",
    "settings": "no such setting here",
    "metric.impute": "a trial that failed counts as the worst",
    "metric.impute_while_running": "every report of a running trial counts",
    "early_terminate.strict": "always strict: a trial continues if it is among the best at its rung",
    "parameters.*.probabilities": "a grid tries each choice",
}
"""Why a key, and all below it, is left out."""


@dataclass(frozen=True)
class Method:
    """What becomes of a method: alone, and with `early_terminate`."""

    alone: str
    halving: str


METHODS: dict[str, Method] = {
    "grid": Method("grid", "grid"),
    "random": Method("random", "async_halving"),
    "bayes": Method("bayesian", "bohb"),
}
"""W&B's methods."""


def recognises(raw: dict[str, Any]) -> bool:
    """Whether a parsed file is a W&B sweep."""
    return "method" in raw and "searcher" not in raw and raw.get("kind") in (None, "sweep")


def nearly(raw: dict[str, Any]) -> Problem | None:
    """Say what is wrong with a file that is a sweep of W&B whose points another program draws."""
    if isinstance(raw.get("tune"), dict):
        return Problem("tune", "is a search of Ray Tune in a W&B sweep: Ray draws its points", _SPACE)
    if isinstance(raw.get("scheduler"), dict) and "method" not in raw:
        return Problem("scheduler", "is a W&B sweep whose points a scheduler of its own draws", _SPACE)
    return None


def shape(path: Path) -> str:
    """Return which key of a sweep a place is; parameters, nested ones too, are `parameters.*`."""
    rest = path
    if len(rest) > 2 and rest[0] == "parameters":
        while len(rest) > 4 and rest[2] == "parameters":
            rest = rest[2:]
        return f"parameters.*.{rest[2]}"
    if rest[:1] == ("command",) and len(rest) == 2:
        return "command[]"
    return render(path)


def ledger(raw: dict[str, Any]) -> Ledger:
    """Return the ledger of a W&B sweep."""
    return Ledger(raw, TARGETS, REASONS, shape)


def convert(ledger: Ledger) -> dict[str, Any]:
    """Return the config of a W&B sweep."""
    config: dict[str, Any] = {}
    for key in ("name", "description"):
        text = ledger.text((key,))
        if text is not None:
            config[key] = text
            ledger.kept((key,))
    _project(ledger, config)
    _command(ledger, config)
    searcher = _searcher(ledger)
    config["hyperparameters"] = hyperparameters(ledger, grid=searcher.get("name") == "grid")
    config["searcher"] = searcher
    _target(ledger, config)
    _by_hand(ledger, config)
    if needs := checkpoints_needed(searcher):
        ledger.to_do.append(needs)
    if "metric" in searcher:
        ledger.to_do.append(
            f"report {searcher['metric']!r} by core.train.report_validation_metrics: wandb.log does not reach here"
        )
        ledger.to_do.append("wandb.config of an agent is not set: read the arguments, or info.trial.hparams")
    return config


def _by_hand(ledger: Ledger, config: dict[str, Any]) -> None:
    """Say what is left to do for earlier runs, and where the file says twice how long a trial trains."""
    if ledger.at(("prior_runs",)):
        ledger.to_do.append(
            "prior_runs: results of W&B are not here; give them as `searcher.results`, or experiments of this cluster"
            " as `searcher.warm_start` (of tpe, gp, cmaes, nsga2, bayesian)"
        )
    longest = config["searcher"].get("max_time")
    for name, value in config["hyperparameters"].items():
        if longest is None or name.lower() not in LENGTHS or not spaces.is_number(value) or value == longest:
            continue
        ledger.to_do.append(
            f"{name} is {value:g}, but `searcher.max_time` {longest}, from early_terminate: make them the same if a"
            f" report is one of the {name}; a trial that ends earlier never reaches the last rung"
        )


_MAKE_THEM = (
    "make the workspace and the project once, if they are not there: det workspace create, det project create; that of"
    " another user is OWNER/NAME"
)


def _project(ledger: Ledger, config: dict[str, Any]) -> None:
    entity, project = ledger.text(("entity",)), ledger.text(("project",))
    if project is not None:
        config["project"] = project
        ledger.kept(("project",))
    if entity is not None:
        config["workspace"] = entity
        ledger.changed(("entity",), "the workspace's name; rights of the entity do not come along")
    if entity is not None or project is not None:
        ledger.to_do.append(_MAKE_THEM)


# --- the command


def _command(ledger: Ledger, config: dict[str, Any]) -> None:
    program = ledger.text(("program",))
    image = ledger.text(("image_uri",))
    if image is not None:
        config["environment"], config["runtime"] = {"image": image}, "docker"
        ledger.kept(("image_uri",))
        ledger.added("runtime", "docker: the command is in the image")
    if ledger.at(("command",)) is None:
        words = ["${env}", "${interpreter}", "${program}", "${args}"] if program else []
    else:
        words = [str(word) for word in ledger.items(("command",))]
        for index in range(len(words)):
            ledger.kept(("command", index))
        if not words:
            ledger.left_out(("command",), "it is empty")
    if not words:
        ledger.to_do.append("set `entrypoint`: the file has no command")
        return
    _entrypoint(ledger, config, words, program)


def _entrypoint(ledger: Ledger, config: dict[str, Any], words: list[str], program: str | None) -> None:
    full: list[str] = []
    here = {"${program}": program or ""}
    for index, word in enumerate(words):
        if "${program}" in word and program is None:
            ledger.mistake(("command", index), "is ${program}, but the file has no `program`")
        if word == "${args_json_file}":
            ledger.changed(("command", index), "the JSON text itself instead of a file's name")
        if word != "${env}":  # it finds the interpreter on PATH, which a task does anyway
            full.append(_MACROS.sub(lambda match: {**here, **FIXED}.get(match.group(0), match.group(0)), word))
    full = [word.replace("${envvar:", "${env.") for word in full]
    if program is not None:
        if "command" in ledger.raw and not any("${program}" in word for word in words):
            ledger.left_out(("program",), "the command does not name it")
        else:
            ledger.kept(("program",))
    if any("${" in word for word in full):
        full = [*HPARAMS, *full]
    config["entrypoint"] = full


# --- the search


def _searcher(ledger: Ledger) -> dict[str, Any]:
    method = ledger.at(("method",))
    if not isinstance(method, str) or method not in METHODS:
        hint = f"known are {', '.join(METHODS)}"
        if method == "custom":
            hint = "its optimizer is code of yours: choose a `searcher.name`, or write a search method"
        ledger.mistake(("method",), f"{method!r} cannot be imported", hint)
        return {}
    common = _metric(ledger)
    trials = ledger.at(("run_cap",))
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
        ledger.mistake(("run_cap",), "must be a whole number of at least 1")
        trials = None
    halving = _halving(ledger)
    wanted = METHODS[method].halving if halving else METHODS[method].alone
    budget = {"max_trials": trials or RUNS, **_workers(ledger)}
    block = _block(wanted, common, budget, halving, capped=trials is not None)
    _note_method(ledger, block, halving)
    if trials is not None and wanted == "grid":
        ledger.changed(("run_cap",), "so many points of a larger grid are chosen at random; W&B takes the first ones")
    elif "run_cap" in ledger.raw:
        ledger.kept(("run_cap",))
    elif "max_trials" in block:
        ledger.added("searcher.max_trials", f"{RUNS}: the sweep has no run_cap, and a search needs a number")
    return block


def _workers(ledger: Ledger) -> dict[str, int]:
    """Return how many trials run at a time, if a scheduler of W&B Launch says so."""
    place = ("scheduler", "num_workers")
    workers = ledger.at(place)
    if workers is None:
        return {}
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        ledger.mistake(place, "must be a whole number of at least 1")
        return {}
    ledger.kept(place)
    return {"max_concurrent_trials": workers}


def _block(
    name: str, common: dict[str, Any], budget: dict[str, Any], halving: dict[str, Any], *, capped: bool
) -> dict[str, Any]:
    if name == "grid":
        return {"name": name, **common, **{key: budget[key] for key in budget if key != "max_trials" or capped}}
    keys = {key: halving[key] for key in halving if key != "num_rungs"}
    if halving:  # bohb has brackets: the longest has this many rungs
        keys["num_rungs" if name == "async_halving" else "max_rungs"] = halving["num_rungs"]
    return {"name": name, **common, **budget, **keys}


def _note_method(ledger: Ledger, block: dict[str, Any], halving: dict[str, Any]) -> None:
    name = block["name"]
    if name == "bayesian":
        ledger.changed(("method",), "a Gaussian process or TPE of Optuna, chosen by space and budget")
    else:
        ledger.kept(("method",))
    at = ("early_terminate",)
    if not halving:
        return
    if name == "grid":
        ledger.left_out(at, "a grid trains each point to its end; use `stopping`, or async_halving")
        return
    ledger.kept((*at, "type"))
    for key in ("min_iter", "max_iter", "s", "eta"):
        if ledger.at((*at, key)) is None:
            continue
        if key == "min_iter":
            _note_min_iter(ledger, block)
        else:
            ledger.kept((*at, key))
    ledger.added("searcher.time_metric", f"{TIME}: report with steps_completed 1, 2, 3, …")


def _note_min_iter(ledger: Ledger, block: dict[str, Any]) -> None:
    place = ("early_terminate", "min_iter")
    if ledger.at(("early_terminate", "max_iter")) is not None:
        ledger.left_out(place, "the first rung follows from max_iter and s")
    else:
        ledger.changed(place, f"the first of {RUNGS} rungs; a trial ends at step {block['max_time']}")


def _halving(ledger: Ledger) -> dict[str, Any]:
    """Return the keys of a halving search; none without `early_terminate`."""
    at = ("early_terminate",)
    stop = ledger.mapping(at)
    if not stop:
        return {}
    if stop.get("type") != "hyperband":
        ledger.mistake((*at, "type"), f"{stop.get('type')!r} is no early termination of W&B", "it has hyperband")
        return {}
    values: dict[str, float] = {}
    for key, least in (("min_iter", 1), ("max_iter", 1), ("s", 1), ("eta", 1)):
        raw = stop.get(key)
        if raw is None:
            continue
        if not spaces.is_number(raw) or raw < least or (key == "eta" and raw <= 1):
            ledger.mistake((*at, key), f"must be a number {'above' if key == 'eta' else 'of at least'} 1")
            return {}
        values[key] = float(raw)
    if "max_iter" not in values and "min_iter" not in values:
        ledger.mistake(at, "needs min_iter, or max_iter and s")
        return {}
    divisor = values.get("eta", 3.0)
    rungs = int(values["s"]) + 1 if "s" in values and "max_iter" in values else RUNGS
    last = values.get("max_iter") or math.ceil(values["min_iter"] * divisor ** (rungs - 1))
    return {"time_metric": TIME, "max_time": int(last), "divisor": spaces.rounded(divisor), "num_rungs": rungs}


def _metric(ledger: Ledger) -> dict[str, Any]:
    name = ledger.text(("metric", "name"))
    if name is None:
        ledger.to_do.append("set `searcher.metric`: the sweep names none")
    else:
        ledger.kept(("metric", "name"))
    goal = ledger.at(("metric", "goal"))
    if goal not in (None, "minimize", "maximize"):
        ledger.mistake(("metric", "goal"), "must be minimize or maximize")
    elif goal is not None:
        ledger.kept(("metric", "goal"))
    block: dict[str, Any] = {} if name is None else {"metric": name}
    return block | {"smaller_is_better": goal != "maximize"}


def _target(ledger: Ledger, config: dict[str, Any]) -> None:
    place = ("metric", "target")
    target = ledger.at(place)
    if target is None:
        return
    if not spaces.is_number(target):
        ledger.mistake(place, "must be a number")
        return
    config["searcher"]["goal"] = target
    ledger.changed(place, "trials that run when it is reached are stopped; W&B lets them end")


IMPORT = ImportKind("W&B sweep", "`method` and `parameters`", recognises, ledger, convert, nearly, older_yaml=True)
"""What `det config import` finds under this package's name."""
