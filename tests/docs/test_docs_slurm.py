"""The page "On Slurm": its commands, in order, on a real Slurm, from nothing to the digits search."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs_snippets import DOCS, ROOT, blocks

from detlab.schemas import expconf
from testbed import processes
from testbed.cluster import free_port
from testbed.slurm import SlurmCluster, accounts_for, missing
from testbed.waiting import until

PAGE = DOCS / "how-to" / "slurm.md"
SMALLER = "--config searcher.max_trials=2 --config searcher.max_time=2 --config hyperparameters.max_epochs=2"


@dataclass
class Newcomer:
    """Somebody with an account on the login node, who types what the page says."""

    uid: int
    place: Path
    environ: dict[str, str]

    def command(self, line: str) -> list[str]:
        """What runs a line of the page, as it stands."""
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*become, "sh", "-c", line]

    def types(self, line: str, seconds: float = 120) -> str:
        """Run a line that ends."""
        done = subprocess.run(
            self.command(line), cwd=self.place, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout


@contextmanager
def newcomer() -> Iterator[tuple[Newcomer, SlurmCluster]]:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="detlab-slurm-page-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        slurm = stack.enter_context(SlurmCluster(folder / "slurm"))
        (uid,) = stack.enter_context(accounts_for("newcomer")).values()
        place = folder / "checkout"
        shutil.copytree(ROOT / "examples" / "digits_trial", place / "examples" / "digits_trial")
        for made in (folder / "shared", place / ".detlab", folder / "home"):
            made.mkdir()
        for mine in (folder / "shared", folder / "home", place, *place.rglob("*")):
            os.chown(mine, uid, uid)
        environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder / "home")}
        yield Newcomer(uid, place, {**environ, "SLURM_CONF": str(slurm.conf), "DETLAB_WARM_POOL": "0"}), slurm


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.timeout(400)
def test_the_page_leads_from_nothing_to_the_digits_search() -> None:
    """By somebody who is not root, over TLS."""
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    (setting,) = blocks(PAGE, "python")
    port = free_port()
    with newcomer() as (person, slurm), ExitStack() as stack:
        shared = f"{person.place.parent / 'shared'}/"
        here = {"/shared/": shared, "https://login-1:8642": f"https://127.0.0.1:{port}"}

        def at_home(text: str) -> str:
            return re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], text)

        (person.place / ".detlab" / "detlab_config.py").write_text(at_home(setting.text))
        lines = [at_home(line) for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
        install, folders, up, enrol, run, pool, create, shown, again = lines
        assert again == pool
        assert install == "make setup && . .venv/bin/activate"
        person.types(folders)
        stack.callback(person.types, "det down --timeout 20")
        person.types(f"{up} --port {port}")
        person.types(enrol)
        log = person.place.parent / "agent.log"
        with log.open("wb") as out:
            command = person.command(f"exec {run} --slurm-interval 0.5")
            agent = subprocess.Popen(command, cwd=person.place, env=person.environ, stdout=out, stderr=out)
        stack.callback(processes.end, agent, 20)
        until(lambda: "connected to cluster" in log.read_text(), log.read_text, 40)
        told = person.types(pool)
        assert "Slurm, in its own queue" in told
        assert "main (default)" in told
        person.types(f"{create} {SMALLER}", 240)
        assert "COMPLETED" in person.types(shown).upper()
        until(lambda: not slurm.jobs(), "no job is left", 40)
        kept = list(Path(shared, "detlab/checkpoints").iterdir())
        assert kept, "the checkpoints are where the page says"
        assert {path.stat().st_uid for path in kept} == {person.uid}


def test_every_key_of_the_page_is_one() -> None:
    for block in blocks(PAGE, "yaml"):
        entrypoint = "" if "entrypoint" in block.text else "entrypoint: python3 a.py\n"
        raw, problems = expconf.load_yaml(
            f"name: a\n{entrypoint}searcher: {{name: single, metric: loss}}\n{block.text}"
        )
        assert not [problem for problem in [*problems, *expconf.check(raw)] if problem.level == "error"], block.text
