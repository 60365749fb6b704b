"""The live view as a widget: one ESM file, state in the kernel, drawn in the browser."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import anywidget
import traitlets

from detlab_magics.view.frames import FrameWriter
from detlab_magics.view.state import ViewState

ESM = pathlib.Path(__file__).parent.parent / "static" / "widget.js"


class LiveView(anywidget.AnyWidget):
    """Shows one experiment. `push` sends what changed; pages that open later request the snapshot."""

    # Without it, as in a checkout on a machine without node, no page gets this widget: `available` says so.
    _esm = ESM if ESM.exists() else ""
    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self, state: ViewState, *, url: str | None = None) -> None:
        self._frames = FrameWriter(url)
        # What is sent leaves in the order in which it was made: a page that got an older snapshot after the last
        # increment would stay at that.
        self._in_order = threading.Lock()
        self._frames.increment(state)
        self._still: dict[str, Any] | None = None
        super().__init__(snapshot=self._frames.snapshot())
        self.on_msg(self._asked)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the widget's current state, so that a page opened late does not start from the beginning."""
        state: dict[str, Any] = super().get_state(key=key, drop_defaults=drop_defaults)
        if "snapshot" in state and hasattr(self, "_frames"):
            state["snapshot"] = self._frames.snapshot()
        return state

    def send_state(self, key: Any = None) -> None:
        """Send the current state to the page that requested it."""
        with self._in_order:
            super().send_state(key)

    def push(self, state: ViewState) -> None:
        """Show `state`, sending only what changed since the last push."""
        with self._in_order:
            self.send(self._frames.increment(state))

    def freeze(self, state: ViewState, still: dict[str, Any]) -> None:
        """Show the last state, and give the still view to pages that the kernel cannot reach by its output's id.

        A page that was opened again does not know that id. JupyterLab with detlab's extension puts `still`, a
        mimebundle, in the place of the widget.
        """
        self.push(state)
        with self._in_order:
            self._still = still
            self.send({"still": still})

    def _asked(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Send the whole state to a page that asks for it: one that was just drawn or that missed an increment."""
        if content == {"need": "snapshot"}:
            with self._in_order:
                self.send({**self._frames.snapshot(), "whole": True})
                if self._still is not None:
                    self.send({"still": self._still})


def available() -> bool:
    """Whether the widget was built into this installation."""
    return ESM.exists()
