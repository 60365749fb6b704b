"""Whole notebooks as tasks: the files to upload, and a check of the parameters before submission.

A notebook is read as the JSON it is; neither nbformat nor papermill is needed here.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.client.bundling.capture import capture_imports
from detlab.client.bundling.search_path import search_path_warnings
from detlab.client.submission import ConfigSource, config_mapping
from detlab.errors import BundleError, ConfigError, Problem
from detlab.schemas.taskwire import DEFAULT_ENTRYPOINTS, TaskKind
from detlab.schemas.wire import ProblemView

ENTRYPOINT = DEFAULT_ENTRYPOINTS[TaskKind.NOTEBOOK_RUN]
"""Said even though it is the default: of earlier masters it is not."""
FOLDER = ".det_notebook"
EXECUTED = "executed.ipynb"
"""Name of the output that holds the executed notebook."""
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
    "tuple": (tuple, list),
}
_TYPE_COMMENT = re.compile(r"#\s*type:\s*([\w.]+)")
_BORROWS = re.compile(r"^\s*(?:\w+\s*=\s*)?%%?det_(?:run|experiment)\b", re.MULTILINE)
_CODE_MAGICS = re.compile(r"%%(det_module|det_run|time|timeit|capture)\b")


@dataclass(frozen=True)
class Parameter:
    """One variable of the cell tagged `parameters`.

    Attributes:
        name: Its name.
        type: `int`, `float`, `str`, `bool`, `list`, `dict` or `tuple`, by its annotation or its default; None: unknown.
        default: Its default as it is written.
        optional: Whether None fits.
    """

    name: str
    type: str | None
    default: str
    optional: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value is of this type."""
        if value is None:
            return self.optional or self.type is None
        if self.type is None:
            return True
        return isinstance(value, _TYPES[self.type]) and not (isinstance(value, bool) and self.type != "bool")

    def read(self, text: str) -> Any:
        """Parse a command-line argument as a value of this parameter's type.

        Raises:
            ValueError: The text is not a value of that type.
        """
        if self.type == "str":
            return text
        from detlab.schemas.expconf import load_yaml

        value, problems = load_yaml(text, self.name)
        if problems or (isinstance(value, str) and self.type is not None):
            value = _literal(text)
        if self.type == "float" and isinstance(value, str):
            value = float(value)  # YAML takes 1e-3 for a text
        if not self.fits(value):
            raise ValueError(f"{text!r} is not of type {self.type}")
        return value


@dataclass(frozen=True)
class NotebookRun:
    """A notebook run, ready to be submitted by `submit_task`."""

    config: dict[str, Any]
    bundle: Bundle
    name: str
    source: dict[str, Any]
    parameters: dict[str, Any]
    warnings: list[ProblemView] = field(default_factory=list)


