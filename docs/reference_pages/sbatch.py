"""The page of the options of sbatch that a config may give, from their table."""

from __future__ import annotations

from reference_pages.markdown import page, table


def sbatch_options() -> str:
    """The page of the options of sbatch that a config may give, from their table."""
    from detlab.schemas.sbatch import ELSEWHERE, OPTIONS

    intro = """
`slurm.sbatch_args` of a config takes these options of `sbatch`, and no others: by the whole name, each as one item with
its value, `"--mem-per-gpu=40G"`. Abbreviations, short options, and a value in an item of its own are refused at
submission, with the place and what to write; so are values that are not of the form given here. The agent reads them
once more, and writes each by itself. Why so: [security](../explanation/security.md#slurm).

`--gpus-per-node` and `--gpus-per-task` take as many GPUs as the task has slots on each node, and replace
`--gres=gpu:…`. Whether Slurm takes a value, such as the name of an account, only Slurm can say: what it refuses is on
the trial's card.
"""
    rows = [(f"`--{name}`", kind.words) for name, kind in OPTIONS.items()]
    others = [(f"`--{name}`", words) for name, words in ELSEWHERE.items()]
    return page(
        "Options of sbatch",
        intro,
        table(("option", "value"), rows),
        "## What is said elsewhere",
        table(("option", "instead"), others),
        "All others are refused, too: those that open files where the agent is, that make the job another user's or"
        " give it a priority which its owner may not give, and those that lead it away from where its agent looks.",
    )
