"""A run in its process: steps, the end, further processes of it, what is told and what raises."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from track_doubles import records_of

from detlab.media import Image, Table
from detlab.track import current
from detlab.track.errors import NoRun
from detlab.track.records import RunSpool
from detlab.track.this_run import Run


def test_steps_count_the_calls_and_may_be_said_and_go_back(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": 1})
    run.log({"a": 2})
    run.log({"a": 3}, step=10)
    run.log({"a": 4})
    run.log({"a": 5}, step=3)
    run.log({"a": 6})
    assert [one["step"] for one in records_of(run, "metrics")] == [0, 1, 10, 11, 3, 12]


def test_values_may_wait_for_those_of_the_next_call(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": 1}, commit=False)
    run.log({"b": 2})
    run.log({"c": 3}, step=7, commit=False)
    run.end("FINISHED")
    assert [(one["step"], one["values"]) for one in records_of(run, "metrics")] == [
        (0, {"a": 1.0, "b": 2.0}),
        (7, {"c": 3.0}),
    ]


def test_numbers_that_json_lacks_are_kept(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": math.nan, "b": math.inf})
    assert records_of(run, "metrics")[0]["values"] == {"a": "NaN", "b": "Infinity"}


def test_a_run_that_is_finished_twice_ends_once_and_what_is_logged_after_is_told_once(
    make_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    run.finish()
    run.finish(exit_code=1)
    run.log({"a": 1})
    run.log({"a": 2})
    assert [one["status"] for one in records_of(run, "exit")] == ["FINISHED"]
    assert not records_of(run, "metrics")
    assert caplog.text.count("after the end of run") == 1


def test_nothing_that_is_logged_ends_the_script_unless_it_was_asked_to(
    make_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items")

    lenient, strict = make_run(), make_run("strict", strict=True)
    for wrong in ([1, 2], None, Hostile(), {"a": object()}):
        lenient.log(wrong)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            strict.log(wrong)  # type: ignore[arg-type]
    lenient.log({"a": 1}, step="3")  # type: ignore[arg-type]
    lenient.log({"a": 1}, step=1.5)  # type: ignore[arg-type]
    assert "not logged" in caplog.text
    assert not records_of(lenient, "metrics")


def test_a_problem_is_told_once_and_not_for_ever(
    make_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    for _ in range(50):
        run.log({"acc@1": 1.0, "x": [1]})
    for number in range(500):
        run.log({f"bad{number}": [1]})
    assert caplog.text.count("acc@1") <= 1
    assert len(caplog.records) <= 102


def test_a_configuration_is_logged_as_it_is_set(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.config.update({"lr": 0.1}, epochs=3)
    run.config.lr = 0.2
    run.config["net"] = {"depth": 2}
    assert (run.config["lr"], run.config.epochs, run.config.net) == (0.2, 3, {"depth": 2})
    with pytest.raises(AttributeError, match="lr, epochs, net"):
        _ = run.config.no_such
    said = [one["values"] for one in records_of(run, "config")]
    assert said == [{"lr": 0.1, "epochs": 3}, {"lr": 0.2}, {"net": {"depth": 2}}]


def test_results_are_the_newest_values_unless_others_were_said(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"acc": 0.9, "loss": 1.0})
    run.log({"acc": 0.8})
    run.summary["acc"] = 0.95
    run.summary.update(best_epoch=3)
    assert dict(run.summary) == {"acc": 0.95, "loss": 1.0, "best_epoch": 3}
    assert [one["values"] for one in records_of(run, "summary")] == [{"acc": 0.95}, {"best_epoch": 3}]


def test_a_run_and_its_results_say_what_they_are(make_run: Callable[..., Run]) -> None:
    """A cell that ended with one showed the address of an object."""
    run = make_run()
    run.log({"loss": 0.5})
    assert repr(run).startswith(f"Run(id={run.id!r}")
    assert repr(run.summary) == "{'loss': 0.5}"
    run.finish()
    assert repr(run).endswith("ended)")


@pytest.mark.parametrize("wrong", [[1, 2], "lr=1", 5])
def test_what_can_be_no_configuration_is_named_with_what_can_be(make_run: Callable[..., Run], wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"is no configuration: give a mapping"):
        make_run().config.update(wrong)


def test_two_processes_of_a_run_write_beside_each_other(make_run: Callable[..., Run]) -> None:
    one, other = make_run(), make_run()
    one.log({"a": 1})
    other.log({"b": 1})
    one.end("FINISHED")
    other.log({"b": 2})
    assert [record["seq"] for record in records_of(one)] == [1, 2, 1, 2]
    assert one.folder is not None
    assert len(one.folder.writers()) == 2


def test_the_end_of_a_forked_child_is_not_that_of_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.log({"a": 1})
    child = os.fork()
    if child == 0:
        run.log({"a": 2})
        run.finish()
        os._exit(0)
    os.waitpid(child, 0)
    run.log({"a": 3})
    assert [one["seq"] for one in records_of(run)] == [1, 2, 3]
    assert not records_of(run, "exit")


def test_an_exception_in_a_block_ends_the_run_as_failed(make_run: Callable[..., Run]) -> None:
    run = make_run()
    with pytest.raises(ZeroDivisionError), run:
        _ = 1 // 0
    assert records_of(run, "exit")[0]["status"] == "FAILED"
    assert records_of(run, "exit")[0]["reason"].startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("raised", "status", "reason"),
    [
        (KeyboardInterrupt(), "KILLED", "KeyboardInterrupt"),
        (SystemExit(0), "FINISHED", ""),
        (SystemExit(2), "FAILED", "exit code 2"),
        (SystemExit("no data"), "FAILED", "exit code no data"),
    ],
)
def test_ways_to_end(make_run: Callable[..., Run], raised: BaseException, status: str, reason: str) -> None:
    run = make_run()
    with pytest.raises(type(raised)), run:
        raise raised
    end = records_of(run, "exit")[0]
    assert (end["status"], end["reason"].strip(": ")) == (status, reason)


def test_a_disabled_run_keeps_nothing(tmp_path: Path) -> None:
    run = Run(None, "key", mode="disabled")
    run.log({"a": 1})
    run.config.lr = 1
    run.summary["x"] = 2
    run.alert("title")
    run.finish()
    assert (run.config.lr, run.summary["x"], list(tmp_path.iterdir())) == (1, 2, [])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run in this process, and none of its variables."""
    monkeypatch.setattr(current, "_current", None)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DET_RUN"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("alone")
