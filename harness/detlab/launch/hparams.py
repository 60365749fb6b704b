"""Put the trial's hyperparameters into a command: `python3 -m detlab.launch.hparams -- CMD…`.

In the words of CMD, `${hparams.NAME}` becomes the value of a hyperparameter (`${hparams.model.width}`: of a nested
one) and `${env.NAME}` that of an environment variable. A word that is `${args}` becomes one word for each
hyperparameter:

    ${args}                    --lr=0.1 --model={"width": 8}
    ${args_no_hyphens}         lr=0.1 …
    ${args_no_boolean_flags}   --lr=0.1 --verbose      a boolean is a flag if it is true, else nothing
    ${args_json}               {"lr": 0.1, …}

Texts are put in as they are, everything else as JSON, but `True` and `False` as Python writes them. This program
becomes CMD. For scripts that read hyperparameters from their command line; others ask `det.get_cluster_info()`.

The entrypoint must be a list of words: of a line a shell takes `${args}` away before this program sees it. A command
that takes no hyperparameter, though the trial has some, is refused.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

USAGE = "usage: python3 -m detlab.launch.hparams [--] CMD..."

_PLACE = re.compile(r"\$\{(hparams|env)\.([^}]+)\}")
_MISSING = object()


def shown(value: Any) -> str:
    """Return a value as a word of a command."""
    if isinstance(value, bool | str):
        return str(value)
    return json.dumps(value)


def _args(name: str, value: Any) -> list[str]:
    return [f"--{name}={shown(value)}"]


def _no_hyphens(name: str, value: Any) -> list[str]:
    return [f"{name}={shown(value)}"]


def _no_boolean_flags(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return _args(name, value)


_LISTS = {"${args}": _args, "${args_no_hyphens}": _no_hyphens, "${args_no_boolean_flags}": _no_boolean_flags}
_JSON = "${args_json}"
_LISTED = re.compile(r"\$\{args(?:_no_hyphens|_no_boolean_flags|_json)?\}")
_ANY = re.compile(rf"{_LISTED.pattern}|{_PLACE.pattern}")
_TAKEN = (
    "no word of the command takes a hyperparameter, so that every trial would run the same. A shell takes ${args} away:"
    ' write the entrypoint as a list of words, ["python3", "-m", "detlab.launch.hparams", "--", "python3", "train.py", '
    '"${args}"], or leave detlab.launch.hparams out'
)


def found(hparams: Mapping[str, Any], name: str) -> Any:
    """Return a hyperparameter by its name, which may itself hold dots, or by the path of a nested one.

    Raises:
        ValueError: There is none.
    """
    value = _found(hparams, name)
    if value is _MISSING:
        raise ValueError(f"no hyperparameter {name!r}; the trial has {', '.join(sorted(hparams)) or 'none'}")
    return value


def _found(hparams: Any, name: str) -> Any:
    if not isinstance(hparams, Mapping):
        return _MISSING
    if name in hparams:
        return hparams[name]
    for at in (index for index, letter in enumerate(name) if letter == "."):
        value = _found(hparams.get(name[:at]), name[at + 1 :])
        if value is not _MISSING:
            return value
    return _MISSING


def filled(words: Sequence[str], hparams: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """Return a command with the values in it.

    Raises:
        ValueError: There is no command, or it names what the trial does not have.
    """
    rest = list(words[1:] if words[:1] == ["--"] else words)
    if not rest:
        raise ValueError(f"no command to run\n{USAGE}")

    def value_of(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "hparams":
            return shown(found(hparams, name))
        if name not in env:
            raise ValueError(f"no environment variable {name!r}")
        return env[name]

    if hparams and not any(_ANY.search(word) for word in rest):
        raise ValueError(_TAKEN)
    full: list[str] = []
    for word in rest:
        within = _LISTED.search(word)
        if within is not None and within[0] != word:
            raise ValueError(f"{within[0]} is filled in only where it is a word of its own, not within {word!r}")
        if word in _LISTS:
            full += [part for name, value in hparams.items() for part in _LISTS[word](name, value)]
        elif word == _JSON:
            full.append(json.dumps(hparams))
        else:
            full.append(_PLACE.sub(value_of, word))
    return full


def main() -> None:
    """Become the command."""
    try:
        words = filled(sys.argv[1:], json.loads(os.environ.get("DET_HPARAMS", "{}")), os.environ)
    except ValueError as error:
        sys.exit(f"detlab.launch.hparams: {error}")
    try:
        os.execvp(words[0], words)  # noqa: S606  (argv, without a shell)
    except OSError as error:
        sys.exit(f"detlab.launch.hparams: {words[0]!r} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
