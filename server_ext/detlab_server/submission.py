"""From a file of the user's folder to an experiment or a notebook run: which code travels, and sending it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from detlab.client import AsyncClient
from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.client.bundling.capture import capture_imports
from detlab.client.notebook_runs import checked_parameters, parameters_of, read_notebook, slots_warning
from detlab.client.operations import experiments as operations
from detlab.client.transport.calls import Call, model
from detlab.errors import BundleError, ConfigError, NotFound, Problem
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskKind, TaskSource
from detlab.schemas.wire import CreateExperiment, CreateExperimentReply, ProblemView

Context = Literal["file", "folder", "none"]


class CodeBody(BaseModel):
    """POST detlab/code: which code travels."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = None
    """The file that was chosen, relative to the Jupyter server's root."""
    context: Context = "file"
    """What travels: the file and what it imports, its whole folder, or nothing."""
    folder: str | None = None
    """The folder to send, if no file was chosen."""


class JudgeBody(BaseModel):
    """POST detlab/judge: a config as it is typed."""

    model_config = ConfigDict(extra="forbid")

    config: str
    """YAML text of an experiment config, or of a task config for a notebook run."""
    kind: Literal["experiment", "notebook_run"] = "experiment"
    bundle: str | None = None
    """Digest of the code, as `detlab/code` answered."""
    notebook: str = ""
    """Name of the notebook of a notebook run."""
    path: str | None = None
    """That notebook, relative to the Jupyter server's root: the file is judged, too."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Of a notebook run: judged by the notebook's cell tagged `parameters`."""
    forked_from: int | None = None
    """The experiment as whose copy the config began."""


class SubmitBody(CodeBody):
    """POST detlab/submit."""

    config: str
    """YAML text of an experiment config, or of a task config for a notebook run."""
    kind: Literal["experiment", "notebook_run"] = "experiment"
    activate: bool = True
    idempotency_key: str | None = None
    """The same key makes one experiment, however often it is sent."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Of a notebook run."""
    forked_from: int | None = None
    """The experiment as whose copy the config began."""


def local_path(root: str, path: str) -> Path:
    """Return the file or folder of an API path below the root.

    Raises:
        NotFound: It does not exist, or is outside of the root.
    """
    base = os.path.abspath(os.path.expanduser(root))  # noqa: PTH100, PTH111  lexical: Jupyter too follows links in its root
    found = os.path.normpath(os.path.join(base, path.lstrip("/")))  # noqa: PTH118  (as above)
    if not Path(found).is_relative_to(base) or not Path(found).exists():
        raise NotFound(f"there is no {path!r} in this server's folder", status=404)
    return Path(found)


def pack(root: str, body: CodeBody) -> Bundle | None:
    """Pack the code of a submission; reads files, so call it in a thread.

    Raises:
        BundleError: The chosen code cannot be packed.
        NotFound: The chosen file or folder does not exist.
    """
    if body.context == "none":
        return None
    if body.path is None:
        return build_bundle(local_path(root, body.folder or ""))
    file = local_path(root, body.path)
    if not file.is_file():
        raise BundleError(f"{body.path} is not a file", hint="choose a .py, .ipynb or .yaml file")
    if body.context == "folder":
        return build_bundle(file.parent)
    return build_bundle(file.parent, only=_needed(file))


def _needed(file: Path) -> list[str]:
    """Return a file and the local files that it imports, below its folder."""
    if file.suffix != ".py":
        return [file.name]
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BundleError(f"{file.name} cannot be read: {problem}") from problem
    return sorted({file.name, *capture_imports({file.name: text}, file.parent).paths})


async def send_code(client: AsyncClient, bundle: Bundle | None) -> dict[str, Any]:
    """Upload code, so that configs can be judged beside it: {"bundle", "files", "size"}."""
    if bundle is None:
        return {"bundle": None, "files": [], "size": 0}
    await client.session.run(operations.upload(bundle), in_thread=True)
    return {"bundle": bundle.digest, "files": [file.path for file in bundle.files], "size": bundle.size}


