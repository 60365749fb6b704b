"""A real kernel, and what a front end sees of it, message by message."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager


@dataclass
class Cell:
    """What one executed cell gave."""

    status: str = "ok"
    ename: str = ""
    traceback: str = ""
    stdout: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    payload: list[dict[str, Any]] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    displays: list[str] = field(default_factory=list)
    """Display ids in order of appearance."""


class Notebook:
    """A kernel and what a front end would see of it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(cwd=str(folder), env=env)
        self.client: BlockingKernelClient = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.shown: dict[str, dict[str, Any]] = {}
        """Display id -> its latest data."""
        self.updates: list[tuple[float, str, int]] = []
        """(time, kind, bytes) of every message that changed what is shown."""
        self._unnamed = 0

    def run(
        self,
        code: str,
        *,
        headless: bool = True,
        timeout: float = 60,
        interrupt_when: Callable[[], bool] | None = None,
        answers: Sequence[str] = (),
        look: Callable[[Cell], None] | None = None,
    ) -> Cell:
        """Execute a cell and read all it says.

        Args:
            code: The cell.
            headless: Whether the front end takes no input, as papermill; JupyterLab does.
            timeout: Seconds.
            interrupt_when: Press the stop button when this is first so.
            answers: What to type when the cell asks (`Cell.questions`).
            look: Given the cell as it is shown so far, after every message while it runs.
        """
        cell = Cell()
        waiting = list(answers)
        asked = self.client.execute(code, allow_stdin=not headless)
        state = {"idle": False, "pressed": interrupt_when is None}

        def handle(message: dict[str, Any]) -> None:
            mine = message["parent_header"].get("msg_id") == asked
            if message["msg_type"] == "input_request":
                cell.questions.append(message["content"]["prompt"])
                self.client.input(waiting.pop(0) if waiting else "")
                return
            self._take(message, cell if mine else Cell())
            state["idle"] |= (
                mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            )
            if look is not None and not state["idle"]:
                look(cell)
            if not state["pressed"] and interrupt_when is not None and interrupt_when():
                state["pressed"] = True
                self._manager.interrupt_kernel()

        self._read(handle, lambda: state["idle"], timeout)
        reply = self.client.get_shell_msg(timeout=10)
        while reply["parent_header"].get("msg_id") != asked:
            reply = self.client.get_shell_msg(timeout=10)
        cell.payload = reply["content"].get("payload", [])
        return cell

    def until(self, done: Callable[[], bool], timeout: float = 30) -> None:
        """Read what threads of the kernel show until `done`."""
        self._read(lambda message: self._take(message, Cell()), done, timeout)

    def count(self, kind: str) -> int:
        """Return how many messages of a kind came since `updates` was cleared."""
        return sum(found == kind for _, found, _ in self.updates)

    def text(self) -> str:
        """Return all text that is shown."""
        return "\n".join(str(data.get("text/plain", "")) for data in self.shown.values())

    def complete(self, code: str) -> list[str]:
        """Return what Tab offers at the end of `code`."""
        asked = self.client.complete(code, len(code))
        reply = self.client.get_shell_msg(timeout=20)
        while reply["parent_header"].get("msg_id") != asked:
            reply = self.client.get_shell_msg(timeout=20)
        return list(reply["content"]["matches"])

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def _read(self, handle: Callable[[dict[str, Any]], None], done: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done after {timeout} s; shown is:\n{self.text()}")
            if self.client.stdin_channel.msg_ready():
                handle(self.client.get_stdin_msg(timeout=5))
            try:
                handle(self.client.get_iopub_msg(timeout=0.2))
            except queue.Empty:
                continue

    def _take(self, message: dict[str, Any], cell: Cell) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            cell.stdout += content["text"]
        elif kind == "error":
            cell.status, cell.ename = "error", content["ename"]
            cell.traceback = "\n".join(content["traceback"])
        elif kind == "execute_result":
            cell.result = content["data"]
        elif kind in {"display_data", "update_display_data"}:
            self._unnamed += 1
            name = content.get("transient", {}).get("display_id") or f"unnamed {self._unnamed}"
            self.shown[name] = content["data"]
            if kind == "display_data":
                cell.displays.append(name)
        if kind in {"display_data", "update_display_data", "comm_open", "comm_msg"}:
            self.updates.append((time.monotonic(), kind, len(str(content))))
