"""`%det_governance`: what a policy lets each source train, as a picture, and the other words of `det governance`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_magic, magics_class, needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from detlab_magics.errors import MagicError
from detlab_magics.magic_lines import expanded, parse_line, short_errors

if TYPE_CHECKING:
    from detlab.governance import Plan
    from detlab_magics.kernel import KernelSession

_PLAN = "plan"
_SHOW = "show"
_COMMANDS = ("show", "verify", "who", "keys", "replay", "ablate", "agents", "sources", "withdraw")


@magics_class
class GovernanceMagics(Magics):
    """Policies of what may be learnt from what."""

    shell: Any

    def __init__(self, shell: Any, session: KernelSession) -> None:
        super().__init__(shell)
        self.session = session

    @magic_arguments()
    @argument(
        "act",
        choices=[_PLAN, *_COMMANDS],
        help="plan: compile a policy against a model, and show the matrix; the others: as `det governance` has them",
    )
    @argument("model", nargs="?", help="variable with a model, or with a function that makes one")
    @argument("--config", "-c", default="config.yaml", help="file, or variable with a mapping; default config.yaml")
    @argument("--parameters", "-p", metavar="FILE", help="names and shapes of parameters in place of a model")
    @needs_local_scope
    @no_var_expand
    @line_magic
    @short_errors
    def det_governance(self, line: str, local_ns: dict[str, Any] | None = None) -> None:
        """Show what each source of samples may train, before anything runs, and what a checkpoint was learnt from.

        `plan` asks nothing of the cluster: what does not fit is named with a code and what to do. Arguments that a
        function must have are taken from the config's hyperparameters, as `det governance plan` does. `show` draws the
        matrix of a trial, and what each source gave to each layer so far. The other words are those of `det
        governance`, with the same arguments and options. `${name}` takes a variable of the notebook. Where the
        evidence is not in order, the cell fails. Examples::

            %det_governance plan net --config config.yaml
            %det_governance plan make_net --config my_config
            %det_governance show ${trial}
            %det_governance verify ${uuid}
            %det_governance who ${uuid} --layer head
            %det_governance keys
        """
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        if line.split()[:1] not in ([], [_PLAN]):
            self._run(expanded(line, namespace) or "")
            return
        args = parse_line(self.det_governance, line)
        display(PlanPicture(compiled(args.model, args.config, args.parameters, namespace)))

    def _run(self, line: str) -> None:
        words = line.split()
        if len(words) == 2 and words[0] == _SHOW and words[1].isdecimal():
            display(learning_of(self.session, int(words[1])))
        else:
            print(said_of(self.session, line))


def said_of(session: KernelSession, line: str) -> str:
    """Carry out a command of `det governance`; return what it says.

    Raises:
        MagicError: The line has a mistake, or what it looks at is not in order.
    """
    from detlab.cli.commands.governance import governance
    from detlab_magics.commandwords import carry_out, words_of

    return carry_out(governance, "%det_governance", session, words_of(line))


def learning_of(session: KernelSession, trial_id: int) -> MatrixPicture:
    """Return what each source may train in a trial, and what it gave so far, as a picture."""
    from detlab.cli.commands.registry.learning import drawn, said
    from detlab.client.operations.governance.evidence import learning

    found = session.client().session.run(learning(trial_id))
    return MatrixPicture(drawn(found), said(found))


def offers(before: Sequence[str], word: str) -> list[str]:
    """Return what a word could become: commands and their options."""
    from click.shell_completion import ShellComplete

    from detlab.cli.commands.governance import governance

    found = ShellComplete(governance, {}, "det_governance", "").get_completions(list(before), word)
    return [item.value for item in found if item.type == "plain"]


def compiled(model: str | None, config: str, parameters: str | None, namespace: dict[str, Any]) -> Plan:
    """Return the plan of a policy.

    Args:
        model: Name of a variable with a model, or with what makes one.
        config: Name of a variable with a config or its block `governance`, or of a file.
        parameters: A file with names and shapes, in place of a model.
        namespace: The notebook's variables.

    Raises:
        MagicError: What the line names is not there, or of another kind.
        GovernanceError: The policy has mistakes, or does not fit the model.
    """
    from detlab.cli.commands.governance import plain_values, policy_block, read_yaml
    from detlab.governance import Policy, compile_policy, parameters_from, parameters_of

    if (model is None) == (parameters is None):
        raise MagicError("name the variable of a model, or a file with --parameters", hint="%det_governance plan net")
    raw = _config(config, namespace)
    policy = Policy.of(policy_block(raw, config))
    if parameters is not None:
        return compile_policy(policy, parameters_from(read_yaml(parameters)))
    made = _model(str(model), namespace, plain_values(raw))
    return compile_policy(policy, parameters_of(made), kinds=[type(one).__name__ for one in made.modules()])


def _config(config: str, namespace: dict[str, Any]) -> Any:
    from detlab.cli.commands.governance import read_yaml

    raw = namespace.get(config)
    if not isinstance(raw, dict):
        raw = read_yaml(config)
    if isinstance(raw, dict) and "governance" not in raw and "sources" in raw:
        raw = {"governance": raw}
    return raw


def _model(name: str, namespace: dict[str, Any], hyperparameters: dict[str, Any]) -> Any:
    from detlab.cli.commands.governance import model_of

    if name not in namespace:
        raise MagicError(f"there is no variable {name!r}", hint="make the model in a cell above: net = Net()")
    made = namespace[name]
    if not _is_model(made) and callable(made):
        return model_of(made, name, hyperparameters, f"{name}({{}}) in a cell")
    if not _is_model(made):
        raise MagicError(f"{name} is a {type(made).__name__}, neither a model nor a function that makes one")
    return made


def _is_model(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "named_parameters", None))


class MatrixPicture:
    """Matrices as heat maps; a table where pictures cannot be shown.

    Args:
        svg: The picture.
        text: The table.
    """

    def __init__(self, svg: str, text: str) -> None:
        self._svg, self._text = svg, text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        picture = base64.b64encode(self._svg.encode()).decode()
        alt = escape(self._text, quote=True)
        html = f'<img alt="{alt}" style="max-width:100%" src="data:image/svg+xml;base64,{picture}">'
        return {"text/html": html, "image/svg+xml": self._svg, "text/plain": self._text}


class PlanPicture(MatrixPicture):
    """A plan as a heat map.

    Args:
        plan: The plan.
    """

    def __init__(self, plan: Plan) -> None:
        from detlab.governance.picture import svg, text

        super().__init__(svg(plan), text(plan))
        self.plan = plan