def read_notebook(path: str | Path) -> dict[str, Any]:
    """Return a notebook's content.

    Raises:
        BundleError: It cannot be read or is not a notebook of format 4.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not a notebook: {error}", hint="save it in Jupyter as .ipynb") from error
    cells = found.get("cells") if isinstance(found, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells) or found.get("nbformat") != 4:
        raise BundleError(f"{path} is not a notebook of format 4", hint="open it in Jupyter and save it again")
    if not any(cell.get("cell_type") == "code" for cell in cells):
        raise BundleError(f"{path} has no code to run")
    return found


def check_language(notebook: Mapping[str, Any], where: str) -> None:
    """Refuse a notebook that is not Python, or does not say what it is: its run would wait in the queue, then fail.

    Args:
        notebook: The notebook.
        where: What to call it.

    Raises:
        BundleError: It says another language; or its kernel is none of Python's, and it says no language.
    """
    metadata = notebook.get("metadata")
    parts = (metadata if isinstance(metadata, dict) else {}).get
    spec, info = (found if isinstance(found := parts(key), dict) else {} for key in ("kernelspec", "language_info"))
    kernel, said = str(spec.get("name") or ""), str(spec.get("language") or info.get("name") or "")
    named = (known for begin, known in _KERNELS.items() if kernel.lower().startswith(begin))
    language = said.lower() or ("r" if kernel in {"ir", "xr"} else next(named, ""))
    if language in {"python", "ipython", "python3"} or not kernel + language:
        return
    if language:
        raise BundleError(
            f"{where} is a notebook in {said or language} (kernel {kernel or 'unknown'!r}): only Python notebooks run",
            hint=f"run its code as a command, in an image that has it: {_OTHERWISE.get(language, _ELSEWHERE)}",
        )
    raise BundleError(
        f"{where} does not say its language: its kernel {kernel!r} is unknown, and kernelspec.language is missing",
        hint='open it in Jupyter, choose a kernel and save it; or add "language": "python" to metadata.kernelspec',
    )


_KERNELS = {
    **dict.fromkeys(("python", "ipython", "ipykernel", "conda-", "venv", ".venv", "pyenv", "poetry"), "python"),
    "julia": "julia",
    "bash": "bash",
    "scala": "scala",
    "xcpp": "c++",
}
"""What names of kernels begin with -> the language; for notebooks that do not say it."""
_ELSEWHERE = "det command run"
_OTHERWISE = {
    "r": "jupyter nbconvert --to script, then det command run Rscript FILE.r",
    "julia": "jupyter nbconvert --to script, then det command run julia FILE.jl",
}


def parameters_of(notebook: Mapping[str, Any]) -> dict[str, Parameter] | None:
    """Return the parameters of a notebook by name; None if no cell is tagged `parameters`."""
    for cell in notebook["cells"]:
        tags = (cell.get("metadata") or {}).get("tags") or []
        if cell.get("cell_type") == "code" and "parameters" in tags:
            return _parameters(_text(cell))
    return None


def checked_parameters(notebook: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the parameters to run with; texts of `given` that are words of a command line are `Word`s.

    Raises:
        ConfigError: With every parameter whose name or type is wrong.
    """
    known = parameters_of(notebook)
    if known is None:
        if not given:
            return {}
        hint = "tag the cell with the defaults `parameters` (JupyterLab: property inspector, cell tags)"
        raise ConfigError([Problem("", "no cell is tagged `parameters`", hint)], f"{where} takes no parameters")
    problems, values = [], {}
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is None:
            problems.append(_unknown(name, known))
            continue
        try:
            values[name] = parameter.read(value.text) if isinstance(value, Word) else value
            json.dumps(values[name])
        except (TypeError, ValueError, SyntaxError) as error:
            problems.append(Problem(name, f"{error}", f"its default is {parameter.default}"))
            continue
        if not parameter.fits(values[name]):
            message = f"must be of type {parameter.type}, not {type(value).__name__}"
            problems.append(Problem(name, message, f"its default is {parameter.default}"))
    if problems:
        count = f"{len(problems)} parameter{'' if len(problems) == 1 else 's'}"
        raise ConfigError(problems, f"{where}: {count} cannot be used")
    return values


@dataclass(frozen=True)
class Word:
    """A parameter's value as text from the command line; the notebook determines its type."""

    text: str


def slots_warning(notebook: Mapping[str, Any], slots: int | None) -> Problem | None:
    """Return what to say of the slots of a notebook whose cells ask the cluster for slots of their own, if it has such.

    A run that holds slots while its cells wait for others waits for ever where there are no others.

    Args:
        notebook: The notebook.
        slots: The run's own; None: its config does not say, and it gets none.
    """
    cells = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    borrowing = [str(number) for number, cell in enumerate(cells, 1) if _BORROWS.search(_text(cell))]
    if not borrowing or slots == 0:
        return None
    which = f"code cell{'s' if borrowing[1:] else ''} {', '.join(borrowing[:8])}{', …' if borrowing[8:] else ''}"
    asks = f"{which} {'ask' if borrowing[1:] else 'asks'} the cluster for slots"
    if slots is None:
        return Problem(
            "resources.slots",
            f"{asks}, so the run itself holds none",
            "set it (--slots N) if other cells compute",
            "warning",
        )
    message = f"{asks}, while the run itself holds {slots}: it waits for ever where the cluster has no more"
    return Problem("resources.slots", message, "set it to 0 (--slots 0) unless other cells compute", "warning")


