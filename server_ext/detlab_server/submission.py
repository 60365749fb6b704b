"""From a file of the user's folder to an experiment or a notebook run: which code travels, and sending it."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from detlab.client import AsyncClient
from detlab.client.bundle import Bundle, build_bundle
from detlab.client.capture import capture_imports
from detlab.errors import BundleError, NotFound
from detlab.schemas.taskwire import TaskKind

Context = Literal["file", "folder", "none"]


class SubmitBody(BaseModel):
    """POST detlab/submit."""

    model_config = ConfigDict(extra="forbid")

    config: str
    """YAML text of an experiment config, or of a task config for a notebook run."""
    kind: Literal["experiment", "notebook_run"] = "experiment"
    path: str | None = None
    """The file that was chosen, relative to the Jupyter server's root."""
    context: Context = "file"
    """What travels: the file and what it imports, its whole folder, or nothing."""
    folder: str | None = None
    """The folder to send, if no file was chosen."""
    activate: bool = True
    dry_run: bool = False
    key: str | None = None
    """The same key makes one experiment, however often it is sent."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Of a notebook run."""


def local_path(root: str, path: str) -> Path:
    """Return the file or folder of an API path below the root.

    Raises:
        NotFound: It is not there, or outside.
    """
    base = os.path.abspath(os.path.expanduser(root))  # noqa: PTH100, PTH111  lexical: Jupyter too follows links in its root
    found = os.path.normpath(os.path.join(base, path.lstrip("/")))  # noqa: PTH118
    if not Path(found).is_relative_to(base) or not Path(found).exists():
        raise NotFound(f"there is no {path!r} in this server's folder", status=404)
    return Path(found)


def pack(root: str, body: SubmitBody) -> Bundle | None:
    """Pack the code of a submission; reads files, so call it in a thread.

    Raises:
        BundleError: What was chosen cannot travel.
        NotFound: It is not there.
    """
    if body.context == "none":
        return None
    if body.path is None:
        return build_bundle(local_path(root, body.folder or ""))
    file = local_path(root, body.path)
    if not file.is_file():
        raise BundleError(f"{body.path} is no file", hint="choose a .py, .ipynb or .yaml file")
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


async def send(client: AsyncClient, body: SubmitBody, bundle: Bundle | None) -> dict[str, Any]:
    """Submit, or judge in a dry run.

    Returns:
        {"experiment_id", "task_id", "created", "warnings", "config", "files"}; the ids are None after a dry run.
    """
    source = {"path": body.path, "from": "jupyterlab"} if body.path else {"from": "jupyterlab"}
    files = [file.path for file in bundle.files] if bundle else []
    if body.kind == "notebook_run":
        name = PurePosixPath(body.path or "").name
        task = await client.submit_task(
            TaskKind.NOTEBOOK_RUN,
            body.config,
            bundle=bundle,
            dry_run=body.dry_run,
            idempotency_key=body.key,
            source={**source, "notebook": name, "parameters": body.parameters},
        )
        return {
            "experiment_id": None,
            "task_id": task.task.id if task.task else None,
            "created": task.created,
            "warnings": [w.model_dump() for w in task.warnings],
            "config": task.config,
            "files": files,
        }
    made = await client.submit(
        body.config + "\n",  # a text of several lines is never taken for a path
        bundle=bundle,
        activate=body.activate,
        dry_run=body.dry_run,
        idempotency_key=body.key,
        source=source,
    )
    return {
        "experiment_id": made.experiment.id if made.experiment else None,
        "task_id": None,
        "created": made.created,
        "warnings": [w.model_dump() for w in made.warnings],
        "config": made.config,
        "files": files,
    }
