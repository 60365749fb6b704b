"""Errors in Python that newcomers to notebooks and to detlab meet, with what to write instead. Pure.

Each line: words of an exception, as the last line of its traceback has them, and advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_USUAL = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "plt": "import matplotlib.pyplot as plt",
    "sns": "import seaborn as sns",
    "nn": "from torch import nn",
    "optim": "from torch import optim",
    "F": "import torch.nn.functional as F",
    "DataLoader": "from torch.utils.data import DataLoader",
    "det": "import detlab as det",
    "tqdm": "from tqdm import tqdm",
}
"""Names by which everybody knows a module -> the line that imports it."""
_MODULES = frozenset(
    {"torch", "numpy", "pandas", "math", "os", "sys", "re", "json", "time", "random", "logging", "pathlib", "detlab"}
)
_DETERMINED = re.compile(r"(?:ModuleNotFoundError|ImportError): .*\bdetermined\b")
_KERAS = re.compile(r"ModuleNotFoundError: No module named 'tensorflow'")
_UNKNOWN = re.compile(r"NameError: name '(?P<name>[A-Za-z_]\w*)' is not defined")
_INDENTED = re.compile(r"(?:IndentationError|TabError): (?P<what>.*)")
_YAML = re.compile(r"yaml\.(?:scanner\.Scanner|parser\.Parser|composer\.Composer)Error: (?P<what>.*)")
_PROCESSES = re.compile(r"(?:[\w.]+\.)?WorldSizeError: ")
_KERNEL = re.compile(r"KernelDied: ")


def _determined(_found: re.Match[str]) -> str:
    return (
        "Determined's modules have the same names in detlab: import detlab as det; from detlab.pytorch import …; "
        "python3 -m detlab.launch.torch_distributed"
    )


def _keras(_found: re.Match[str]) -> str:
    return (
        "if Keras asked for it, set its backend: KERAS_BACKEND=torch in environment.environment_variables, or in "
        "os.environ before the first `import keras`"
    )


def _unknown(found: re.Match[str]) -> str:
    name = found["name"]
    line = _USUAL.get(name) or (f"import {name}" if name in _MODULES else "")
    if line:
        return f"write `{line}` in the module itself: a trial sees nothing of other cells or of the notebook"
    return (
        f"a module sees nothing of the notebook: define {name} in it, import it from another %%det_module, or pass a "
        "value as a hyperparameter (in YAML: ${…})"
    )


def _indented(_found: re.Match[str]) -> str:
    return "the lines of a block have the same indentation, of spaces only: look at this line and the one above it"


def _yaml(_found: re.Match[str]) -> str:
    return (
        "in the YAML file that the code reads, keys of one block begin in one column, by spaces, with `: ` after each"
    )


def _processes(_found: re.Match[str]) -> str:
    return (
        "begin the entrypoint with python3 -m detlab.launch.torch_distributed, which starts one process for each slot, "
        "or set resources.slots_per_trial to the number of processes"
    )


def _kernel(_found: re.Match[str]) -> str:
    return (
        "the outputs so far are in executed.ipynb; if it was memory: ask for more, or load less at once, in that cell"
    )


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_DETERMINED, _determined),
    (_KERAS, _keras),
    (_UNKNOWN, _unknown),
    (_INDENTED, _indented),
    (_YAML, _yaml),
    (_PROCESSES, _processes),
    (_KERNEL, _kernel),
)


def advice(message: str) -> str | None:
    """Return what to do about an error, None if it is not one of these.

    Args:
        message: The error, `Name: text`.
    """
    for pattern, say in _KNOWN:
        found = pattern.match(message[:1000])
        if found is not None:
            return say(found)
    return None
