"""A whole notebook as a task: `python -m detlab.run.notebook` runs the one that `.det_notebook/run.json` names.

    .det_notebook/run.json      {"notebook": "NB.ipynb", "parameters": {…}}

papermill runs it, in the folder of the bundle. The notebook so far is uploaded as output `executed.ipynb` after each
cell (at most every few seconds) and at the end, however the run ends: a killed run keeps its part. The output of the
cells is the task's log. A cell that raises is named with its line in the last lines of the log. A notebook that the
master refuses, for its size for example, is uploaded without its largest outputs, and kept whole in the user's home.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from detlab.errors import DetlabError, StorageError
from detlab.files import write_atomic
from detlab.preloading import preload_magics
from detlab.run.outputs import LatestUpload, OutputRefused, TaskOutputs
from detlab.short_folder import short_folder

FOLDER = ".det_notebook"
EXECUTED = "executed.ipynb"
UPLOAD_SECONDS = 2.0
"""Least seconds between two uploads of a partial notebook; more for a large one."""
SLOW_BYTES = 2 * 1024 * 1024
"""A notebook of this size is uploaded every `UPLOAD_SECONDS`, a larger one as much less often."""
LAST_SECONDS = 8.0
"""How long the last upload of a run that is being ended may take: a SIGKILL follows."""
LARGE_OUTPUT = 256 * 1024
"""Characters of an output that is left out of a notebook which is too large."""
_SCHEME = "detlab-task://"
_LINE = re.compile(r"(?:^|\s)(?:Cell )?In ?\[\d+\](?:, line |:)(\d+)")
_ADDED = frozenset({"papermill-error-cell-tag", "injected-parameters"})
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookRunEnded(BaseException):
    """The task was told to end (not an Exception: papermill must not take it for a failed cell)."""


def strict_json(text: str) -> str:
    """Return JSON whose non-finite numbers are the texts "NaN", "Infinity" and "-Infinity": Jupyter reads no others."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return json.dumps(json.loads(text, parse_constant=str), indent=1, ensure_ascii=False) + "\n"


class ToOutputs:
    """papermill's way to write a notebook, which hands it over.

    Args:
        upload: Takes the newest state.
    """

    def __init__(self, upload: LatestUpload) -> None:
        self._upload = upload
        self.newest = b""

    def read(self, path: str) -> str:
        """Refuse: papermill asks for the output notebook, which cannot be read back.

        Raises:
            FileNotFoundError: Always.
        """
        raise FileNotFoundError(path)

    def listdir(self, path: str) -> list[str]:
        """Return an empty list: there is nothing to list for papermill."""
        return []

    def write(self, buf: str, path: str) -> None:
        """Take the current state of the notebook, whose parameters and outputs may hold numbers that JSON has not."""
        self.newest = strict_json(buf).encode()
        self._upload.offer(self.newest)

    def pretty_path(self, path: str) -> str:
        """Return the name that papermill uses in its messages."""
        return path.removeprefix(_SCHEME)


def where_it_failed(notebook: Mapping[str, Any], name: str) -> list[str] | None:
    """Return what the first cell of a notebook raised, as the lines of a traceback that names cell and line.

    Cells are counted as in the notebook that was sent: those that papermill adds do not count.
    """
    number = 0
    for cell in notebook.get("cells", []):
        tags = (cell.get("metadata") or {}).get("tags") or []
        if _ADDED & set(tags):
            continue
        number += 1
        for output in cell.get("outputs") or []:
            if output.get("output_type") == "error":
                counted = f" (In [{cell['execution_count']}])" if cell.get("execution_count") else ""
                line = line_of(output.get("traceback") or [], cell.get("execution_count"))
                source = "".join(cell.get("source") or "").split("\n")
                shown = [f"    {source[line - 1].strip()}"] if line is not None and line <= len(source) else []
                return [
                    "Traceback (most recent call last):",
                    f'  File "{name}, cell {number}{counted}", line {line or "?"}, in <module>',
                    *shown,
                    f"{output.get('ename')}: {output.get('evalue')}",
                ]
    return None


def line_of(traceback: list[str], count: int | None = None) -> int | None:
    """Return the line of the cell in a traceback: that of its own first frame.

    Args:
        traceback: As IPython prints it, or as `%%det_run` does, which ran the cell elsewhere.
        count: The number by which the kernel knows the cell; None: unknown.
    """
    text = _ANSI.sub("", "\n".join(traceback))
    found = _LINE.search(text) or re.search(rf'File "cell {count}(?: \([^)"]*\))?", line (\d+)', text)
    return int(found.group(1)) if found else None


def without_large_outputs(text: bytes) -> tuple[bytes, int]:
    """Return a notebook with a line in place of each large output, and how many those are."""
    notebook = json.loads(text)
    count = 0
    for cell in notebook.get("cells", []):
        for index, output in enumerate(cell.get("outputs") or []):
            size = len(json.dumps(output))
            if size > LARGE_OUTPUT:
                count += 1
                told = f"[an output of {size / 1e6:.1f} MB was left out: the notebook was too large to be stored]\n"
                cell["outputs"][index] = {"output_type": "stream", "name": "stderr", "text": told}
    return json.dumps(notebook).encode(), count


