"""A further node as its administrator adds it: the command that the cluster printed, run as it stands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import processes
from testbed.waiting import until


@dataclass(frozen=True)
class Agent:
    """An agent that runs; its folder is its home as well."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "agent.log").read_text(encoding="utf-8")

    @property
    def key(self) -> str:
        """What it shows the master, now that it is enrolled."""
        return str(
            json.loads((self.folder / ".local/state/detlab/agent/key.json").read_text(encoding="utf-8"))["token"]
        )

    def until_it_says(self, *texts: str, seconds: float = 60.0) -> None:
        """Wait until its log has all of these; fail if it has ended."""

        def said() -> bool:
            assert self.process.poll() is None, self.log
            return all(text in self.log for text in texts)

        until(said, lambda: self.log, seconds)


@contextmanager
def printed_agent(command: str, token: str, folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[Agent]:
    """Run a printed command in a folder with the file that it names, until the end of the context.

    Args:
        command: As it was printed; it names a file by `--enrolment-token-file`.
        token: What goes into that file.
        folder: Empty; where it runs.
        name: Of the agent, as this machine's own name is that of the cluster's first.
        environment: Without the variables of anybody's cluster.
    """
    words = shlex.split(command)
    file = folder / words[words.index("--enrolment-token-file") + 1]
    file.touch(mode=0o600)
    file.write_text(f"{token}\n", encoding="ascii")
    words += ["--name", name, "--slots", "1"]
    if os.geteuid() != 0:
        words += ["--serves-user", name]
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', os.defpath)}"
    environ = {**environment, "HOME": str(folder), "PATH": path}
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        yield Agent(folder, process)
    finally:
        processes.end(process, 20)