def test_logging_before_a_run_begins_is_an_error_that_says_how() -> None:
    for call in (lambda: current.log({}), current.current_config, lambda: current.alert("a")):
        with pytest.raises(NoRun) as raised:
            call()
        assert "det.init" in raised.value.hint
    current.finish()
    assert current.current_run() is None


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("wrong", [{"id": "../x"}, {"id": "a b"}, {"mode": "onlin"}])
def test_what_can_be_no_run_is_refused_where_it_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no id of a run|online, offline and disabled"):
        current.init(**wrong)


@pytest.mark.usefixtures("alone")
def test_a_second_run_of_a_process_is_the_first_unless_another_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_RUN_MODE", "disabled")
    first = current.init()
    assert current.init() is first
    second = current.init(reinit=True)
    assert second is not first
    assert first.finished


@pytest.fixture
def quiet_runs(alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs below a folder of the test, without a process beside this one."""
    monkeypatch.setenv("DET_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("DET_RUN_MODE", "offline")
    monkeypatch.setattr(Run, "begin", lambda _self, **_: None)
    monkeypatch.setattr(Run, "_wait_for_companion", lambda _self: None)


@pytest.mark.usefixtures("quiet_runs")
def test_a_script_that_runs_again_with_its_id_is_not_mixed_into_the_run_that_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its curves of two trainings were one curve, and the first configuration was gone, without a word."""
    first = current.init(id="base", config={"lr": 1})
    first.log({"loss": 1.0})
    first.finish()
    again = current.init(id="base", config={"lr": 2})
    assert again.id == "base-2"
    assert "run base has ended: this is another one, base-2 (resume=True goes on with base)" in caplog.text
    assert current._key("base", "offline", None, resume=False) == "base-2", "a further process of it is of the same run"
    again.finish()
    assert current.init(id="base").id == "base-3"
    current.finish()
    resumed = current.init(id="base", resume=True)
    assert (resumed.id, resumed.step) == ("base", 1)


@pytest.mark.usefixtures("quiet_runs")
def test_a_run_that_has_ended_in_this_process_is_not_mixed_with_the_next_one() -> None:
    """The process beside it wrote tags after the end, and then the run counted as one that goes on."""
    first = current.init(id="base")
    first.finish()
    assert first.folder is not None
    RunSpool(first.folder.path / first._writer).append("tags", {"values": {"detlab.host": "node"}})
    assert current.init(id="base").id == "base-2"
    current.finish()


@pytest.mark.usefixtures("quiet_runs")
def test_a_run_that_has_ended_elsewhere_is_known_by_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_RUN_MODE", "online")
    monkeypatch.setattr("detlab.track.master.has_ended", {"base": True, "base-2": False}.__getitem__)
    assert current.init(id="base").id == "base-2"
    current.finish()
    assert current.init(id="never seen".replace(" ", "-")).id == "never-seen", "no answer is no reason to stop"


@pytest.mark.usefixtures("quiet_runs")
def test_what_shares_the_variable_is_one_run_and_an_id_of_its_own_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DET_RUN_ID", "shared")
    current.init().finish()
    assert current.init(reinit=True).id == "shared"
    current.finish()
    assert current.init(id="own").id == "own"
    assert "own is a run of its own, beside shared, which DET_RUN_ID names" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("alone")
def test_a_folder_that_cannot_be_written_is_replaced_and_the_script_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DET_RUNS_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
    started: list[Any] = []
    monkeypatch.setattr(Run, "begin", lambda self, **_: started.append(self))
    run = current.init()
    assert run.dir.startswith(str(tmp_path / "temporary"))
    assert "cannot be kept in" in caplog.text


def test_import_detlab_loads_none_of_it() -> None:
    import subprocess

    code = "import sys, detlab; print('detlab.track' in sys.modules, 'pydantic' in sys.modules, detlab.init)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False False <function init")


