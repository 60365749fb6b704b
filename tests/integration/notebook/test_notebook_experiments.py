"""Experiments from cells: submit, attach, watch, interrupt, and what stays in the notebook."""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import detlab_magics
from testbed.front.kernels import Notebook

pytestmark = pytest.mark.hub

HOSTILE = "<img src=x onerror=alert(1,2)>"

TRAIN = """%%det_module {name}
import detlab as det

def main():
    with det.core.init() as core:
        lr = det.get_cluster_info().trial.hparams["lr"]
        for step in range(1, 6):
            core.train.report_validation_metrics(step, {{{metric!r}: lr / step}})

if __name__ == "__main__":
    main()
"""

LONG = """%%det_module {name}
import detlab as det

with det.core.init() as core:
    step = 0
    while not core.preempt.should_preempt():
        step += 1
        core.train.report_validation_metrics(step, {{"loss": 1 / step}})
        import time; time.sleep(0.05)
"""

SINGLE = """%%det_experiment {options}
entrypoint: python3 {name}.py
max_restarts: 0
searcher: {{name: single, metric: {metric!r}}}
hyperparameters: {{lr: 0.5}}
"""


def submitted(cell):
    found = re.search(r"experiment (\d+) (submitted|already has this)", cell.stdout)
    assert found, cell.stdout + cell.traceback
    return int(found.group(1)), found.group(2) == "submitted"


def test_a_headless_search_leaves_the_still_view_and_the_experiment(notebook):
    notebook.run("lr_max = 0.9")
    assert notebook.run(TRAIN.format(name="quick", metric=HOSTILE)).stdout == "module quick: 10 lines from cell 3\n"
    cell = notebook.run(
        f"""%%det_experiment --name "<b>bold</b>" --out exp
entrypoint: python3 quick.py
searcher: {{name: random, max_trials: 2, metric: {HOSTILE!r}}}
hyperparameters:
  lr: {{type: double, minval: 0.1, maxval: ${{lr_max}}}}
"""
    )
    assert cell.status == "ok", cell.traceback
    number, _ = submitted(cell)
    assert "quick.py" in cell.stdout
    assert len(cell.displays) == 1, "one output, replaced as it goes on"
    bundle = notebook.shown[cell.displays[0]]
    assert set(bundle) == {"text/html", "image/svg+xml", "text/plain"}
    assert sum(len(text.encode()) for text in bundle.values()) < 100_000
    assert f"Experiment {number} · <b>bold</b>\n2/2 trials · completed · best {HOSTILE[:40]}" in bundle["text/plain"]
    for markup in (bundle["text/html"], bundle["image/svg+xml"]):
        assert "<img src=x" not in markup
        assert "<b>" not in markup
    assert "&lt;img src=x onerror" in bundle["text/html"]
    picture = ET.fromstring(bundle["image/svg+xml"])
    titles = [e.text for e in picture.iter() if e.tag.endswith("}title")]
    assert [t.split(":")[0] for t in sorted(titles)] == ["trial 1", "trial 2"], "a curve for each trial"
    assert notebook.run(f"assert exp.id == _.id == {number}; exp.state").result["text/plain"].startswith("<Experiment")
    assert not cell.result, "the view is the cell's output; nothing is repeated below it"


def test_headless_runs_submit_anew_what_has_ended(notebook):
    notebook.run(TRAIN.format(name="again", metric="loss"))
    code = SINGLE.format(name="again", options="", metric="loss")
    assert submitted(notebook.run(code))[0] < submitted(notebook.run(code))[0]