class NotebookExecution:
    """One run.

    Args:
        folder: The working folder.
        outputs: Where the executed notebook goes.
    """

    def __init__(self, folder: Path, outputs: TaskOutputs) -> None:
        request = json.loads((folder / FOLDER / "run.json").read_text(encoding="utf-8"))
        self._notebook = folder / str(request["notebook"])
        self._parameters: dict[str, Any] = dict(request["parameters"])
        size = self._notebook.stat().st_size
        interval = max(UPLOAD_SECONDS, UPLOAD_SECONDS * size / SLOW_BYTES)
        self._outputs = outputs
        self._failed: list[Exception] = []
        self._upload = LatestUpload(outputs.put, EXECUTED, interval=interval, failed=self._failed.append)
        self._writer = ToOutputs(self._upload)

    def run(self) -> int:
        """Run it to its end; return the exit status."""
        import papermill
        from nbclient.exceptions import DeadKernelError
        from papermill.exceptions import PapermillException
        from papermill.iorw import papermill_io
        from traitlets.config import Config

        from detlab.run.kernels import WatchedKernel, memory_kills

        papermill_io.register(_SCHEME, self._writer)
        status, kills = 0, memory_kills()
        try:
            with short_folder() as folder, _ending_by_signal():
                # every user of the machine may connect to a TCP port, and read code and output there
                os.environ["JUPYTER_RUNTIME_DIR"] = str(folder)
                preload_magics(os.environ)
                papermill.execute_notebook(
                    str(self._notebook),
                    _SCHEME + EXECUTED,
                    parameters=self._parameters,
                    kernel_name=self._kernel(),
                    language=self._language(),
                    progress_bar=False,
                    log_output=True,
                    cwd=str(self._notebook.parent),
                    autosave_cell_every=5,
                    config=Config({"KernelManager": {"transport": "ipc"}}),
                    kernel_manager_class=WatchedKernel,
                )
        except DeadKernelError:
            status = self._say_dead(WatchedKernel.exit_code, memory_killed=memory_kills() > kills)
        except PapermillException as error:
            status = self._say_failure(error)
        except NotebookRunEnded:
            status = 128 + signal.SIGTERM
            print("the run was stopped; the notebook so far is stored as executed.ipynb", flush=True)
        return self._hand_over(status)

    def _say_failure(self, error: Exception) -> int:
        newest = json.loads(self._writer.newest or b"{}")
        lines = where_it_failed(newest, self._notebook.name) or [f"{type(error).__name__}: {error}"]
        sys.stderr.write("\n".join(lines) + "\n")
        return 1

    def _say_dead(self, exit_code: int | None, *, memory_killed: bool) -> int:
        """Name the cell whose kernel is gone, in the log and in the notebook, which keeps what was printed before."""
        from detlab.run.kernels import why_died, with_death

        why = f"the cell killed its kernel: {why_died(exit_code, memory_killed=memory_killed)}"
        notebook = json.loads(self._writer.newest or b"{}")
        if with_death(notebook, why):
            self._writer.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", _SCHEME + EXECUTED)
        lines = where_it_failed(notebook, self._notebook.name) or [f"KernelDied: {why}"]
        sys.stderr.write("\n".join(lines) + "\n")
        return 1

    def _hand_over(self, status: int) -> int:
        done = self._upload.close(LAST_SECONDS if status > 128 else None)
        if not done:
            why = self._failed[-1] if self._failed else "there was no time left"
            hint = why.hint if isinstance(why, DetlabError) and why.hint else ""
            sys.stderr.write(f"{EXECUTED} could not be stored: {why} {hint}\n")
            if isinstance(why, OutputRefused) and status <= 128:
                self._keep(self._writer.newest)
        return status or (0 if done else 1)

    def _keep(self, notebook: bytes) -> None:
        """Save what can be saved of a notebook that was refused: a smaller one at the master, the whole one here."""
        path = Path.home() / f"executed-{self._outputs.task_id}.ipynb"
        if not path.is_relative_to(self._outputs.task_dir):  # that goes with the task
            try:
                write_atomic(path, notebook)
                sys.stderr.write(f"the whole notebook is in {path} on {platform.node()}\n")
            except OSError as error:
                sys.stderr.write(f"it could not be written to {path} either: {error.strerror or error}\n")
        smaller, count = without_large_outputs(notebook)
        if not count:
            return
        try:
            self._outputs.put(EXECUTED, smaller)
            sys.stderr.write(f"{EXECUTED} was stored without its {count} largest outputs\n")
        except StorageError as error:
            sys.stderr.write(f"nor without its largest outputs: {error}\n")

    def _kernel(self) -> str | None:
        """Return another kernel's name if the notebook's own is not here."""
        from jupyter_client.kernelspec import KernelSpecManager

        notebook = json.loads(self._notebook.read_text(encoding="utf-8"))
        spec = (notebook.get("metadata") or {}).get("kernelspec") or {}
        name, language = spec.get("name"), str(spec.get("language") or "python").lower()
        known = KernelSpecManager().find_kernel_specs()
        if name in known or language != "python" or "python3" not in known:
            return None if name else "python3"
        print(f"the kernel {name!r} is not installed here; python3 is used instead", flush=True)
        return "python3"

    def _language(self) -> str | None:
        """Return Python for a notebook that does not say its language: other ones are refused before they are sent."""
        metadata = json.loads(self._notebook.read_text(encoding="utf-8")).get("metadata") or {}
        spec, info = (metadata.get(key) or {} for key in ("kernelspec", "language_info"))
        return None if info.get("name") or spec.get("language") else "python"


@contextlib.contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Turn SIGTERM into `NotebookRunEnded`, once."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise NotebookRunEnded

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> int:
    """Run the shipped notebook; return the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    logging.getLogger("papermill").setLevel(logging.INFO)
    return NotebookExecution(Path.cwd(), TaskOutputs()).run()


if __name__ == "__main__":
    code = main()
    last = threading.Timer(5.0, os._exit, (code,))  # a thread of papermill's must not hold the slots
    last.daemon = True
    last.start()
    sys.exit(code)
