"""Makes the reference pages that repeat what the code says: cli, magics, http-api, core-api, pytorch, client.

    python docs/generate.py           write them
    python docs/generate.py --check   exit 1 and name the pages that are not current

`tests/docs/test_docs_generated.py` fails when one is not current. (The page of the experiment config is made by
`python -m detlab.schemas.publish`.)
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

PAGES = Path(__file__).parent / "reference"
MARK = "<!-- Made by `python docs/generate.py` from the code; do not edit. -->"


def page(title: str, *parts: str) -> str:
    """Join the parts of a page under its title."""
    return "\n\n".join([f"# {title}", MARK, *(part.strip("\n") for part in parts)]) + "\n"


def row(*cells: str) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; an empty one is nothing."""
    return "\n".join([row(*header), "|" + "---|" * len(header), *(row(*cells) for cells in rows)]) if rows else ""


# --- cli


def cli() -> str:
    """The page of the command line, from click's own objects."""
    from detlab.cli.root import SHORT, det

    context = click.Context(det, info_name="det")
    commands = list(walk(det, context))
    short = ", ".join(f"`{key}` {name}" for key, name in SHORT.items())
    overview = [
        (f"[`{context.command_path}`](#{anchor(context.command_path)})", first_sentence(command.help))
        for command, context in commands
        if not isinstance(command, click.Group)
    ]
    intro = f"`det COMMAND --help` says the same. Short names: {short}.\n\n{help_text(det.help)}"
    end = help_text(det.epilog)
    options = option_table(det, context)
    parts = [section(command, context) for command, context in commands]
    return page("Command line", intro, options, end, table(("command", ""), overview), *parts)