@pytest.mark.parametrize("headless", [False, True])
def test_a_notebook_that_runs_again_finds_its_running_search(open_notebook, headless):
    """The counter of the cell was in the code: another number made it another search, which was submitted beside it."""
    first, second = open_notebook(), open_notebook()
    name = f"rerun_{int(headless)}"
    code = SINGLE.format(name=name, options="--watch", metric="loss")
    first.run(LONG.format(name=name))
    number, new = submitted(first.run(code, headless=headless))
    assert new
    for extra in ("1", "2", "3"):
        second.run(extra)
    second.run(LONG.format(name=name) + "\n\n")
    assert submitted(second.run(code, headless=headless)) == (number, False)
    assert submitted(first.run(code, headless=headless)) == (number, False)
    second.run(f"%det_pause {number}")
    paused = second.run(code, headless=headless)
    assert submitted(paused) == (number, False)
    assert f"it is paused: %det_activate {number} resumes it" in paused.stdout
    second.run(f"%det_kill {number}")
    again, new = submitted(second.run(code.replace("--watch", "--watch --new"), headless=headless))
    assert new
    second.run(f"%det_kill {again}")


def test_an_unchanged_cell_attaches_within_a_kernel_session(notebook):
    notebook.run(TRAIN.format(name="attach", metric="loss"))
    code = SINGLE.format(name="attach", options="--wait", metric="loss")
    first, new = submitted(notebook.run(code, headless=False))
    assert new
    assert submitted(notebook.run(code, headless=False)) == (first, False), "also after its end"
    changed = code.replace("0.5", "0.6")
    assert submitted(notebook.run(changed, headless=False))[1], "another configuration is another experiment"
    notebook.run(TRAIN.format(name="attach", metric="loss") + "\n# changed\n")
    assert submitted(notebook.run(code, headless=False))[1], "other code, too"
    assert submitted(notebook.run(code.replace("--wait", "--wait --new"), headless=False))[1]


def test_a_restarted_kernel_attaches_while_it_runs_and_interrupt_stops_only_watching(open_notebook):
    first, second = open_notebook(), open_notebook()
    for kernel in (first, second):
        kernel.run(LONG.format(name="long"))
    code = SINGLE.format(name="long", options="--wait", metric="loss")
    cell = first.run(code, headless=False, interrupt_when=lambda: first.count("comm_msg") > 3)
    number, _ = submitted(cell)
    assert cell.ename == "StoppedWatching"
    assert f"stopped watching; experiment {number} continues" in cell.traceback
    assert f"%det_watch {number}" in cell.traceback
    assert "Traceback" not in cell.traceback
    assert "stopped watching; the experiment continued" in first.shown[cell.displays[-1]]["text/plain"]

    attached = second.run(code.replace("--wait", ""), headless=False)
    assert submitted(attached) == (number, False)
    shown = second.shown[attached.displays[-1]]
    assert "application/vnd.jupyter.widget-view+json" in shown

    second.updates.clear()
    second.until(lambda: len(second.updates) >= 5)
    times = [at for at, _, _ in second.updates]
    assert len(times) / (times[-1] - times[0]) < 2.6, "at most two updates a second"
    assert max(size for _, _, size in second.updates) < 20_000, "an update carries what is new"

    assert "paused" in second.run("%det_pause").stdout
    assert f"experiment {number}: running" in second.run(f"%det_activate {number}").stdout
    assert "experiment" in second.run("%det_kill").stdout
    second.until(lambda: "canceled" in second.shown[attached.displays[-1]]["text/plain"])
    assert "application/vnd.jupyter.widget-view+json" not in second.shown[attached.displays[-1]], "frozen at the end"
    # The killed experiment is shown by any kernel, at once and still.
    reopened = first.run(f"%det_watch {number}", headless=False)
    assert set(first.shown[reopened.displays[-1]]) == {"text/html", "image/svg+xml", "text/plain"}


def test_dry_run_lists_what_would_be_shipped_and_submits_nothing(notebook):
    notebook.run(TRAIN.format(name="dry", metric="loss"))
    before = notebook.run("%det_list --limit 1")
    cell = notebook.run(SINGLE.format(name="dry", options="--dry-run", metric="loss"))
    assert "dry.py" in cell.stdout
    assert "nothing was submitted" in cell.stdout
    after = notebook.run("%det_list --limit 1")
    assert notebook.shown[before.displays[0]] == notebook.shown[after.displays[0]]