async def judge(client: AsyncClient, root: str, body: JudgeBody) -> dict[str, Any]:
    """Have the master judge a config; mistakes are an answer here, not an error.

    Returns:
        {"problems", "config", "parameters"}: `parameters` lists those of the notebook as {"name", "type", "default"};
        None if no cell has the tag `parameters`, or if no notebook was named.
    """
    found, known, notebook = await asyncio.to_thread(_of_notebook, root, body)
    shared: dict[str, Any] = {"config_yaml": body.config, "bundle": body.bundle, "dry_run": True}
    if body.kind == "notebook_run":
        request = CreateTask(kind=TaskKind.NOTEBOOK_RUN, source=TaskSource(notebook=body.notebook), **shared)
        call = Call("POST", "tasks", json=request, parse=model(CreateTaskReply))
    else:
        experiment = CreateExperiment(forked_from=body.forked_from, **shared)
        call = Call("POST", "experiments", json=experiment, parse=model(CreateExperimentReply))
    try:
        reply = await client.session.run(operations.one(call))
    except ConfigError as problem:
        return {"problems": [*(one.to_dict() for one in problem.problems), *found], "config": None, "parameters": known}
    if notebook is not None:
        warning = slots_warning(notebook, ((reply.config or {}).get("resources") or {}).get("slots"))
        found += [] if warning is None else [warning.to_dict()]
    return {
        "problems": [*(warning.model_dump() for warning in reply.warnings), *found],
        "config": reply.config,
        "parameters": known,
    }


def _of_notebook(
    root: str, body: JudgeBody
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None, dict[str, Any] | None]:
    """Return what is wrong with the notebook that is to be run and with its parameters, which it has, and itself."""
    if body.kind != "notebook_run" or body.path is None:
        return [], None, None
    try:
        notebook = read_notebook(local_path(root, body.path))
    except (BundleError, NotFound) as problem:
        return [Problem("", problem.message, problem.hint).to_dict()], None, None
    found = parameters_of(notebook)
    known = None if found is None else [{"name": p.name, "type": p.type, "default": p.default} for p in found.values()]
    try:
        checked_parameters(notebook, body.parameters, body.notebook)
    except ConfigError as wrong:
        return [_of_parameter(problem) for problem in wrong.problems], known, notebook
    return [], known, notebook


def _of_parameter(problem: Problem) -> dict[str, Any]:
    """Return a parameter's problem at the form's one field for all of them."""
    message = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return Problem("parameters", message, problem.hint).to_dict()


async def send(client: AsyncClient, body: SubmitBody, bundle: Bundle | None) -> dict[str, Any]:
    """Submit.

    Returns:
        {"experiment_id", "task_id", "created", "warnings"}.
    """
    source = {"path": body.path, "from": "jupyterlab"} if body.path else {"from": "jupyterlab"}
    # a text of several lines is never taken for a path
    made = await client.submit(
        body.config + "\n",
        bundle=bundle,
        activate=body.activate,
        idempotency_key=body.idempotency_key,
        source=source,
        forked_from=body.forked_from,
    )
    return _made(made.experiment.id if made.experiment else None, None, created=made.created, warnings=made.warnings)


async def send_notebook(client: AsyncClient, root: str, body: SubmitBody) -> dict[str, Any]:
    """Submit a notebook run, as `det notebook run` does; return the same as `send`.

    Raises:
        ConfigError: The config or the parameters have mistakes.
        BundleError: The file is not a notebook.
        NotFound: The file does not exist.
    """
    if body.path is None:
        raise BundleError("a notebook run needs a notebook", hint="choose an .ipynb file")
    file = local_path(root, body.path)
    run = await client.run_notebook(
        file,
        body.parameters,
        config=body.config + "\n",
        context=file.parent if body.context == "folder" else None,
        idempotency_key=body.idempotency_key,
    )
    return _made(None, run.task.id if run.task else None, created=run.created, warnings=run.warnings)


def _made(
    experiment_id: int | None, task_id: str | None, *, created: bool, warnings: list[ProblemView]
) -> dict[str, Any]:
    told = [warning.model_dump() for warning in warnings]
    return {"experiment_id": experiment_id, "task_id": task_id, "created": created, "warnings": told}