def walk(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a group, with the context that knows its full name."""
    seen: set[int] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden or id(command) in seen:
            continue
        seen.add(id(command))
        below = click.Context(command, info_name=name, parent=context)
        yield command, below
        if isinstance(command, click.Group):
            yield from walk(command, below)


def section(command: click.Command, context: click.Context) -> str:
    """One command: usage, help, options."""
    if isinstance(command, click.Group):
        return f"## {context.command_path}\n\n{help_text(command.help)}"
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{level} {context.command_path}", f"    {usage}", help_text(command.help), option_table(command, context)]
    return "\n\n".join(part for part in parts if part)


def option_table(command: click.Command, context: click.Context) -> str:
    """The options of a command but --help."""
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
        if (record := parameter.get_help_record(context)) is not None
    ]
    return table(("option", "meaning"), [(f"`{names}`", text.replace("<", "&lt;")) for names, text in records])


def help_text(text: str | None) -> str:
    r"""Return click's help as markdown: in paragraphs that begin with `\b` the indented lines are code."""
    parts = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            parts.append(" ".join(paragraph.split()))
            continue
        runs: list[tuple[bool, list[str]]] = []
        for line in paragraph.splitlines()[1:]:
            code = line.startswith(" ")
            if not runs or runs[-1][0] is not code:
                runs.append((code, []))
            runs[-1][1].append(line)
        parts += [
            textwrap.indent(textwrap.dedent("\n".join(lines)), "    ") if code else " ".join(lines)
            for code, lines in runs
        ]
    return "\n\n".join(parts)


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a help text or docstring."""
    paragraph = " ".join(inspect.cleandoc(text or "").split("\n\n", maxsplit=1)[0].split())
    return re.split(r"(?<=[a-z)`])\. (?=[A-Z])", paragraph)[0].rstrip(".")


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


# --- magics


def magics() -> str:
    """The page of the magics, from their parsers and docstrings."""
    from detlab_magics.magics import magic_functions, magic_table

    intro = (
        "In a notebook server of the cluster the magics are loaded already; elsewhere `%load_ext detlab_magics`.\n"
        "`%%det_experiment?` shows the help of one. All that they do is plain Python in [detlab.client](client.md) too."
    )
    names = [name for name, _ in magic_table()]
    overview = [(f"[`{name}`](#{anchor(name)})", text) for name, text in magic_table()]
    functions = magic_functions()
    parts = [magic_section(name, functions[name.lstrip("%")]) for name in names]
    return page("Magics", intro, table(("magic", ""), overview), *parts)


def magic_section(name: str, method: Callable[..., Any]) -> str:
    """One magic: usage, docstring, arguments."""
    parser = getattr(method, "parser", None)
    actions = [] if parser is None else [a for a in parser._actions if "--help" not in a.option_strings]
    usage = " ".join(
        [name, *(f"[{usage_of(a)}]" if a.option_strings or a.nargs == "?" else a.dest.upper() for a in actions)]
    )
    arguments = [(f"`{', '.join(a.option_strings) or a.dest.upper()}`", a.help or "") for a in actions]
    doc = inspect.cleandoc(method.__doc__ or "")
    # magic_arguments puts its own usage before the docstring and its list of arguments behind it
    doc = re.sub(r"\A::\n\n(?:  .*\n)+", "", doc)
    doc = re.split(r"\n+(?:positional arguments|options|optional arguments):\n", doc)[0].strip()
    return "\n\n".join(
        part
        for part in (f"## {name}", f"    {usage}", rest_to_markdown(doc), table(("argument", ""), arguments))
        if part
    )


def usage_of(action: argparse.Action) -> str:
    """How an argument is written in a usage line."""
    if not action.option_strings:
        return action.dest.upper()
    takes = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return f"{action.option_strings[0]}{takes}"


def rest_to_markdown(doc: str) -> str:
    """Return a docstring with `Example::` as `Example:`; its indented lines are markdown's code already."""
    return re.sub(r"::$", ":", doc, flags=re.MULTILINE)


# --- http


def http_api() -> str:
    """The page of the HTTP API, from the route table and the handlers' annotations."""
    from detlab_hub.web.routes import API
    from detlab_hub.web.scopes import Scope, operation_of, scope_name

    intro = """
All below `/services/detlab/api/v1/` of the Hub's address, JSON in and out. `GET openapi.json` serves the whole contract
as OpenAPI 3.1; the models are in `harness/detlab/schemas/wire/` and `taskwire.py`.

    curl -H "Authorization: Bearer $DET_TOKEN" http://127.0.0.1:8642/services/detlab/api/v1/experiments

- A token goes into the header `Authorization: Bearer TOKEN` (or `token TOKEN`), never into a URL.
- A reply that is no success is an `ErrorView`: `code`, `message`, `hint`, and the `problems` of a configuration.
- NaN and the infinities travel as the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
- A stream is one JSON object a line (ndjson); an empty line keeps the connection alive. `after` takes the cursor of the
  last event seen; a cursor that is too old gets an event of kind `resync`.
"""
    holders = {
        Scope.PUBLIC: "everybody",
        Scope.TASK: "the task token of a current run",
        Scope.AGENT: "the key of an enrolled agent",
        Scope.ENROL: "an enrolment token",
    }
    scopes = [(f"`{s}`", holders.get(s) or f"people whose Hub token has `{scope_name(s)}`") for s in Scope]
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path, handler in API:
        for verb in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            operation = operation_of(handler, verb)
            if operation is None:
                continue
            query = ", ".join(operation.query.model_fields) if operation.query is not None else ""
            cells = (
                f"`{verb} {path}`",
                " or ".join(sorted(operation.scopes)),
                f"`{query}`" if query else "",
                body_of(operation),
                reply_of(operation),
                operation.summary.splitlines()[0],
            )
            first = path.split("/")[0]
            groups.setdefault("cluster" if first in {"openapi.json", "me", "stream"} else first, []).append(cells)
    header = ("call", "scope", "query", "body", "reply", "")
    parts = [f"## {name}\n\n{table(header, rows)}" for name, rows in groups.items()]
    outside = "Beside the API, `GET /services/detlab/health` (public) answers 200, or 503 when the master cannot write."
    return page("HTTP API", intro, outside, "## Scopes", table(("scope", "who has it"), scopes), *parts)


def body_of(operation: Any) -> str:
    """What is sent."""
    if operation.body is not None:
        return f"`{operation.body.__name__}`"
    return f"`{operation.accepts}`" if operation.accepts else ""


def reply_of(operation: Any) -> str:
    """What comes back."""
    if operation.streams is not None:
        return f"stream of `{operation.streams.__name__}`"
    if operation.reply is None:
        return "" if operation.media == "application/json" else f"`{operation.media}`"
    arguments = getattr(operation.reply, "__args__", ())
    if getattr(operation.reply, "__origin__", None) is list:
        return f"list of `{arguments[0].__name__}`"
    return f"`{getattr(operation.reply, '__name__', operation.reply)}`"


# --- Python


def core_api() -> str:
    """The page of the Core API, from signatures and docstrings."""
    from detlab import InvalidHP, core, info

    intro = """
`import detlab as det`. The names and signatures are those of Determined 0.38; what is there in detlab only has a
default and comes after them. [Five staged examples](../../examples/core_api/README.md) show them at work.

Off-cluster the same script runs: reports are logged, checkpoints go to a folder of the user, nothing is ever
preempted, and `det.get_cluster_info()` is None.
"""
    members = [
        ("core_context.train", core.TrainContext),
        ("core_context.checkpoint", core.CheckpointContext),
        ("core_context.preempt", core.PreemptContext),
        ("core_context.distributed", core.DistributedContext),
        ("core_context.searcher", core.SearcherContext),
        ("core_context.profiler", core.ProfilerContext),
        ("core_context.experimental", core.ExperimentalCoreContext),
    ]
    enums = [
        core.DownloadMode,
        core.EarlyExitReason,
        core.PreemptMode,
        core.SearcherMode,
        core.TensorboardMode,
        core.Unit,
    ]
    return page(
        "Core API",
        intro,
        function_section("det.core.init", core.init),
        class_section("core_context", core.Context),
        *(class_section(name, cls) for name, cls in members),
        class_section("det.core.SearcherOperation", core.SearcherOperation),
        function_section("det.get_cluster_info", info.get_cluster_info),
        fields_section("det.ClusterInfo", info.ClusterInfo),
        fields_section("det.TrialInfo", info.TrialInfo),
        f"## det.InvalidHP\n\n{doc_of(InvalidHP)}",
        "## Choices\n\n"
        + table(
            ("", "values"), [(f"`det.core.{e.__name__}`", ", ".join(f"`{m}`" for m in e.__members__)) for e in enums]
        ),
    )


CHECKPOINT = """
A checkpoint is a folder; its manifest of digests comes last, and a folder without one is no checkpoint.

{files}

The first three hold the state, a tree with these keys. `on_checkpoint_save_start` may add its own, and
`on_checkpoint_load_start` sees them.

{keys}

A value of a class that is not Python's, NumPy's or PyTorch's is pickled as the last resort, with a warning that names
the class; resuming a trial unpickles it, `load_trial_from_checkpoint_path` does not. `previous` names up to {kept}
earlier checkpoints of the trial, newest first: if files of one do not verify, the trial resumes from the newest that
does. A checkpoint of another model is refused with every name and shape that differs, before anything is loaded.
"""
CHECKPOINT_FILES: list[tuple[str, ...]] = [
    (
        "`model_<i>.safetensors`",
        "parameters and buffers of the i-th wrapped model under the names of its own class, without `module.` of DDP "
        "and `_orig_mod.` of `torch.compile`",
    ),
    ("`trainer.safetensors`", "all other tensors: of optimizers, callbacks, random number generators"),
    ("`trainer.json`", "what is no tensor, and which tensor belongs where"),
    ("`load_data.json`", "the trial's class, hyperparameters and experiment config"),
    (
        "`code/`",
        "source files of the working directory (`.py`, `.yaml`, `.json`, `.toml`, `.txt`, `.cfg`), 1 MiB each and "
        "10 MiB together at most",
    ),
    (
        "`metadata.json`",
        "`steps_completed`, `epochs_completed`, `world_size`, `framework`, `format`, `detlab_version`, `previous`",
    ),
]
CHECKPOINT_KEYS: list[tuple[str, ...]] = [
    (
        "`models_state_dict`, `optimizers_state_dict`, `lr_schedulers_state_dict`",
        "one item each, in the order of wrapping",
    ),
    ("`scaler_state_dict`", "of the gradient scaler, or None"),
    ("`callbacks`", "by name, what `state_dict` returned on the chief"),
    ("`ranks`", "for each rank, states of its random number generators and, within an aggregation, its gradients"),
    ("`trial_state`", "batches and epochs trained, place in the data, number of ranks, best validation"),
]
ENVIRONMENT = """
The trainer has no variables of its own. Ranks come from those of torchrun (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`,
`LOCAL_WORLD_SIZE`, `GROUP_RANK`, `GROUP_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), which
`detlab.launch.torch_distributed` sets; the trial comes from `DET_TASK_DIR`, which the agent sets. Tensors on GPUs are
exchanged over NCCL, others over gloo. On a cluster there must be as many processes as slots. `kill -USR1` prints the
stacks of all threads. What the trainer has to say goes to the logger `detlab.pytorch`, off-cluster reports to
`detlab.core`; `logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)` shows both.
"""
DIFFERENCES: list[tuple[str, ...]] = [
    (
        "`latest_checkpoint=None` on a cluster",
        "starts anew, with a warning",
        "resumes from the trial's own latest; `False` starts anew",
    ),
    (
        '`checkpoint_policy="best"` in a local run',
        "becomes `all`",
        "works, if `exp_conf` names the `metric` of the `searcher`",
    ),
    (
        "content of checkpoints",
        "pickles; random states of the chief",
        "safetensors and JSON; random states of every rank. Determined's can be loaded",
    ),
    (
        "saving",
        "the loop waits for the upload",
        "the loop waits for a copy. `on_checkpoint_write_end` comes at the next control point (about a second), "
        "`on_checkpoint_upload_end` at one after it",
    ),
    (
        "the end of an epoch on several ranks",
        "the data is repeated and then dealt out: ranks pass it at different batches",
        "all ranks take the same number of steps; the last batches are pooled and dealt out evenly",
    ),
    (
        "another number of processes on resume",
        "the place in the data is a number of batches per rank",
        "no sample of the epoch is skipped or used twice",
    ),
    (
        "`STEP_EVERY_OPTIMIZER_STEP` with a `frequency`",
        "counts batches",
        "counts steps of the scheduler's own optimizer",
    ),
    ("metrics that are tensors", "copied to the host in every batch", "copied to the host when a report is due"),
    ("a callback that raises", "a traceback", "and its name, the hook, the rank and the batch"),
    (
        "a rank that hangs",
        "the others wait",
        "is named after `hang_timeout` seconds; the attempt ends, the trial restarts",
    ),
    ("`configure_apex_amp`", "NVIDIA's apex", "refused; `experimental.use_amp()` is there"),
]


def pytorch() -> str:
    """The page of the trainer, from signatures and docstrings."""
    from detlab import pytorch as trainer
    from detlab.errors import CheckpointError
    from detlab.pytorch._callback import HOOKS, CallbackFailed
    from detlab.pytorch._checkpoint import StateMismatch
    from detlab.pytorch._checkpointing import KEPT_NAMES
    from detlab.pytorch._data import DataError
    from detlab.pytorch._errors import TrainerError
    from detlab.pytorch._experimental import PyTorchExperimentalContext
    from detlab.pytorch._writer import CheckpointWriteFailed

    intro = """
`from detlab import pytorch`. The names and signatures are those of Determined 0.38; what is there in detlab only has a
default and comes after them. [Port your PyTorch loop](../how-to/port-your-pytorch-loop.md) shows them at work,
[examples/digits_trial](../../examples/digits_trial/README.md) is a whole trial.

A *batch* is one call of `train_batch` on each rank; `steps_completed` counts batches. The *chief* is rank 0.
"""
    errors = [TrainerError, DataError, CallbackFailed, StateMismatch, CheckpointWriteFailed, CheckpointError]
    units = """
`pytorch.Batch(100)` counts batches, `pytorch.Epoch(1)` passes over the training data. As a period each may also hold a
container: `pytorch.Batch([10, 50])` is due after 10 and after 50 batches.
"""
    checkpoint = CHECKPOINT.format(
        files=table(("file", "holds"), CHECKPOINT_FILES), keys=table(("key", "holds"), CHECKPOINT_KEYS), kept=KEPT_NAMES
    )
    reducers = ", ".join(f"`{member}`" for member in trainer.Reducer.__members__)
    return page(
        "PyTorchTrial and Trainer",
        intro,
        function_section("pytorch.init", trainer.init),
        function_section("trainer.fit", trainer.Trainer.fit).replace(
            "    trainer.fit", "    trainer = pytorch.Trainer(trial, context)\n    trainer.fit", 1
        ),
        f"## Batch, Epoch\n\n{units.strip()}",
        class_section("PyTorchTrial", trainer.PyTorchTrial),
        class_section("PyTorchTrialContext", trainer.PyTorchTrialContext, inherited=True),
        class_section("context.experimental", PyTorchExperimentalContext),
        callback_section(trainer.PyTorchCallback, HOOKS),
        "## LRScheduler.StepMode\n\n"
        + table(("mode", "when `scheduler.step()` is called"), attributes_of(trainer.LRScheduler.StepMode)),
        f"## DataLoader\n\n    DataLoader{signature(trainer.DataLoader)}\n\n{doc_of(trainer.DataLoader)}",
        f"## Reducer\n\n{reducers}. {doc_of(trainer.Reducer)}",
        class_section("MetricReducer", trainer.MetricReducer),
        f"## Checkpoints\n\n{checkpoint.strip()}",
        function_section("load_trial_from_checkpoint_path", trainer.load_trial_from_checkpoint_path),
        f"## Environment\n\n{ENVIRONMENT.strip()}",
        "## Errors\n\n" + table(("error", ""), [(f"`{e.__name__}`", first_sentence(e.__doc__)) for e in errors]),
        "## What differs from Determined\n\n" + table(("", "Determined 0.38", "detlab"), DIFFERENCES),
    )


def callback_section(cls: type, hooks: tuple[str, ...]) -> str:
    """The hooks of callbacks: what each gets, when it is called and where."""
    rows = []
    for name in hooks:
        hook = vars(cls)[name]
        doc = " ".join((hook.__doc__ or "").split())
        where = "chief" if re.search(r"\bchief alone\b", doc, re.IGNORECASE) else "every rank"
        rows.append((f"`{name}{signature(hook)}`", first_sentence(hook.__doc__), where))
    return f"## Callbacks\n\n{doc_of(cls)}\n\n{table(('hook', 'when, or what', 'where'), rows)}"


def attributes_of(cls: type) -> list[tuple[str, ...]]:
    """The entries of a docstring's `Attributes:`."""
    text = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    return [(f"`{name}`", said.rstrip(".")) for name, said in entries]


def client() -> str:
    """The page of the Python client."""
    from detlab import client as sdk

    intro = """
What commands and magics do, as Python: `from detlab.client import Client`. Without arguments a client finds the cluster
as `det` does (`DET_URL` and `DET_TOKEN`, the folder `.detlab` here or above, the cluster started last, `det login`).
`AsyncClient` has the same methods as coroutines.

    with Client() as client:
        experiment = client.create_experiment("search.yaml", "code/")
        experiment.wait()
        experiment.top_checkpoint().download("best")
"""
    classes = [sdk.Client, sdk.Experiment, sdk.Trial, sdk.Checkpoint]
    return page("Python client", intro, *(class_section(cls.__name__, cls) for cls in classes))


def function_section(name: str, function: Callable[..., Any]) -> str:
    """A function: signature and docstring."""
    return f"## {name}\n\n    {name}{signature(function)}\n\n{doc_of(function)}"


def class_section(name: str, cls: type, *, inherited: bool = False) -> str:
    """A class: what it is, its own public methods (or inherited ones too), and its properties, inherited ones too."""
    methods, properties = [], []
    for base in reversed(cls.__mro__):
        for key, value in vars(base).items():
            if key.startswith("_"):
                continue
            if isinstance(value, property):
                properties.append((f"`{key}`", first_sentence(value.__doc__)))
                continue
            function = inspect.unwrap(value.__func__ if isinstance(value, classmethod | staticmethod) else value)
            if (inherited or base is cls) and inspect.isfunction(function):
                methods.append((f"`{key}{signature(function)}`", first_sentence(function.__doc__)))
    head = [f"## {name}", first_paragraph(cls.__doc__)]
    parts = [*head, table(("method", ""), methods), table(("property", ""), properties)]
    return "\n\n".join(part for part in parts if part)


def fields_section(name: str, cls: Any) -> str:
    """A dataclass: its public attributes, as its docstring says."""
    known = [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
    doc = inspect.getdoc(cls) or ""
    said = dict(re.findall(r"^    (\w+): (.+)$", doc, re.MULTILINE))
    rows = [(f"`{key}`", said.get(key, "")) for key in known]
    rows += [
        (f"`{key}`", first_sentence(value.__doc__)) for key, value in vars(cls).items() if isinstance(value, property)
    ]
    return f"## {name}\n\n{first_paragraph(doc)}\n\n{table(('attribute', ''), rows)}"


def first_paragraph(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n", maxsplit=1)[0].split())


def doc_of(thing: Any) -> str:
    """A docstring as markdown: its sections become lists."""
    lines = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        heading = re.fullmatch(r"(Args|Raises|Returns|Yields):", line)
        entry = re.fullmatch(r"    (\*{0,2}\w+): (.+)", line)
        if heading:
            lines.append(f"{heading[1]}:\n" if heading[1] != "Args" else "Arguments:\n")
        elif entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            lines.append(f"  {line.strip()}" if line.startswith("        ") else line)
    return "\n".join(lines)


def signature(function: Callable[..., Any]) -> str:
    """The parameters with their defaults, without annotations, `self` and `cls`."""
    parts, star = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        prefix = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        star |= parameter.kind is parameter.VAR_POSITIONAL
        default = "" if parameter.default is parameter.empty else f"={value_of(parameter.default)}"
        parts.append(f"{prefix}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def value_of(default: Any) -> str:
    """A default as people write it."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return "…" if callable(default) else repr(default)


MAKERS: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "magics.md": magics,
    "http-api.md": http_api,
    "core-api.md": core_api,
    "pytorch.md": pytorch,
    "client.md": client,
}


def main() -> int:
    """Write the pages, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the reference pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    options = parser.parse_args()
    stale = 0
    for name, make in MAKERS.items():
        path, text = PAGES / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if options.check:
            print(f"{path} is not current: python docs/generate.py")
        else:
            path.write_text(text, encoding="utf-8")
            print(path)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