def test_a_file_is_submitted_by_the_line_magic_with_a_folder_of_code(notebook):
    notebook.run(
        "import pathlib\n"
        "code = pathlib.Path('code'); code.mkdir()\n"
        "(code / 'go.py').write_text('import detlab as det, part\\n"
        'with det.core.init() as core: core.train.report_validation_metrics(1, {"loss": part.X})\')\n'
        "(code / 'part.py').write_text('X = 3')\n"
        "pathlib.Path('one.yaml').write_text('entrypoint: python3 go.py\\nsearcher: {name: single, metric: loss}')"
    )
    cell = notebook.run("made = %det_experiment one.yaml --context code --name from-${lr_name}")
    assert "no variable 'lr_name'" in cell.traceback
    cell = notebook.run("made = %det_experiment one.yaml --context code --name from-file")
    assert cell.status == "ok", cell.traceback
    assert "2 files" in cell.stdout
    assert "best loss 3" in notebook.shown[cell.displays[0]]["text/plain"]
    assert notebook.run("made.name").result["text/plain"] == "'from-file'"


def test_never_reported_is_a_visible_warning(notebook):
    notebook.run("%%det_module silent\nprint('I say nothing')")
    cell = notebook.run(SINGLE.format(name="silent", options="--out silent_exp", metric="val_loss"))
    assert cell.status == "ok", cell.traceback
    bundle = notebook.shown[cell.displays[0]]
    assert "never reported" in bundle["text/plain"]
    assert "never reported" in bundle["text/html"]
    assert "val_loss" in bundle["text/plain"]


def test_a_misspelt_metric_stops_run_all(notebook):
    notebook.run(TRAIN.format(name="misspelt", metric="loss"))
    cell = notebook.run(SINGLE.format(name="misspelt", options="", metric="los"))
    assert cell.ename == "ExperimentFailed"
    assert "never reported 'los' (its validations reported: loss" in cell.traceback
    assert "searcher.metric" in cell.traceback


def test_a_search_whose_values_are_all_nan_stops_run_all(notebook):
    notebook.run(TRAIN.format(name="allnan", metric="loss").replace("lr / step", "float('nan')"))
    cell = notebook.run(SINGLE.format(name="allnan", options="", metric="loss"))
    assert cell.ename == "ExperimentFailed"
    assert "has no result: no finite value of 'loss' was reported" in cell.traceback
    assert "learning rate" in cell.traceback


def test_nan_loss_is_shown_and_does_not_break_the_view(notebook):
    some_nan = "lr if lr < 0.5 and step < 4 else float('nan')"
    notebook.run(TRAIN.format(name="nans", metric="loss").replace("lr / step", some_nan))
    grid = "searcher: {name: grid, metric: loss}\nhyperparameters: {lr: {type: categorical, vals: [0.25, 0.75]}}"
    cell = notebook.run(f"%%det_experiment\nentrypoint: python3 nans.py\n{grid}")
    assert cell.status == "ok", cell.traceback
    shown = notebook.shown[cell.displays[0]]["text/plain"]
    assert "best loss 0.2500" in shown
    assert re.search(r"completed +0.75", shown), shown


def test_the_other_magics(notebook):
    cell = notebook.run("%det")
    status = notebook.shown[cell.displays[0]]["text/plain"]
    assert "slots in use" in status
    assert "%%det_experiment" in status
    listing = notebook.shown[notebook.run("%det_list").displays[0]]["text/plain"]
    assert "completed" in listing
    logs = notebook.run("%det_logs {silent_exp.list_trials()[0].id}").stdout
    assert "I say nothing" in logs
    help_text = notebook.run("%det_experiment?").payload[0]["data"]["text/plain"]
    assert "%%det_experiment --name first" in help_text
    assert notebook.complete("%%det_experiment --dr") == ["--dry-run"]
    assert notebook.complete("%det_experiment on") == ["one.yaml"]
    assert notebook.complete("%%det_experiment\nsearcher:\n  metric: val") == ["val_loss"]
    assert "searcher:" in notebook.complete("%%det_experiment\nsear")
    assert str(notebook.run("silent_exp.id").result["text/plain"]) in notebook.complete("%det_watch ")


