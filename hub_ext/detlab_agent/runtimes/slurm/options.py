"""The options of `det agent run --slurm`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from detlab_agent.runtimes.flags import RuntimeFlags

ContainerProgram = Literal["none", "apptainer", "pyxis"]
WHOLE_OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*(?:=[^\x00-\x1f\x7f]+)?")
"""The form of every option that is passed to sbatch, the operator's included."""


@dataclass(frozen=True)
class SlurmOptions:
    """How an agent works with its Slurm cluster.

    Attributes:
        host: Where Slurm's commands are, reached by ssh; "": on this machine.
        directory: A folder that this machine (or `host`) and the nodes share; None: `slurm` in the agent's directory.
        python: The Python on the nodes that has detlab; "": this agent's own.
        setup: A file of shell lines that every job runs before its task; "": none.
        partition: The partition of jobs that name none; "": Slurm's default.
        arguments: More options of sbatch for all jobs.
        container: What runs images.
        as_owner: Whether jobs run as the account of their owner, which root alone can do; see `for_owners`.
        interval: Seconds between two looks at the jobs.
        array_size: The most tasks that are submitted as one job array; 1: each is a job of its own.
    """

    host: str = ""
    directory: Path | None = None
    python: str = ""
    setup: str = ""
    partition: str = ""
    arguments: tuple[str, ...] = ()
    container: ContainerProgram = "none"
    as_owner: bool = True
    interval: float = 5.0
    array_size: int = 1

    @property
    def for_owners(self) -> bool:
        """Whether each job has the account of its owner: else this agent serves the one user whose account it has."""
        return self.as_owner and os.geteuid() == 0


def _whole_option(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Accept whole long options; sbatch would take anything else for its script, or for several options."""
    for value in values:
        if WHOLE_OPTION.fullmatch(value) is None:
            raise click.BadParameter(
                f"{value!r} is no whole option: write --slurm-arg=--option=value", context, parameter
            )
    return values


_PATH = click.Path(path_type=Path)
_OPTIONS = (
    click.option("--slurm", is_flag=True, help="Run tasks as jobs of this machine's Slurm cluster, which places them."),
    click.option("--slurm-ssh", "slurm_host", default="", metavar="HOST", help="Run Slurm's commands on HOST by ssh."),
    click.option(
        "--slurm-dir",
        type=_PATH,
        metavar="DIR",
        help="Folder that this machine (or --slurm-ssh HOST) shares with the nodes [default: slurm in --dir].",
    ),
    click.option(
        "--slurm-python",
        default="",
        metavar="PATH",
        help="Python on the nodes that has detlab [default: this agent's own].",
    ),
    click.option("--slurm-setup", default="", metavar="FILE", help="Shell file, on the nodes, that jobs read first."),
    click.option("--slurm-partition", default="", metavar="NAME", help="Partition of jobs that name none."),
    click.option(
        "--slurm-arg",
        "slurm_arguments",
        multiple=True,
        metavar="OPTION",
        callback=_whole_option,
        help="sbatch option of all jobs, as --option=value (repeatable).",
    ),
    click.option(
        "--slurm-container",
        type=click.Choice(["none", "apptainer", "pyxis"]),
        default="none",
        show_default=True,
        help="What runs environment.image on the nodes.",
    ),
    click.option(
        "--slurm-as",
        type=click.Choice(["owner", "agent"]),
        default="owner",
        show_default=True,
        help="Whose account an agent run by root submits jobs with: owner needs --user-map; agent serves one user.",
    ),
    click.option(
        "--slurm-interval",
        type=click.FloatRange(min=0.2, max=600),
        default=5.0,
        show_default=True,
        metavar="SECONDS",
        help="Time between two calls of squeue.",
    ),
    click.option(
        "--slurm-array-size",
        type=click.IntRange(min=1, max=4000),
        default=1,
        show_default=True,
        metavar="N",
        help="Submit up to N tasks that come together and ask for the same as one job array; 1: no arrays.",
    ),
)


def _read(given: Mapping[str, Any]) -> SlurmOptions:
    return SlurmOptions(
        host=given["slurm_host"],
        directory=given["slurm_dir"],
        python=given["slurm_python"],
        setup=given["slurm_setup"],
        partition=given["slurm_partition"],
        arguments=tuple(given["slurm_arguments"]),
        container=given["slurm_container"],
        as_owner=given["slurm_as"] == "owner",
        interval=given["slurm_interval"],
        array_size=given["slurm_array_size"],
    )


FLAGS = RuntimeFlags("slurm", _OPTIONS, _read)
