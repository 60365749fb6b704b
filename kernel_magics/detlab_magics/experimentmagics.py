"""The magics of experiments: submit, watch, list, logs, pause, activate, kill; and cells as modules.

What needs pydantic or the network is imported when a magic runs, so that `%load_ext` stays quick.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from detlab_magics.errors import MagicError
from detlab_magics.kernel import cell_id, cell_number
from detlab_magics.magic_lines import expanded, line_variables, parse_line, short_errors

if TYPE_CHECKING:
    from detlab.client import Experiment
    from detlab_magics.kernel import KernelSession

F = TypeVar("F", bound=Callable[..., Any])


def _id_argument(f: F) -> F:
    return argument("id", nargs="?", type=int, help="experiment id; default: the last submitted one")(f)


def _metric_argument(f: F) -> F:
    about = "also a column with the last value of this validation metric; may be given several times"
    return argument("--metric", action="append", metavar="NAME", help=about)(f)


@magics_class
class ExperimentMagics(Magics):
    """Experiments from notebook cells."""

    shell: Any

    def __init__(self, shell: Any, session: KernelSession) -> None:
        super().__init__(shell)
        self.session = session

    @magic_arguments()
    @argument("name", help="the module's name: `train` becomes train.py in the bundle")
    @no_var_expand
    @line_cell_magic
    @short_errors
    def det_module(self, line: str, cell: str | None = None) -> None:
        """Make the cell a module: importable here, shipped with experiments; tracebacks name cell and line.

        The code runs when it is imported, not now. Example::

            %%det_module train
            import detlab as det
            def main(): ...
            if __name__ == "__main__":
                main()
        """
        if cell is None:
            raise MagicError(
                "%det_module makes a whole cell a module: it needs two percent signs and the code below it",
                hint=f"write %%det_module {line.strip() or 'train'} in the first line of the cell that holds the code",
            )
        args = parse_line(self.det_module, line)
        module = self.session.modules.capture(args.name, cell, cell_number(), cell_id())
        count = len(cell.splitlines())
        print(f"module {module.name}: {count} line{'' if count == 1 else 's'} from cell {module.cell}")
        if args.name not in self.session.modules.files:
            print("note: no folder for it can be written to: worker processes of this notebook cannot import it")

    @magic_arguments()
    @argument("file", nargs="?", help="a YAML file (line magic only)")
    @argument("--name", "-n", help="display name")
    @argument("--slots", "-s", type=int, help="resources.slots_per_trial")
    @argument("--template", help="a template of the master that is laid under the configuration")
    @argument(
        "--watch", "-w", action="store_true", help="show the live view and return (default in an interactive notebook)"
    )
    @argument("--wait", action="store_true", help="return when it has ended (default headless, as under papermill)")
    @_metric_argument
    @argument("--context", "-c", help="folder whose files are uploaded; default: the cells and what they import")
    @argument(
        "--fork", type=int, metavar="ID", help="a fork of this experiment, with its code; %%det_fork writes the cell"
    )
    @argument("--new", action="store_true", help="submit again although the same experiment exists")
    @argument("--out", "-o", metavar="VAR", help="variable that receives the Experiment (it is in _, too)")
    @argument("--dry-run", action="store_true", help="validate, and list the files to be uploaded; submit nothing")
    @needs_local_scope
    @no_var_expand
    @line_cell_magic
    @short_errors
    def det_experiment(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        """Submit an experiment: the body is a Determined experiment configuration.

        `${name}` takes a variable of the notebook, so papermill's parameters reach it. Examples::

            %%det_experiment --name first --out exp
            entrypoint: python3 train.py
            searcher: {name: single, metric: loss}
            hyperparameters: {lr: 0.1, epochs: ${epochs}}

            %det_experiment search.yaml --context code/ --wait
            exp = %det_experiment search.yaml
        """
        from detlab_magics import actions

        args = parse_line(self.det_experiment, line)
        if args.watch and args.wait:
            raise MagicError("--watch returns at once and --wait does not: give one of them")
        if args.out is not None and not args.out.isidentifier():
            raise MagicError(f"--out {args.out}: not a valid variable name")
        if (cell is None) == (args.file is None):
            raise MagicError(
                "give either a YAML body (%%det_experiment in the cell's first line) or a file (%det_experiment FILE)",
                hint="%%det_experiment? shows an example",
            )
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        request = actions.CellRequest(
            text=cell if cell is not None else _read(args.file),
            where=f"cell {cell_number()}" if cell is not None else args.file,
            first_line=1 if cell is None else 2,
            name=expanded(args.name, namespace),
            slots=args.slots,
            template=expanded(args.template, namespace),
            context=pathlib.Path(args.context).expanduser() if args.context else None,
            metrics=tuple(args.metric or ()),
            wait=True if args.wait else False if args.watch else None,
            new=args.new,
            dry_run=args.dry_run,
            fork=args.fork,
        )
        # The variable is there even if waiting for the end is interrupted or ends in an error.
        experiment = actions.run(self.session, request, namespace, lambda made: self._hand_out(made, args.out))
        return experiment if cell is None and args.out is None else None

    @magic_arguments()
    @_id_argument
    @line_magic
    @line_variables
    @short_errors
    def det_fork(self, line: str) -> None:
        """Write a cell below with the config of an experiment: change it and run it, with the same code.

        Example::

            %det_fork 7
        """
        from detlab_magics import forks

        number = self._id(parse_line(self.det_fork, line).id)
        self.shell.set_next_input(forks.cell_of(self.session, number))
        print(f"the next cell is a fork of experiment {number}: change what you like, and run it")

    @magic_arguments()
    @_id_argument
    @argument("--wait", action="store_true", help="return when it has ended")
    @_metric_argument
    @line_magic
    @line_variables
    @short_errors
    def det_watch(self, line: str) -> None:
        """Show the live view of an experiment: the same from any notebook, kernel or browser.

        Examples::

            %det_watch
            %det_watch 7 --wait
            %det_watch 7 --metric accuracy
        """
        from detlab_magics import actions

        args = parse_line(self.det_watch, line)
        actions.watch(self.session, self._id(args.id), wait=args.wait or None, metrics=args.metric or ())

    @magic_arguments()
    @argument("--active", "-a", action="store_true", help="only those that have not ended")
    @argument("--limit", type=int, default=20, help="rows")
    @line_magic
    @line_variables
    @short_errors
    def det_list(self, line: str) -> None:
        """List experiments, newest first.

        Example::

            %det_list --active
        """
        from detlab_magics import actions

        args = parse_line(self.det_list, line)
        display(actions.listing(self.session, active=args.active, limit=args.limit))

    @magic_arguments()
    @argument("trial", type=int, help="trial id")
    @argument("--tail", "-n", type=int, default=50, help="only so many last lines (default 50; 0: none)")
    @argument("--all", "-a", action="store_true", help="all lines")
    @argument("--follow", "-f", action="store_true", help="follow until the trial ends")
    @argument("--rank", type=int, help="only this rank's lines")
    @argument("--node", help="only lines that were written on this agent")
    @line_magic
    @line_variables
    @short_errors
    def det_logs(self, line: str) -> None:
        """Print a trial's output; traceback lines of captured cells name the cell.

        Example::

            %det_logs 12 --tail 100 --follow
        """
        from detlab_magics import actions

        args = parse_line(self.det_logs, line)
        tail = None if args.all else args.tail
        actions.logs(self.session, args.trial, tail=tail, follow=args.follow, rank=args.rank, node=args.node)

    @magic_arguments()
    @_id_argument
    @line_magic
    @line_variables
    @short_errors
    def det_pause(self, line: str) -> None:
        """Checkpoint an experiment and free its slots; %det_activate resumes it.

        Example::

            %det_pause 7
        """
        from detlab_magics import actions

        print(actions.act(self.session, self._id(parse_line(self.det_pause, line).id), "pause"))

    @magic_arguments()
    @_id_argument
    @line_magic
    @line_variables
    @short_errors
    def det_activate(self, line: str) -> None:
        """Resume a paused experiment.

        Example::

            %det_activate 7
        """
        from detlab_magics import actions

        print(actions.act(self.session, self._id(parse_line(self.det_activate, line).id), "activate"))

    @magic_arguments()
    @_id_argument
    @line_magic
    @line_variables
    @short_errors
    def det_kill(self, line: str) -> None:
        """Kill an experiment immediately.

        Example::

            %det_kill 7
        """
        from detlab_magics import actions

        print(actions.act(self.session, self._id(parse_line(self.det_kill, line).id), "kill"))

    @magic_arguments()
    @argument("kind", nargs="?", default="best_so_far", help="which figure (Tab lists them); default: best_so_far")
    @_id_argument
    @argument("--against", help="best_so_far: `trials`, `time` or `slot_time`")
    @argument("--method", help="importance: `ped_anova` or `fanova`")
    @argument("--params", nargs="+", help="slice, contour: names of hyperparameters")
    @argument("--metrics", nargs="+", help="pareto_front: two or three metrics")
    @argument("--maximize", nargs="+", help="pareto_front: those of which greater values are better")
    @argument("--metric", help="learning_curves: the metric; default the searcher's")
    @argument("--group", help="learning_curves: the metric's group; default validation")
    @argument("--log-y", action="store_true", default=None, help="learning_curves, best_so_far: a logarithmic axis")
    @argument("--max-trials", type=int, help="the best and newest trials; default 1000, of learning_curves 100")
    @line_magic
    @line_variables
    @short_errors
    def det_plot(self, line: str) -> None:
        """Show a figure of a search: interactive, or a static picture when nobody looks.

        Examples::

            %det_plot
            %det_plot importance 7
            %det_plot best_so_far 7 --against slot_time
            %det_plot contour 7 --params lr layers
            %det_plot pareto_front 7 --metrics loss latency
        """
        from detlab_magics import figures

        given = vars(parse_line(self.det_plot, line))
        kind, number = given.pop("kind"), given.pop("id")
        options = {name: value for name, value in given.items() if value is not None}
        figure = figures.draw(self.session, kind, self._id(number), options)
        display(figures.bundle(figure), raw=True)

    @magic_arguments()
    @argument("ids", nargs="*", type=int, help="ids of experiments")
    @argument("--trials", action="store_true", help="the ids are those of trials")
    @argument("--run", action="append", metavar="RUN", help="a run that no cluster started; may be given several times")
    @argument("--metric", action="append", metavar="NAME", help="draw and list this metric; may be given several times")
    @argument("--group", help="the metrics' group; default validation, or of runs alone that of their first metric")
    @argument("--against", choices=("steps", "time", "batches"), default="steps", help="the axis of the curves")
    @argument("--log-y", action="store_true", help="logarithmic axes of the metrics")
    @line_magic
    @line_variables
    @short_errors
    def det_compare(self, line: str) -> None:
        """Show experiments, trials or runs side by side: curves over each other, metrics, and settings that differ.

        Examples::

            %det_compare 12 15
            %det_compare --trials 101 102 --metric accuracy
            %det_compare --trials 101 --run my-laptop-run
        """
        from detlab_magics import comparing, figures

        args = parse_line(self.det_compare, line)
        options = {"group": args.group, "against": args.against, "log_y": args.log_y}
        figure, tables = comparing.compare(
            self.session, args.ids, trials=args.trials, runs=args.run or (), metrics=args.metric or (), **options
        )
        display(figures.bundle(figure), raw=True)
        display(tables)

    @no_var_expand
    @line_magic
    @short_errors
    def det_search(self, line: str) -> None:
        """Steer a search while it runs, look at it, clone it: the words of `det search`.

        `%det_search --help` lists the acts. The first number is the experiment, the next ones are trials; without any
        number it is the last submitted experiment. Examples::

            %det_search show 7
            %det_search extend 7 --trials 8
            %det_search add 7 '{"lr": 0.01, "layers": 3}'
            %det_search stop 7 31
            %det_search clone 7 --set searcher.max_trials=50 --warm-start
            %det_search replay 7 --at 40
        """
        from detlab_magics import searchacts

        print(searchacts.run(self.session, expanded(line, self.shell.user_ns) or ""))

    @no_var_expand
    @line_magic
    @short_errors
    def det_model(self, line: str) -> None:
        """List, show, register, label and compare registered models: the words of `det model`.

        `%det_model --help` lists them. `show` gives the model, or the version, as `_`. Examples::

            %det_model list
            %det_model show digits@production
            %det_model register digits --experiment 7 --to staging
            %det_model label digits@staging production --reason 'better'
            %det_model compare digits staging production
        """
        from detlab_magics import modelacts

        found = modelacts.run(self.session, expanded(line, self.shell.user_ns) or "")
        if isinstance(found, str):
            print(found)
        else:
            self.shell.displayhook.update_user_ns(found)
            display(found)

    @no_var_expand
    @line_magic
    @short_errors
    def det_report(self, line: str) -> None:
        """Write a report of a project, experiments or runs, a page or a notebook: the words of `det report`.

        Examples::

            %det_report --project digits -o digits.html
            %det_report --experiment 7 --run baseline -o why.ipynb
        """
        from detlab.cli.commands.finding.report import report
        from detlab_magics.commandwords import carry_out, words_of

        print(carry_out(report, "%det_report", self.session, words_of(expanded(line, self.shell.user_ns) or "")))

    def _hand_out(self, experiment: Experiment, variable: str | None) -> None:
        """Give the experiment to the notebook: in the variable that was asked for, and in `_`."""
        if variable is not None:
            self.shell.user_ns[variable] = experiment
        self.shell.displayhook.update_user_ns(experiment)

    def _id(self, given: int | None) -> int:
        found = self.session.experiment_id(given)
        if found is None:
            raise MagicError("which experiment? None was submitted from this kernel", hint="%det_list, then the id")
        return found


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise MagicError(f"cannot read {path}: {reason}", hint="%det_experiment FILE.yaml") from problem
