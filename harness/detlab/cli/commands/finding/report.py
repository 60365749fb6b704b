"""`det report`: a snapshot of experiments and runs as a page or a notebook."""

from __future__ import annotations

from pathlib import Path

import click

from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, counted, note, say, say_json, size

COMMANDS = {"report": "A snapshot of a project, experiments or runs: a page, or a notebook."}
_MOST = 200


@click.command()
@click.option("--project", metavar="P", default="", help="NAME, WORKSPACE/NAME or OWNER/WORKSPACE/NAME.")
@click.option(
    "--experiment",
    "experiments",
    metavar="ID",
    type=click.IntRange(1),
    multiple=True,
    shell_complete=experiment_ids,
    help="This experiment, beside (repeatable).",
)
@click.option("--run", "runs", metavar="RUN", multiple=True, help="This run, beside (repeatable).")
@click.option("--filter", "filter_", metavar="FILTER", default="", help="Only experiments that fulfil it, and no runs.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file: .html is a page, .ipynb a notebook.",
)
@click.option("--title", metavar="TEXT", default="", help="Its title. Default: the project's name.")
@click.option(
    "--notes",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Markdown that stands at its top.",
)
@click.option(
    "-n", "--limit", type=click.IntRange(1, _MOST), default=_MOST, show_default=True, help="The newest so many of each."
)
@json_option
@pass_invocation
def report(
    invocation: Invocation,
    *,
    project: str,
    experiments: tuple[int, ...],
    runs: tuple[str, ...],
    filter_: str,
    output: Path,
    title: str,
    notes: Path | None,
    limit: int,
) -> None:
    """Write a report that opens without a cluster: tables, curves, configs, digests, pictures, commands.

    It is a snapshot of what you may read now. Its links lead to pages of the cluster, which show what their reader may
    read then. A file that is there is replaced.

    \b
    Examples:
      det report --project vision/digits -o digits.html
      det report --experiment 7 --experiment 9 --run baseline --title "Learning rates" --notes why.md
      det report --filter 'label = paper and accuracy > 0.9' -o paper.ipynb
    """
    if output.suffix.lower() not in {".html", ".ipynb"}:
        raise click.UsageError(f"-o {clean(output)}: a report ends in .html or .ipynb")
    if not (project or experiments or runs or filter_):
        raise click.UsageError("name what it is of: --project, --experiment, --run or --filter")
    made = invocation.client.report(
        output,
        project=project,
        experiments=experiments,
        runs=runs,
        filter=filter_,
        title=title,
        notes=_text(notes),
        notes_file=str(notes or ""),
        limit=limit,
    )
    if invocation.as_json:
        counts = {"experiments": made.experiments, "runs": made.runs, "left_out": list(made.left_out)}
        say_json({"file": str(made.path), "size": made.size, **counts})
        return
    for left in made.left_out:
        note(clean(left))
    what = f"{counted(made.experiments, 'experiment')}, {counted(made.runs, 'run')}, {size(made.size)}"
    say(f"{clean(made.path)}: {what}")


def _text(notes: Path | None) -> str:
    if notes is None:
        return ""
    try:
        return notes.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{notes} cannot be read: {error}") from error
