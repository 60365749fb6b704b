"""`${args}` in an entrypoint that a shell would empty: refused by the check, by the launcher, and kept in a cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from detlab.launch import hparams
from detlab.schemas.expconf.checks import placeholders
from detlab.schemas.expconf.checks.check import check

RUN = "python3 -m detlab.launch.hparams --"
CONFIG = {"searcher": {"name": "random", "metric": "loss", "max_trials": 2}, "hyperparameters": {"lr": 0.1}}
GOOD = ["python3", "-m", "detlab.launch.hparams", "--", "python3", "train.py", "${args}"]


def errors(entrypoint: object, **more: object) -> list[str]:
    found = check({**CONFIG, "entrypoint": entrypoint, **more})
    return [f"{problem.path}: {problem.message} | {problem.hint}" for problem in found if problem.level == "error"]


@pytest.mark.parametrize(
    "line",
    [
        f"{RUN} python3 train.py ${{args}}",
        f'{RUN} python3 train.py "${{args}}"',
        f"{RUN} python3 train.py $args",
        f"{RUN} python3 train.py ${{args_no_hyphens}}",
        f"{RUN} python3 train.py ${{args_no_boolean_flags}}",
        f"{RUN} python3 train.py ${{args_json}}",
        f"{RUN} python3 train.py --lr=${{hparams.lr}}",
        f"{RUN} python3 train.py --name=${{env.USER}}",
        f"cd code && {RUN} python3 train.py ${{args}}",
        f"sh -c '{RUN} python3 train.py ${{args}}'",
        f"bash -lc '{RUN} python3 train.py ${{args}}'",
        f"python3 -m detlab.launch.torch_distributed {RUN} python3 train.py ${{args}}",
        "python3 train.py ${args}",
        "python3 train.py --lr ${hparams.lr}",
    ],
)
def test_a_line_from_which_a_shell_takes_the_hyperparameters_is_refused(line: str) -> None:
    """The search trained the defaults in every trial, and completed."""
    (error,) = errors(line)
    assert "takes $" in error
    assert '"detlab.launch.hparams", "--"' in error


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", f"{RUN} python3 train.py ${{args}}"],
        ["/bin/bash", "-ec", f"{RUN} python3 train.py ${{hparams.lr}}"],
        ["python3", "-m", "detlab.launch.hparams", "--", "sh", "-c", "python3 train.py ${args}"],
        ["python3", "train.py", "${args}"],
        ["env", "LR=${hparams.lr}", "python3", "-m", "detlab.launch.hparams", "--", "python3", "train.py"],
        [*GOOD[:-1], "--all=${args}"],
        [*GOOD[:-1], "${args} --more"],
    ],
)
def test_words_in_which_nobody_fills_them_in_are_refused(words: list[str]) -> None:
    assert len(errors(words)) == 1


@pytest.mark.parametrize(
    "entrypoint",
    [
        GOOD,
        [*GOOD[:-1], "--lr=${hparams.lr}", "--name=${env.USER}"],
        ["python3", "-m", "detlab.launch.torch_distributed", "--", *GOOD],
        ["python3", "-m", "detlab.launch.hparams", "--", "sh", "-c", "python3 train.py --lr ${hparams.lr}"],
        f"{RUN} python3 train.py '${{args}}'",
        f"{RUN} python3 train.py \\${{args}}",
        "args='--lr 0.1'; python3 train.py ${args}",
        "python3 train.py --arguments $HOME",
        "python3 train.py ${argsort}",
    ],
)
def test_what_arrives_is_not_refused(entrypoint: object) -> None:
    assert errors(entrypoint) == []


def test_the_form_that_the_hint_shows_is_valid_and_keeps_the_command() -> None:
    (error,) = errors(f"{RUN} python3 train.py --epochs 3 ${{args}}")
    shown = yaml.safe_load(error.partition("entrypoint: ")[2].partition("entrypoint: ")[2])
    assert shown == [*GOOD[:6], "--epochs", "3", "${args}"]
    assert errors(shown) == []


def test_the_check_and_the_launcher_know_the_same_words() -> None:
    assert {f"${{{name}}}" for name in placeholders.LISTS} == {*hparams._LISTS, hparams._JSON}


def start(words: list[str], given: dict[str, object]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DET_HPARAMS": json.dumps(given)}
    program = f"{sys.executable} -m detlab.launch.hparams -- "
    return subprocess.run(["sh", "-c", program + " ".join(words)], env=env, capture_output=True, text=True, check=False)


def test_the_launcher_refuses_a_command_from_which_a_shell_took_the_hyperparameters() -> None:
    show = [sys.executable, "-c", "'import sys; print(sys.argv[1:])'"]
    ended = start([*show, "${args}"], {"lr": 0.1})
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "every trial would run the same" in ended.stderr
    assert start([*show, "'${args}'"], {"lr": 0.1}).stdout == "['--lr=0.1']\n"
    assert start(show, {}).stdout == "[]\n", "a trial without hyperparameters has none to pass on"
    within = start([*show, "'--all=${args}'"], {"lr": 0.1})
    assert (within.returncode, "a word of its own" in within.stderr) == (1, True)
