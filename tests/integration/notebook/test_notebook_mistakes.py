"""Bad input in cells: what, where, likely cause, next command; never a Python traceback of detlab's own."""

import json
import re
import subprocess
import sys

import nbformat
import pytest

from detlab.testing.ports import free_port

pytestmark = pytest.mark.hub


def error(notebook, code, **options):
    cell = notebook.run(code, **options)
    assert cell.status == "error", cell.stdout
    shown = re.sub(r"\x1b\[[0-9;]*m", "", cell.traceback)
    assert "Traceback" not in shown
    assert '.py", line' not in shown
    return shown


def test_loading_is_quick_and_asks_nobody(open_notebook):
    kernel = open_notebook(DET_URL="http://127.0.0.1:9")
    cell = kernel.run(
        "import sys, time\n"
        "before = time.perf_counter()\n"
        "%reload_ext detlab_magics\n"
        "print(sorted({'httpx', 'pydantic', 'torch', 'anywidget', 'asyncio.sslproto'} & set(sys.modules)))\n"
        "print(time.perf_counter() - before)"
    )
    loaded, seconds = cell.stdout.splitlines()
    assert "httpx" not in loaded
    assert "pydantic" not in loaded
    assert float(seconds) < 1


def test_malformed_yaml_is_told_by_the_line_of_the_cell(notebook):
    shown = error(notebook, "%%det_experiment\nname: x\nsearcher: {name: single\nhyperparameters: {}\n")
    assert shown.startswith("ConfigError: cell ")
    assert re.search(r"line [34], column \d+", shown)


def test_all_mistakes_come_at_once_each_with_its_line(notebook):
    shown = error(
        notebook,
        "%%det_experiment\nentrypoint: python3 t.py\nsearcher:\n  name: single\n  metrc: loss\n"
        "resources:\n  slots_per_trial: many\nhyperparameter: {}\n",
    )
    assert "line 5, searcher.metrc" in shown
    assert "line 7, resources.slots_per_trial" in shown
    assert "line 8, hyperparameter" in shown


def test_impossible_resources_and_a_missing_script_are_refused_at_submit(notebook):
    base = "%%det_experiment\nentrypoint: python3 {script}\nsearcher: {{name: single, metric: x}}\n"
    shown = error(notebook, base.format(script="nowhere.py"))
    assert "line 2, entrypoint: runs 'nowhere.py', which is not in the code" in shown
    notebook.run("%%det_module here\n1")
    shown = error(notebook, base.format(script="here.py") + "resources: {slots_per_trial: 512}")
    assert "512" in shown
    assert shown.startswith("ResourcesError")


def test_a_missing_entrypoint_and_an_empty_cell(notebook):
    assert "entrypoint" in error(notebook, "%%det_experiment\nsearcher: {name: single, metric: x}\n")
    assert "has no experiment configuration" in error(notebook, "%%det_experiment\n# nothing\n")


def test_code_over_the_size_cap_names_the_largest_file(notebook):
    notebook.run(
        "import pathlib; big = pathlib.Path('big'); big.mkdir()\n"
        "with open('big/weights.bin', 'wb') as f: f.truncate(200 * 2**20)\n"
        "(big / 'go.py').write_text('1')"
    )
    config = "entrypoint: python3 go.py\nsearcher: {name: single, metric: x}\n"
    shown = error(notebook, f"%%det_experiment --context big\n{config}")
    assert shown.startswith("BundleTooLarge")
    assert "200.0 MiB  weights.bin" in shown
    assert ".detignore" in shown
    notebook.run("(big / '.detignore').write_text('*.bin')")
    assert "2 files, 6 bytes" in notebook.run(f"%%det_experiment --context big --dry-run\n{config}").stdout


def test_magics_in_the_wrong_place_are_explained(notebook):
    shown = error(notebook, "# my search\n%%det_experiment\nentrypoint: python3 x.py\n")
    assert "%%det_experiment must be the first line of its cell" in shown
    shown = error(notebook, "x = 1\n%%det_module foo\nprint(3)")
    assert "%%det_module must be the first line of its cell" in shown
    assert "needs two percent signs" in error(notebook, "%det_module foo")
    assert "a YAML body" in error(notebook, "%det_experiment")
    assert "unrecognized arguments: --fast" in error(notebook, "%det_list --fast")
    text = notebook.run('text = """\n%%det_module foo\n"""\nprint(text)')
    assert text.stdout.strip() == "%%det_module foo", "inside of a string it is text"


