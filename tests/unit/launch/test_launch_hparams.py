"""`python3 -m detlab.launch.hparams`: hyperparameters in the words of a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from detlab.launch.hparams import filled

HPARAMS = {"lr": 0.1, "name": "a b", "deep": {"width": 8}, "a.b": [1, None], "on": True, "off": False}


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("--lr=${hparams.lr}", ["--lr=0.1"]),
        ("${hparams.name}/${hparams.deep.width}", ["a b/8"]),
        ("${hparams.a.b}", ["[1, null]"]),
        ("${hparams.on}", ["True"]),
        ("${env.USER}", ["ann"]),
        ("$lr ${other}", ["$lr ${other}"]),
        ("${args_no_hyphens}", ["lr=0.1", "name=a b", 'deep={"width": 8}', "a.b=[1, null]", "on=True", "off=False"]),
        ("${args_json}", [json.dumps(HPARAMS)]),
    ],
)
def test_a_word(word, becomes):
    assert filled(["run", "${hparams.name}", word], HPARAMS, {"USER": "ann"}) == ["run", "a b", *becomes]


def test_lists_of_arguments():
    assert filled(["--", "run", "${args}"], {"lr": 0.1, "on": True}, {}) == ["run", "--lr=0.1", "--on=True"]
    assert filled(["run", "${args_no_boolean_flags}"], HPARAMS | {"a.b": 1}, {}) == [
        *("run", "--lr=0.1", "--name=a b", '--deep={"width": 8}', "--a.b=1", "--on"),
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "no command"), (["--"], "no command"), (["x", "${hparams.rate}"], "lr"), (["x", "${env.NONE}"], "NONE")],
)
def test_what_is_not_there_is_named(words, says):
    with pytest.raises(ValueError, match=says):
        filled(words, HPARAMS, {})


def run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DET_HPARAMS": json.dumps({"lr": 0.5})}
    command = [sys.executable, "-m", "detlab.launch.hparams", "--", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_command_takes_the_place_of_the_program():
    done = run(sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(3)", "--lr=${hparams.lr}")
    assert (done.stdout, done.returncode) == ("['--lr=0.5']\n", 3)


def test_a_command_that_cannot_run_is_named():
    done = run("/no/such/program", "${args}")
    assert done.returncode == 1
    assert "'/no/such/program' cannot be run" in done.stderr
