"""The code that the panel inserts in a notebook runs in a kernel that has loaded nothing."""

import re
from pathlib import Path

import pytest

from detlab.client import Client, build_bundle
from testbed.front.kernels import Notebook

pytestmark = pytest.mark.hub
SOURCE = Path(__file__).parents[3] / "labextension" / "src" / "components" / "panel" / "workactions.ts"


def inserted(function: str, value: str) -> str:
    """What a function of the panel makes of an id."""
    template = re.search(rf"function {function}\(.*?return `(.*?)`;", SOURCE.read_text(), re.DOTALL)
    assert template is not None
    return re.sub(r"\$\{.*?\}", value, template[1]).replace("\\n", "\n")


def test_code_for_an_experiment_and_a_task_runs_in_a_fresh_kernel(lab_cluster, tmp_path):
    env = {**lab_cluster.environment, "DET_URL": lab_cluster.url, "DET_TOKEN": lab_cluster.token}
    with Client(lab_cluster.url, lab_cluster.token) as client:
        bundle = build_bundle(files={"t.py": "print(1)"})
        config = {"entrypoint": "python3 t.py", "searcher": {"name": "single", "metric": "x"}, "max_restarts": 0}
        experiment = client.submit(config, bundle=bundle).experiment
        experiment.kill()  # watching ends with it, and says so
        task = client.create_task("command", config={"entrypoint": "true"})
        notebook = Notebook(tmp_path, env)
        try:
            watched = notebook.run(inserted("watchCode", str(experiment.id)))
            assert watched.ename == "ExperimentFailed", watched.traceback
            assert f"experiment {experiment.id} ended CANCELED" in watched.traceback
            shown = notebook.run(inserted("taskCode", f'"{task.id}"'))
            assert shown.status == "ok", shown.traceback
            assert task.id in str(notebook.run("print(task.id)").stdout)
        finally:
            notebook.close()
