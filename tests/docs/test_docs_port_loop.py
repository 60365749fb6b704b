"""The page "Port your PyTorch loop", run as printed: its files, its session, its commands, its notebook cells."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
import yaml
from docs_snippets import DOCS, Block, blocks

from detlab.client import Client
from detlab.schemas.expconf import check
from detlab.schemas.wire import ExperimentState
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(400)]

PAGE = DOCS / "how-to" / "port-your-pytorch-loop.md"
_FILE = re.compile(r"\A# (?P<name>\w+\.(?:py|yaml))\n")
_PRINTED = re.compile(r"^```\n\n((?: {4}.+\n)+)", re.MULTILINE)

RUNNER = """
import json, pathlib
for where, text in json.loads(pathlib.Path("session.json").read_text()):
    page, _, line = where.rpartition(":")
    print("@@", where, flush=True)
    exec(compile("\\n" * int(line) + text, page, "exec"), globals())
"""


def files() -> dict[str, str]:
    """The files that the reader saves: blocks that begin with a name."""
    found = {}
    for block in blocks(PAGE, "python", "yaml"):
        match = _FILE.match(block.text)
        if match:
            found[match["name"]] = block.text
    return found


def session() -> list[Block]:
    """The blocks that the reader runs one after another."""
    return [b for b in blocks(PAGE, "python") if not _FILE.match(b.text) and not b.text.startswith("%%")]


def commands(start: str) -> list[list[str]]:
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(start)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader works."""
    found = tmp_path_factory.mktemp("port")
    for name, text in files().items():
        (found / name).write_text(text, encoding="utf-8")
    return found


def run(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a Python of the page in its folder, off-cluster."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_every_block_of_python_is_a_file_a_step_or_a_cell() -> None:
    assert set(files()) == {"plain.py", "port.py", "port.yaml"}
    assert len(session()) + 2 + 1 == len(blocks(PAGE, "python"))


def test_the_loop_that_the_page_starts_from(folder: Path) -> None:
    ((_, script),) = commands("python plain")
    done = run(folder, [script])
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) >= 0.93
    assert (folder / "best.pt").exists()


def test_the_port_trains_as_well(folder: Path) -> None:
    ((_, script),) = commands("python port")
    done = run(folder, [script])
    assert done.returncode == 0, done.stderr
    (*_, accuracy) = re.findall(r"'accuracy': ([0-9.]+)", done.stdout + done.stderr)
    assert float(accuracy) >= 0.93
    assert list((folder / "checkpoints").iterdir())


@pytest.mark.soak
def test_two_processes(folder: Path) -> None:
    ((_, *arguments),) = commands("python3 -m detlab.launch.torch_distributed")
    done = run(folder, arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "[rank=1]" in said
    (*_, accuracy) = re.findall(r"'accuracy': ([0-9.]+)", said)
    assert float(accuracy) >= 0.93


@pytest.fixture(scope="module")
def outputs(folder: Path) -> dict[str, str]:
    """What each step of the session printed, by place on the page."""
    steps = [(str(block), block.text) for block in session()]
    (folder / "session.json").write_text(json.dumps(steps), encoding="utf-8")
    (folder / "session.py").write_text(RUNNER, encoding="utf-8")
    done = run(folder, ["-W", "error", "session.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.split(r"^@@ (.+)\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_all_steps_run_without_a_warning(outputs: dict[str, str]) -> None:
    assert list(outputs) == [str(block) for block in session()]


def test_steps_print_what_the_page_shows(outputs: dict[str, str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = 0
    for block in session():
        rest = "\n".join(text.splitlines()[block.line + block.text.count("\n") :]) + "\n"
        match = _PRINTED.match(rest)
        if match:
            shown += 1
            assert re.sub(r"^ {4}", "", match[1], flags=re.MULTILINE) in outputs[str(block)]
    assert shown == 3


def test_f1_is_reported_beside_the_other_metrics(outputs: dict[str, str]) -> None:
    (printed,) = [outputs[str(block)] for block in session() if "macro_f1" in block.text]
    metrics = ast.literal_eval(next(line for line in printed.splitlines() if line.startswith("{")))
    assert metrics.keys() == {"errors", "accuracy", "f1", "batches", "epochs"}
    assert metrics["errors"] == pytest.approx((1 - metrics["accuracy"]) * 360, abs=0.1)
    assert 0.5 < metrics["f1"] < 1


def test_the_loaded_model_is_the_trained_one(outputs: dict[str, str]) -> None:
    (printed,) = [outputs[str(block)] for block in session() if "load_trial_from_checkpoint_path" in block.text]
    assert float(printed.split()[-1]) >= 0.6


def named(cluster: Cluster) -> dict[str, str]:
    """Return the environment of a shell in a folder beside the cluster's: it names the cluster."""
    return {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}


def test_the_search_from_a_file(docs_cluster: Cluster, folder: Path) -> None:
    assert not [problem for problem in check(yaml.safe_load(files()["port.yaml"])) if problem.level == "error"]
    ((_, *arguments),) = commands("det experiment create")
    done = subprocess.run(
        docs_cluster.command(*arguments),
        cwd=folder,
        env=named(docs_cluster),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    with Client(docs_cluster.url, docs_cluster.token) as client:
        experiment = max((one for one in client.list_experiments() if one.name == "port"), key=lambda one: one.id)
        assert experiment.state is ExperimentState.COMPLETED, said
        trials = experiment.list_trials()
        assert len({trial.hparams["lr"] for trial in trials}) == 4
        reached = {}
        for trial in trials:
            reports = list(trial.iter_metrics("validation"))
            assert reports[-1].steps_completed == trial.view.steps_completed > 0
            assert all({"accuracy", "batches", "epochs"} <= report.metrics.keys() for report in reports)
            assert all("loss" in report.metrics for report in trial.iter_metrics("training"))
            reached[trial.id] = max(report.metrics["accuracy"] for report in reports)
        assert experiment.view.best is not None
        assert experiment.view.best.value == max(reached.values()) >= 0.85
        assert experiment.top_checkpoint().view.trial_id == max(reached, key=lambda trial: reached[trial])


def test_the_search_from_a_notebook(docs_cluster: Cluster, tmp_path: Path) -> None:
    (cell,) = [block.text for block in blocks(PAGE, "python") if block.text.startswith("%%det_experiment")]
    sources = [
        "%load_ext detlab_magics",
        *(f"%%det_module {name}\n{files()[f'{name}.py']}" for name in ("plain", "port")),
        cell,
        'port_search.wait()\nprint("accuracy", port_search.top_checkpoint().validation)',
    ]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text.rstrip("\n")) for text in sources])
    client = nbclient.NotebookClient(
        made, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    done = client.execute(env=named(docs_cluster))
    (output,) = [out for out in done.cells[-1].outputs if out.output_type == "stream"]
    assert float(output.text.split()[-1]) >= 0.85
