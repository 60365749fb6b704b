"""Which options of sbatch a config may give: whole names with values that fit, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detlab.schemas.expconf import check
from detlab.schemas.sbatch import ELSEWHERE, OPTIONS, SbatchNotAllowed, parse_sbatch
from testbed.sbatch_words import ALLOWED, HOSTILE, SBATCH

WHOLE = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?:=([^\s=/-][^\s/]*))?")
FILES = ("export-file", "bbf", "nodefile", "output", "error", "input", "chdir", "container", "wrap")


@pytest.mark.parametrize("text", ALLOWED)
def test_what_sites_need_is_allowed(text: str) -> None:
    assert parse_sbatch(text).render() == text


@pytest.mark.parametrize("text", HOSTILE)
def test_what_sbatch_reads_otherwise_is_refused(text: str) -> None:
    with pytest.raises(SbatchNotAllowed) as refused:
        parse_sbatch(text)
    assert refused.value.message
    assert refused.value.hint


def test_every_abbreviation_of_every_option_is_refused() -> None:
    for name in SBATCH:
        for length in range(len(name)):
            if (cut := name[:length]) not in OPTIONS:
                for text in (f"--{cut}", f"--{cut}=1", f"--{cut}=/tmp/x"):
                    with pytest.raises(SbatchNotAllowed):
                        parse_sbatch(text)


def test_no_option_that_opens_a_file_or_names_the_job_is_in_the_table() -> None:
    assert not set(OPTIONS) & {*FILES, "uid", "gid", "array", "job-name", "comment", "priority", "clusters", "export"}
    assert not set(OPTIONS) & set(ELSEWHERE)
    assert set(OPTIONS) <= set(SBATCH) | {"prefer"}, "it is an option of sbatch"


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=60)
    | st.builds("--{}={}".format, st.sampled_from(sorted(SBATCH)), st.text(max_size=30))
    | st.builds("-{}{}".format, st.sampled_from("AabcCdDeFGhHiJkLmMnNoOpqQsStVvWwxB"), st.text(max_size=10))
)
@example("--mem=1G\n--uid=0")
@example("--nodelist=/etc/shadow")
@example("--qos=\u0661")
@example("--account=a --uid=0")
def test_what_passes_is_one_whole_option_that_we_write_ourselves(text: str) -> None:
    try:
        made = parse_sbatch(text)
    except SbatchNotAllowed:
        return
    found = WHOLE.fullmatch(made.render())
    assert found is not None, "no positional, no short one, no path, no further word"
    assert found[1] in OPTIONS
    assert made.render() == text


def test_all_mistakes_are_told_with_their_places() -> None:
    wrong = {
        "sbatch_args": ["--mem-per-gpu=40G", "/home/ben/evil.sh", "--wra=x", "-vJx", "--qos", "high"],
        "partition": "a --uid=0", "account": "a,b", "qos": "x\ny", "constraint": "a b", "reservation": "-r",
        "gpu_type": "a100:8,gpu:h100",
    }  # fmt: skip
    config = {"name": "x", "entrypoint": "y", "searcher": {"name": "single", "metric": "m"}, "slurm": wrong}
    problems = {problem.path: problem for problem in check(config) if problem.path.startswith("slurm")}
    keys = ("partition", "account", "qos", "constraint", "reservation", "gpu_type")
    assert set(problems) == {*(f"slurm.sbatch_args[{n}]" for n in range(1, 6)), *(f"slurm.{key}" for key in keys)}
    assert "script" in problems["slurm.sbatch_args[1]"].message
    assert "sbatch would read it as --wrap" in (problems["slurm.sbatch_args[2]"].hint or "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("-p", "--partition=VALUE"),
        ("--mem", '"--mem=VALUE"'),
        ("--gpus=8", "slots_per_trial"),
        ("--gres=gpu:8", "no GPU"),
        ("--nice=-5", "at least 0"),
        ("--export=ALL", "environment_variables"),
        ("--exp=ALL", "--export"),
        ("--frobnicate", "allowed are --account"),
    ],
)
def test_a_refusal_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(SbatchNotAllowed) as refused:
        parse_sbatch(text)
    assert hint in refused.value.hint
