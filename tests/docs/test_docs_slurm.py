"""The page "On Slurm": its commands, in order, on a real Slurm, from nothing to the digits search."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from docs_snippets import DOCS, ROOT, blocks

from detlab.schemas import expconf
from testbed import processes
from testbed.cluster import running_cluster
from testbed.slurm import SlurmCluster, accounts_for, missing
from testbed.waiting import until

PAGE = DOCS / "how-to" / "slurm.md"
SMALLER = "--config searcher.max_trials=2 --config searcher.max_time=2 --config hyperparameters.max_epochs=2"


@pytest.mark.hub
@pytest.mark.timeout(400)
def test_the_page_leads_from_nothing_to_the_digits_search() -> None:
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    (setting,) = blocks(PAGE, "python")
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    up, enrol, run, create, shown, pool = lines
    assert (up, enrol) == ("det up", "det agent enrol > token")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="detlab-slurm-page-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        slurm = stack.enter_context(SlurmCluster(folder / "slurm"))
        accounts = stack.enter_context(accounts_for("root"))
        (folder / "place").mkdir()
        config = f"{setting.text}\nc.EmbeddedCluster.user_map = {accounts}\n"
        cluster = stack.enter_context(running_cluster(folder / "place", slots=1, config=config))
        token = folder / "place" / "token"
        token.touch(mode=0o600)
        token.write_text(cluster.det("agent", "enrol", check=True).stdout)

        (address,) = re.findall(r"--master (\S+)", run)
        command = run.replace(address, cluster.url).replace("/shared/detlab", str(folder / "jobs"))
        words = [sys.executable, "-P", "-m", "detlab_agent", *shlex.split(command)[3:], "--slurm-interval", "0.5"]
        environ = {**cluster.environment, "SLURM_CONF": str(slurm.conf)}
        log = folder / "agent.log"
        with log.open("wb") as out:
            agent = subprocess.Popen(words, cwd=token.parent, env=environ, stdout=out, stderr=out)
        stack.callback(processes.end, agent, 20)
        until(lambda: "connected to cluster" in log.read_text(), log.read_text, 40)

        work = folder / "place" / "digits"
        shutil.copytree(ROOT / "examples" / "digits_trial", work)
        line = f"{create} {SMALLER}".replace("search.yaml .", f"{work / 'search.yaml'} {work}")
        done = cluster.det(*shlex.split(line)[1:], timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
        assert "COMPLETED" in cluster.det(*shlex.split(shown)[1:], check=True).stdout.upper()
        until(lambda: not slurm.jobs(), "no job is left", 40)
        told = cluster.det(*shlex.split(pool)[1:], check=True).stdout
        assert "Slurm, in its own queue" in told
        assert "main (default)" in told


def test_every_key_of_the_page_is_one() -> None:
    for block in blocks(PAGE, "yaml"):
        entrypoint = "" if "entrypoint" in block.text else "entrypoint: python3 a.py\n"
        raw, problems = expconf.load_yaml(
            f"name: a\n{entrypoint}searcher: {{name: single, metric: loss}}\n{block.text}"
        )
        assert not [problem for problem in [*problems, *expconf.check(raw)] if problem.level == "error"], block.text
