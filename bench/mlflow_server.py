"""A tracking server of MLflow in its own environment, as its documentation starts it, for the benches beside it."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import memory_of, peer_python, program, until

from detlab.testing.ports import free_port

NAME = "mlflow"


@dataclass
class Server:
    """A running server.

    Attributes:
        pid: Of its first process.
        address: Its URL.
        seconds: From its start until it answered.
    """

    pid: int
    address: str
    seconds: float

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request of its REST API and return the answer."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def make_run(self, name: str) -> str:
        """Make an experiment with one run; return the run's id."""
        experiment = self.ask("experiments/create", {"name": name})["experiment_id"]
        return str(self.ask("runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"])

    @property
    def memory(self) -> float:
        """Resident memory of all its processes, MB."""
        return memory_of([self.pid])


@contextmanager
def mlflow_server(folder: Path, database: str = "") -> Iterator[Server]:
    """Start a server with a database, SQLite in the folder by default; end it."""
    python = peer_python(NAME)
    assert python is not None
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    store = database.replace("postgresql://", "postgresql+psycopg2://") or f"sqlite:///{folder / 'mlflow.db'}"
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    with program(command, folder / "mlflow.log", cwd=folder, env=environment) as process:
        yield Server(process.pid, address, until(answers, "MLflow's server answers", 180))