def test_a_wrong_token(open_notebook):
    kernel = open_notebook(DET_TOKEN="wrong")
    shown = error(kernel, "%det_list")
    assert shown.startswith("AuthError")
    assert "next: " in shown
    cell = kernel.run("%det")
    assert "no cluster" in kernel.shown[cell.displays[0]]["text/plain"]
    assert "%%det_experiment" in kernel.shown[cell.displays[0]]["text/plain"], "the magics are listed all the same"


def test_no_cluster_runs_at_the_address(open_notebook):
    port = free_port()
    kernel = open_notebook(DET_URL=f"http://127.0.0.1:{port}")
    shown = error(kernel, "%det_list")
    assert shown.startswith("ClusterUnreachable")
    assert f"127.0.0.1:{port}" in shown
    assert "DET_URL" in shown
    assert "det up" in shown


def test_no_cluster_is_named_at_all(open_notebook, tmp_path):
    kernel = open_notebook(DET_URL="", DET_TOKEN="", HOME=str(tmp_path))
    shown = error(kernel, "%det_list")
    assert shown.startswith("ClusterNotFound")
    assert "det up" in shown


FAILING = "%%det_experiment\nentrypoint: python3 {name}.py\nmax_restarts: 0\nsearcher: {{name: single, metric: loss}}\n"


def test_a_module_that_fails_to_import_gives_a_card_with_cell_and_line(notebook):
    number = re.search(
        r"from cell (\d+)",
        notebook.run("%%det_module imports\nimport json\nimport no_such_package\n").stdout,
    ).group(1)
    cell = notebook.run(FAILING.format(name="imports"))
    assert cell.ename == "ExperimentFailed"
    assert f"cell {number}, line 3" in cell.traceback
    card = notebook.shown[cell.displays[0]]["text/plain"]
    assert f"failed (import) at cell {number}, line 3: ModuleNotFoundError: No module named 'no_such_package'" in card
    assert "Traceback (most recent call last)" in card
    assert re.search(r"next: .*%det_logs \d+", card)
    assert f'File "cell {number} (imports.py)", line 3' in card
    assert f"cell {number}, line 3" in notebook.shown[cell.displays[0]]["text/html"]


def test_an_exception_in_step_7_keeps_what_was_reported_and_names_the_line(notebook):
    number = re.search(
        r"from cell (\d+)",
        notebook.run(
            "%%det_module seven\n"
            "import detlab as det\n"
            "with det.core.init() as core:\n"
            "    for step in range(1, 10):\n"
            "        if step == 7:\n"
            "            raise ValueError('<script>bad</script> batch')\n"
            "        core.train.report_validation_metrics(step, {'loss': 1 / step})\n"
        ).stdout,
    ).group(1)
    cell = notebook.run(FAILING.format(name="seven"))
    assert cell.ename == "ExperimentFailed"
    assert f"<script>bad</script> batch at cell {number}, line 6" in cell.traceback
    bundle = notebook.shown[cell.displays[0]]
    assert "best loss 0.1667" in bundle["text/plain"]
    assert "<script>" not in bundle["text/html"]
    trial = re.search(r"^ +(\d+) +0.1667", bundle["text/plain"], re.MULTILINE).group(1)
    logs = notebook.run(f"%det_logs {trial}").stdout
    assert f'File "cell {number} (seven.py)", line 6' in logs


@pytest.mark.soak
def test_papermill_stops_at_a_failed_experiment(tmp_path, kernel_env):
    cells = [
        "%load_ext detlab_magics",
        "%%det_module dies\nraise SystemExit(3)",
        FAILING.format(name="dies"),
        "open('reached', 'w').close()",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    source, executed = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    nbformat.write(book, source)
    command = [sys.executable, "-m", "papermill", source, executed, "--kernel", "python3", "--cwd", tmp_path]
    done = subprocess.run(command, env=kernel_env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "ExperimentFailed" in done.stderr
    assert not (tmp_path / "reached").exists()
    outputs = json.loads(executed.read_text())["cells"][-2]["outputs"]
    assert any("exited with code 3" in "".join(o.get("data", {}).get("text/plain", "")) for o in outputs)
