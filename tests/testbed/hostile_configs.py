"""Configs that would cost much, if a program that reads them expanded, copied or compiled what they say."""

from __future__ import annotations

import json
from typing import Any

from detlab.schemas.expconf.raw.loading import MAX_TEXT

RANGE = {"type": "double", "minval": 0, "maxval": 1}
BASE: dict[str, Any] = {"entrypoint": ["true"], "searcher": {"name": "single", "metric": "loss"}}
GRID: dict[str, Any] = {**BASE, "searcher": {"name": "grid", "metric": "loss"}}
ASHA = {"name": "adaptive_asha", "metric": "loss", "time_metric": "batches", "max_time": 10**15, "max_trials": 10**15}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"x": 1}
    for _ in range(depth):
        found = {"n": found}
    return found


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
CONFIGS: dict[str, dict[str, Any]] = {
    "a grid of a billion points": {**GRID, "hyperparameters": {"x": {**RANGE, "count": 10**9}}},
    "a grid of 2**63 points": {
        **GRID,
        "hyperparameters": {f"b{i}": {"type": "categorical", "vals": [True, False]} for i in range(63)},
    },
    "a grid of 10**20 points": {**GRID, "hyperparameters": {f"x{i}": {**RANGE, "count": 10} for i in range(20)}},
    "many axes": {**GRID, "hyperparameters": {f"x{i}": {**RANGE, "count": 2**62} for i in range(9_000)}},
    "many choices": {**GRID, "hyperparameters": {"x": {"type": "categorical", "vals": list(range(49_000))}}},
    "all trials at once": {
        **BASE,
        "searcher": {"name": "random", "metric": "x", "max_trials": 10**15, "max_concurrent_trials": 0},
    },
    "large trials at once": {
        **BASE,
        "searcher": {"name": "random", "metric": "x", "max_trials": 10_000, "max_concurrent_trials": 10_000},
        "hyperparameters": {"x": "y" * 390_000},
    },
    "many rungs": {**BASE, "searcher": {**ASHA, "divisor": 1.0000001, "max_rungs": 10**15}},
    "many brackets": {**BASE, "searcher": {**ASHA, "bracket_rungs": [1] * 49_000}},
    "deep groups": {**BASE, "hyperparameters": nested(900)},
    "many labels": {**BASE, "labels": [f"label {i}" for i in range(49_000)]},
    "many variables": {**BASE, "environment": {"environment_variables": [f"V{i}=1" for i in range(49_000)]}},
    "many policies": {**BASE, "log_policies": [{"name": f"p{i}", "pattern": "(a+)+$"} for i in range(9_000)]},
    "many mounts": {**BASE, "bind_mounts": [{"host_path": "/x", "container_path": f"/{i}"} for i in range(9_000)]},
    "a long name": {**BASE, "name": "x" * 390_000},
    "a long word": {**BASE, "entrypoint": "x" * 390_000},
    "unknown keys": {**BASE, **{f"k{i}": i for i in range(49_000)}},
}


def full(unit: str, before: str = "", after: str = "") -> str:
    """A text as long as is read, of one part again and again."""
    return before + unit * ((MAX_TEXT - len(before) - len(after)) // len(unit)) + after


YAMLS = {
    "aliases": LAUGHS,
    "merges": full("  - &m {<<: [*a, *a, *a, *a]}\n", "a: &a {b: 1}\nc:\n"),
    "numbers": full("1, ", "x: [", "1]"),
    "lines": full("- a\n", "x:\n"),
    "keys": "".join(f"k{i}: 1\n" for i in range(40_000)),
    "same keys": full("k: 1\n"),
    "deep lists": full("["),
    "deep maps": full("{a: "),
    "deep lines": "".join(" " * i + "a:\n" for i in range(800)),
    "dashes": full("- "),
    "digits": full("9", "x: "),
    "hexadecimal": full("f", "x: 0x"),
    "anchors": "".join(f"- &a{i} x\n" for i in range(30_000)),
    "one line": full("y", "x: "),
    "quotes": full("\\x41", 'x: "', '"'),
    "comments": full("#\n"),
    "documents": full("---\n"),
    "tags": full("!!python/object:os.system ", "x: "),
    "too long": full("x") + "xx",
}


NUMBERS = {
    "beyond a float": "1e400",
    "far below zero": "-1e400",
    "the largest float": "1.7e308",
    "5,000 digits": "9" * 5000,
    "4,000 digits": "9" * 4000,
    "not a number": ".nan",
    "infinite": ".inf",
    "5,000 hexadecimal digits": "0x" + "f" * 5000,
}
PLACES = {
    "minval": "{type: double, minval: NUMBER, maxval: 1, count: 10}",
    "maxval": "{type: double, minval: -1, maxval: NUMBER, count: 10}",
    "int": "{type: int, minval: 0, maxval: NUMBER, count: 10}",
    "count": "{type: int, minval: 0, maxval: 5, count: NUMBER}",
    "choice": "{type: categorical, vals: [NUMBER, 1]}",
    "constant": "NUMBER",
    "base": "{type: log, base: NUMBER, minval: -3, maxval: 3, count: 10}",
    "exponent": "{type: log, base: 10, minval: 0, maxval: NUMBER, count: 10}",
}
FIELDS = (
    "max_restarts",
    "resources.slots_per_trial",
    "resources.weight",
    "searcher.max_length",
    "min_validation_period",
)
PATTERNS = {
    "nested": "(a+)+$",
    "repeated": "(?:(?:a{1000}){1000}){1000}",
    "brackets": "(" * 3000,
    "choices": "|".join("a" * length for length in range(800)),
    "a reference back": "(a)\\1",
    "a look ahead": "(?=a)",
    "classes": r"\p{L}{1000}" * 20,
    "long": "x" * 390_000,
}


def _text(searcher: str = "{name: single, metric: x}", more: str = "", x: str = "1") -> str:
    return f'entrypoint: ["true"]\nsearcher: {searcher}\nhyperparameters: {{x: {x}}}\n{more}\n'


def texts() -> dict[str, str]:
    """All of it as YAML, JSON being YAML: for whatever reads config files."""
    found = {name: json.dumps(config) for name, config in CONFIGS.items()} | YAMLS
    for what, number in NUMBERS.items():
        for place, spec in PLACES.items():
            found[f"{place}: {what}"] = _text("{name: grid, metric: x}", x=spec.replace("NUMBER", number))
        for field in FIELDS:
            block, _, key = field.rpartition(".")
            if block == "searcher":
                found[f"{field}: {what}"] = _text(f"{{name: single, metric: x, {key}: {number}}}")
            else:
                found[f"{field}: {what}"] = _text(more=f"{block}: {{{key}: {number}}}" if block else f"{key}: {number}")
    for what, pattern in PATTERNS.items():
        found[f"pattern: {what}"] = _text(more=f"log_policies: [{{name: p, pattern: {json.dumps(pattern)}}}]")
    return found


def submissions() -> dict[str, dict[str, Any]]:
    """Bodies of a submission by what is hostile in them."""
    return {
        **{name: {"config": config} for name, config in CONFIGS.items()},
        **{f"YAML: {name}": {"config_yaml": text} for name, text in YAMLS.items()},
    }