def test_a_plot_is_a_picture_when_nobody_looks_and_interactive_when_somebody_does(notebook):
    number = notebook.run("silent_exp.id").result["text/plain"]
    cell = notebook.run(f"%det_plot timeline {number}")
    assert cell.status == "ok", cell.traceback
    still = notebook.shown[cell.displays[0]]
    assert set(still) == {"text/html", "image/svg+xml", "text/plain"}
    assert still["image/svg+xml"].startswith("<svg")
    assert still["text/plain"] == f"Trials on slots in experiment {number}"
    live = notebook.run(f"%det_plot timeline {number}", headless=False)
    assert "application/vnd.plotly.v1+json" in notebook.shown[live.displays[0]]
    assert "choose one of best_so_far" in str(notebook.run("%det_plot pie").traceback)
    assert "timeline has no --against" in str(notebook.run(f"%det_plot timeline {number} --against time").traceback)
    assert notebook.complete("%det_plot imp") == ["importance"]
    assert number in notebook.complete("%det_plot importance ")
    assert "%det_plot contour 7 --params lr layers" in notebook.run("%det_plot?").payload[0]["data"]["text/plain"]


def test_runs_are_compared_by_a_picture_and_tables(notebook):
    number = notebook.run("silent_exp.id").result["text/plain"]
    cell = notebook.run(f"%det_compare {number} 987654")
    assert cell.status == "ok", cell.traceback
    picture, tables = (notebook.shown[one] for one in cell.displays)
    assert picture["image/svg+xml"].startswith("<svg")
    assert f"experiment {number}" in tables["text/plain"]
    assert "experiment 987654: not there, or not yours to see" in tables["text/plain"]
    assert "<table" in tables["text/html"]
    assert "none of the trials 987654 is there" in str(notebook.run("%det_compare --trials 987654").traceback)
    assert number in notebook.complete("%det_compare ")


def test_a_search_is_looked_at_and_cloned_from_a_cell(notebook):
    number = notebook.run("silent_exp.id").result["text/plain"]
    shown = notebook.run(f"%det_search show {number}").stdout
    assert f"%det_search replay {number}" in shown
    made = notebook.run(f"%det_search clone {number} --name again --paused").stdout
    assert re.search(rf"Created experiment \d+, like experiment {number}\n", made)
    assert "extend" in notebook.complete("%det_search ext")
    assert "is over" in notebook.run(f"%det_search extend {number} --trials 1").traceback


def test_spawned_servers_preload_the_magics(tmp_path, kernel_env):
    mine = tmp_path / "mine.py"
    mine.write_text("greeting = 'hello'\n")
    startup = pathlib.Path(detlab_magics.__file__).with_name("startup.py")
    env = {**kernel_env, "PYTHONSTARTUP": str(startup), "DETLAB_CHAIN_PYTHONSTARTUP": str(mine)}
    kernel = Notebook(tmp_path, env)
    try:
        cell = kernel.run("%det")
        assert "slots in use" in kernel.shown[cell.displays[0]]["text/plain"]
        assert kernel.run("greeting").result["text/plain"] == "'hello'", "the user's own start-up file ran, too"
    finally:
        kernel.close()
    command = [sys.executable, "-i", "-c", "print(1)"]
    plain = subprocess.run(command, env=env, input="", capture_output=True, text=True, check=False)
    assert plain.returncode == 0
    assert "Error" not in plain.stderr
