"""A fresh `python -m simulation`: forked from an interpreter that has loaded other people's packages, nothing of ours.

To load them takes most of a second, of each of dozens of processes. Which code of ours a fork loads, mutants of it
among them, is said by its PYTHONPATH, as in a new interpreter.
"""

from __future__ import annotations

import gc
import os
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from pathlib import Path
from unittest import mock

PACKAGES = (
    *("alembic.autogenerate", "alembic.command", "greenlet", "httpx", "jupyterhub.orm", "jupyterhub.services.auth"),
    *("numpy.random", "numpy.typing", "pydantic.type_adapter", "sqlalchemy.dialects.postgresql"),
    *("sqlalchemy.dialects.sqlite", "sqlalchemy.orm", "sqlite3", "tornado.httpserver", "tornado.web"),
    *("traitlets.config", "yaml"),
)
OURS = frozenset({"detlab", "detlab_hub", "detlab_agent"})
_context = get_context("forkserver")


class Simulation:
    """One that runs; to be waited for as for a `subprocess.Popen`.

    Args:
        arguments: What follows `python -m simulation`.
        seconds: Of a processor that it may take.
        env: Its environment; its hashes are those of PYTHONHASHSEED=0.
        cwd: Where it runs.
    """

    def __init__(self, arguments: Sequence[str], seconds: int, env: Mapping[str, str], cwd: Path | None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="detlab-simulation-"))
        said = [self._folder / "out", self._folder / "err"]
        with mock.patch.dict(os.environ, {"PYTHONHASHSEED": "0"}):  # of the interpreter that is forked
            _context.set_forkserver_preload(list(PACKAGES))
            forkserver.ensure_running()
        whole = {**env, "PYTHONHASHSEED": "0"}
        self._process = _context.Process(target=_simulate, args=(list(arguments), seconds, whole, cwd, said))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, minus a signal that ended it, or None."""
        return self._process.exitcode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for its end, and return what it wrote to its outputs.

        Raises:
            subprocess.TimeoutExpired: It goes on.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("simulation", timeout)
        return (self._folder / "out").read_text(), (self._folder / "err").read_text()

    def close(self) -> None:
        """Let go of it, when it has ended."""
        self._process.join()
        self._process.close()
        shutil.rmtree(self._folder)


def _simulate(
    arguments: Sequence[str], seconds: int, env: Mapping[str, str], cwd: Path | None, outputs: Sequence[Path]
) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    for number, path in enumerate(outputs, start=1):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd or ".")
    assert not OURS & set(sys.modules), "what is preloaded has loaded code of ours"
    sys.path[:0] = env["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["simulation", *arguments]
    # What is loaded stays: the collector need not look at it, until the first seed is through.
    gc.freeze()
    gc.disable()
    runpy.run_module("simulation", run_name="__main__", alter_sys=True)
