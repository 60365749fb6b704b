"""What one kernel session remembers: captured cells, submitted experiments, the connection."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from detlab_magics.cells.modules import CellModules

if TYPE_CHECKING:
    from detlab.client import Client
    from detlab_magics.view.show import Showing


@dataclass
class KernelSession:
    """The state behind the magics; nothing here touches the network until a magic needs it."""

    modules: CellModules = field(default_factory=CellModules)
    submitted: dict[tuple[str, str], int] = field(default_factory=dict)
    """(cluster, what was submitted: a digest of configuration and code) -> experiment id."""
    _latest: int | None = None
    _submitted: int | None = None
    shown: dict[int, Showing] = field(default_factory=dict)
    """The live views of this kernel, by experiment: one each."""
    interrupted_at: float = -1e9
    last_error: BaseException | None = None
    connected: Client | None = None

    def client(self) -> Client:
        """Return the connected client, which finds its cluster as every command does."""
        from detlab.client import Client

        if self.connected is None:
            self.connected = Client()
        return self.connected

    def forget_client(self) -> None:
        """Look for the cluster again at the next call: it may have moved, or the token was changed."""
        self.connected = None

    @property
    def latest(self) -> int | None:
        """The experiment submitted last: by a magic, or by code of the notebook, such as `det.experiment.create`."""
        from detlab.client.operations.experiments import submitted_last

        if (submitted := submitted_last()) != self._submitted:
            self._latest = self._submitted = submitted
        return self._latest

    @latest.setter
    def latest(self, experiment_id: int | None) -> None:
        from detlab.client.operations.experiments import submitted_last

        self._latest, self._submitted = experiment_id, submitted_last()

    def experiment_id(self, given: int | None) -> int | None:
        """Return the id a magic means: the given one, else the one submitted last."""
        return given if given is not None else self.latest


def cell_number() -> int:
    """Return the number in In[…] of the running cell.

    By the history, whose newest entry is this cell: `execution_count` is raised before a cell runs in IPython 9
    and after it in IPython 8.
    """
    history = getattr(get_ipython(), "history_manager", None)
    return max(len(history.input_hist_parsed) - 1, 0) if history is not None else 0


def cell_id() -> str | None:
    """Return the notebook's id of the running cell, if the front end says it (JupyterLab does)."""
    ip: Any = get_ipython()
    parent = ip.get_parent() if hasattr(ip, "get_parent") else {}
    found = (parent or {}).get("metadata", {}).get("cellId")
    return str(found) if found else None


def notebook_path() -> str | None:
    """Return the notebook's path, if the server says it."""
    return os.environ.get("JPY_SESSION_NAME") or None