def test_an_object_waits_on_disk_and_one_that_is_none_is_told_once(
    make_run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    assert run.folder is not None
    run.log({"samples": [Image([[0, 128], [255, 0]]), Image([[1]])], "loss": 1.0}, step=7)
    run.log({"table": Table([{"a": 1}])}, step=-3)
    for _ in range(5):
        run.log({"what": object()})
    waiting = [json.loads(one.read_text()) for one in sorted(run.folder.path.glob("*/media/*.json"))]
    said = [(one["key"], one["step"], one["place"], one["kind"]) for one in waiting]
    assert said == [("samples", 7, 0, "image"), ("samples", 7, 1, "image"), ("table", 0, 0, "table")]
    assert [one["values"] for one in records_of(run, "metrics")] == [{"loss": 1.0}]
    assert caplog.text.count("what is not logged") == 1
    with pytest.raises(ValueError, match="not logged"):
        make_run("strict", strict=True).log({"what": object()})


def test_the_first_metric_of_which_the_best_is_said_measures_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.define_metric("*", step_metric="epoch", summary="min")
    run.define_metric("epoch")
    run.define_metric("acc", summary="last,max", goal=None, hidden=True)
    run.define_metric("val_loss", goal="minimize")
    assert [one["values"] for one in records_of(run, "tags")] == [{"detlab.metric": "max acc"}]
