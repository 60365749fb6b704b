"""The magics of user tasks: borrowed cells, TensorBoards, notebook servers."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from detlab_magics.errors import MagicError
from detlab_magics.kernel import cell_number
from detlab_magics.magic_lines import expanded, line_variables, parse_line, short_errors

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession


@magics_class
class TaskMagics(Magics):
    """What a notebook does on the cluster beside experiments."""

    shell: Any

    def __init__(self, shell: Any, session: KernelSession) -> None:
        super().__init__(shell)
        self.session = session

    @magic_arguments()
    @argument("task", nargs="?", help="line magic only: a borrowed cell to follow, whose variables are returned")
    @argument("--slots", "-s", type=int, default=1, help="slots (GPUs, or CPU slots) to borrow; default 1")
    @argument("--in", "-i", dest="ins", action="append", metavar="A,B", help="variables to pass into the cell")
    @argument("--out", "-o", dest="outs", action="append", metavar="X,Y", help="variables to return from the cell")
    @argument("--name", "-n", help="display name")
    @argument("--image", help="container image; runs it by docker")
    @argument("--runtime", help="process (on the node), docker (a container), or another that agents have")
    @argument("--pool", help="resource pool")
    @argument("--priority", type=int, help="1 to 99; lower goes first")
    @argument("--template", help="a template of the master that is laid under its configuration")
    @argument("--workspace", help="workspace to put it in: its members see its state, and only you open it")
    @argument("--project", help="project of the workspace")
    @argument("--context", "-c", help="folder whose files are uploaded; default: what the cell imports")
    @argument("--detach", "-d", action="store_true", help="return immediately; the task is in _")
    @needs_local_scope
    @no_var_expand
    @line_cell_magic
    @short_errors
    def det_run(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        """Run the cell in a fresh process on borrowed slots; give them back at its end.

        The cell sees nothing of the notebook but the variables named by `--in`, the captured cells (`%%det_module`) and
        the modules beside the notebook. Plain data, arrays, tables and tensors are sent as they are, anything else as a
        pickle. On an interrupt you choose whether to kill it. Examples::

            %%det_run --slots 1 --in data --out model_state,losses
            import train
            model_state, losses = train.fit(data)

            %det_run cell-3f9a1c20b7d4
        """
        from detlab_magics import taskactions
        from detlab_magics.borrowed.shipping import names_of

        args = parse_line(self.det_run, line)
        if cell is None:
            if args.task is None:
                raise MagicError(
                    "%det_run follows a borrowed cell that is already started; to run a cell, use two percent signs",
                    hint="%%det_run in the first line of a cell, the code below it",
                )
            return taskactions.attach(self.session, args.task, self.shell.user_ns)
        if args.task is not None:
            raise MagicError(f"%%det_run takes no task id: {args.task}", hint="pass variables with --in a,b")
        if args.slots < 0:
            raise MagicError("--slots must be 0 (no GPU) or more")
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        wish = taskactions.Borrow(
            text=cell,
            cell=cell_number(),
            slots=args.slots,
            ins=names_of(args.ins, "--in"),
            outs=names_of(args.outs, "--out"),
            image=expanded(args.image, namespace),
            runtime=args.runtime,
            pool=args.pool,
            priority=args.priority,
            template=expanded(args.template, namespace),
            workspace=expanded(args.workspace, namespace),
            project=expanded(args.project, namespace),
            name=expanded(args.name, namespace),
            context=pathlib.Path(args.context).expanduser() if args.context else None,
            detach=args.detach,
        )
        task = taskactions.borrow(self.session, wish, self.shell.user_ns)
        if args.detach:
            self.shell.displayhook.update_user_ns(task)
        return None

    @magic_arguments()
    @argument("experiments", nargs="*", type=int, help="experiment ids; default: the last submitted one")
    @argument("--trial", "-t", dest="trials", action="append", type=int, help="a single trial (repeatable)")
    @argument("--new", action="store_true", help="start another one although one with the same experiments exists")
    @argument("--workspace", help="workspace to put it in: its members see its state, and only you open it")
    @argument("--project", help="project of the workspace")
    @line_magic
    @line_variables
    @short_errors
    def det_tensorboard(self, line: str) -> None:
        """Start a TensorBoard of experiments and open it; it stops by itself when unused.

        Examples::

            %det_tensorboard
            %det_tensorboard 7 8
        """
        from detlab_magics import taskactions

        args = parse_line(self.det_tensorboard, line)
        chosen = args.experiments
        if not chosen and not args.trials:
            if self.session.latest is None:
                raise MagicError("which experiment? None was submitted from this kernel", hint="%det_list, then the id")
            chosen = [self.session.latest]
        place = taskactions.TaskPlace(args.workspace, args.project)
        taskactions.tensorboard(self.session, chosen, args.trials or [], new=args.new, place=place)

    @magic_arguments()
    @argument("--all", "-a", action="store_true", help="also ended ones")
    @line_magic
    @line_variables
    @short_errors
    def det_notebook(self, line: str) -> None:
        """List your notebook servers on the cluster, with links.

        Example::

            %det_notebook
        """
        from detlab_magics import taskactions

        args = parse_line(self.det_notebook, line)
        display(taskactions.notebooks(self.session, everything=args.all))