def prepare_notebook_run(
    path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    config: ConfigSource | None = None,
    slots: int | None = None,
    name: str | None = None,
    context: str | Path | None = None,
) -> NotebookRun:
    """Check a notebook and its parameters, and pack it with what it imports.

    Args:
        path: The notebook.
        parameters: Values for variables of its cell tagged `parameters`.
        config: Task config (`detlab.schemas.taskconf`); its entrypoint is set here.
        slots: `resources.slots`; by default 0 if its cells ask the cluster for slots, else the kind's default.
        name: Display name; default: the file's.
        context: Folder to ship; None: the notebook and the modules beside it that it imports.

    Raises:
        ConfigError: Parameters or config have mistakes.
        BundleError: The file is not a notebook, or the code cannot be packed.
    """
    file = Path(path).expanduser()
    notebook = read_notebook(file)
    check_language(notebook, file.name)
    values = checked_parameters(notebook, parameters or {}, file.name)
    raw = {} if config is None else config_mapping(config)
    raw["entrypoint"] = ENTRYPOINT
    if slots is not None:
        raw["resources"] = {**(raw.get("resources") or {}), "slots": slots}
    warning = slots_warning(notebook, (raw.get("resources") or {}).get("slots"))
    if warning is not None:
        raw["resources"] = {"slots": 0, **(raw.get("resources") or {})}
    request = {"notebook": file.name, "parameters": values}
    files: dict[str, bytes | str] = {
        file.name: file.read_bytes(),
        f"{FOLDER}/run.json": json.dumps(request),
    }
    bundle = _pack(file, notebook, files, None if context is None else Path(context))
    source = {"notebook": str(path), "parameters": values}
    whole = None if context is None else Path(context).expanduser()
    told = search_path_warnings(_python(notebook), file.absolute().parent, whole)
    told += [] if warning is None else [ProblemView.model_validate(warning.to_dict())]
    return NotebookRun(raw, bundle, name or file.name, source, values, told)


def _pack(file: Path, notebook: Mapping[str, Any], files: dict[str, bytes | str], context: Path | None) -> Bundle:
    if context is not None:
        return build_bundle(context, files=files)
    sources = {f"cell {number}": text for number, text in enumerate(_python(notebook), 1)}
    found = capture_imports(sources, file.parent)
    return build_bundle(file.parent, files=files, only=found.paths) if found.paths else build_bundle(files=files)


def _python(notebook: Mapping[str, Any]) -> list[str]:
    """Return the code cells without what only IPython understands."""
    found = []
    for cell in notebook["cells"]:
        if cell.get("cell_type") != "code":
            continue
        lines = _text(cell).split("\n")
        if lines[0].startswith("%%") and not _CODE_MAGICS.match(lines[0]):
            continue
        kept = []
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            kept.append(f"{indent}pass" if line.lstrip().startswith(("%", "!")) else line)
        found.append("\n".join(kept))
    return found


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def _parameters(text: str) -> dict[str, Parameter]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    lines = text.splitlines()
    found: dict[str, Parameter] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                comment = _TYPE_COMMENT.search(lines[node.lineno - 1])
                found[name] = _parameter(name, value, comment.group(1) if comment else None)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if value is not None:
                found[name] = _parameter(name, value, ast.unparse(annotation))
            case _:
                pass
    return found


def _parameter(name: str, value: ast.expr, said: str | None) -> Parameter:
    default = ast.unparse(value)
    optional = False
    kind = None
    if said is not None:
        words = re.findall(r"\w+", said)
        optional = "None" in words or "Optional" in words
        wanted = [word.lower() for word in words if word not in {"None", "Optional", "typing"}]
        kind = wanted[0] if len(wanted) >= 1 and wanted[0] in _TYPES and "|" not in said.replace("| None", "") else None
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError):
        literal = ...
    if literal is None:
        optional = True
    elif kind is None and said is None and literal is not ...:
        kind = type(literal).__name__ if type(literal).__name__ in _TYPES else None
    return Parameter(name, kind, default, optional)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _unknown(name: str, known: Mapping[str, Parameter]) -> Problem:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"it has: {', '.join(known) or 'none'}"
    return Problem(name, "the notebook has no such parameter", hint)
