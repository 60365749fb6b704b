"""Logs, downloads, login and errors of `det` against a fake master."""

import json
import threading
from pathlib import Path

import pytest

from detlab.errors import Problem
from detlab.schemas.wire import (
    TrialState,
)
from detlab_magics import actions
from detlab_magics.kernel import KernelSession

# --- logs -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_logs_of_several_trials(master, det) -> None:
    master.add_experiment()
    for _ in range(2):
        master.add_trial(1)
    for n in range(4):
        master.log(1 + n % 2, f"line {n}", rank=n // 2)
    assert det("e", "logs", 1).stdout.splitlines()[0] == "[trial 1] [rank 0] line 0"
    assert det("e", "logs", 1, "--trial", 2).stdout == "[rank 0] line 1\n[rank 1] line 3\n"
    assert det("e", "logs", 1, "--tail", 1).stdout == "[trial 1] [rank 1] line 2\n[trial 2] [rank 1] line 3\n"
    assert det("t", "logs", 1, "--rank", 1).stdout == "[rank 1] line 2\n"
    assert det("e", "logs", 1, "--head", 1).stdout == "[trial 1] [rank 0] line 0\n[trial 2] [rank 0] line 1\n"
    assert det("t", "logs", 2, "--head", 1, "--rank", 1).stdout == "[rank 1] line 3\n"
    assert det("t", "logs", 1, "--head", 9).stdout == "[rank 0] line 0\n[rank 1] line 2\n"
    for more in (("--tail", 1), ("-f",)):
        assert "--head shows the first lines: leave out --tail and -f" in det("t", "logs", 1, "--head", 1, *more).stderr
    assert det("t", "logs", 1, "--search", "nothing").stdout == ""
    for words in (("e", "logs", 1, "-f"), ("e", "logs", 1, "--trial", 9)):
        assert det(*words).exit_code == 2
    lines = det("t", "logs", 1, "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["line 0", "line 2"]


@pytest.mark.parametrize("follow", [(), ("-f", "--tail", 9)], ids=["once", "follow"])
def test_lines_of_several_nodes_tell_theirs_and_are_picked_by_it(master, det, follow) -> None:
    master.add_experiment()
    trial = master.add_trial(1)
    master.trials[1] = trial.model_copy(update={"slots": ["a/cuda0", "b/cuda0"], "state": TrialState.COMPLETED})
    master.log(1, "one", rank=0, node="a")
    master.log(1, "two", rank=1, node="b")
    master.log(1, "three", node="b")
    assert det("t", "logs", 1, *follow).stdout == "[a rank 0] one\n[b rank 1] two\n[b] three\n"
    assert det("t", "logs", 1, "--node", "b", *follow).stdout == "[b rank 1] two\n[b] three\n"
    assert det("t", "logs", 1, "--node", "b", "--rank", 1, *follow).stdout == "[b rank 1] two\n"
    master.trials[1] = trial.model_copy(update={"slots": ["cuda0"], "agent_id": "a", "state": TrialState.COMPLETED})
    assert det("t", "logs", 1, "--node", "a", *follow).stdout == "[rank 0] one\n", "one node needs no name"


@pytest.mark.parametrize("tail", [None, 0, 2])
def test_following_logs_misses_and_repeats_nothing(master, det, tail: int | None) -> None:
    master.add_trial(master.add_experiment().id)
    for n in range(5):
        master.log(1, f"line {n}")

    def end() -> None:
        master.await_request("GET", "trials/1/logs/stream")
        master.log(1, "the last")
        master.update_trial(1, state=TrialState.COMPLETED)

    ender = threading.Thread(target=end)
    ender.start()
    words = ["t", "logs", 1, "-f", *(["--tail", tail] if tail is not None else [])]
    result = det(*words)
    ender.join()
    first = 0 if tail is None else 5 - tail
    assert result.stdout.splitlines() == [*(f"line {n}" for n in range(first, 5)), "the last"]


def test_no_last_lines_are_none_in_the_notebook_too(master, det, capsys) -> None:
    """`--tail 0` was none in a terminal and all in a notebook; and there it said "no output yet"."""
    master.add_trial(master.add_experiment().id)
    for n in range(3):
        master.log(1, f"line {n}")
    assert (det("t", "logs", 1, "--tail", 0).stdout, det("t", "logs", 1, "--tail", 0).stderr) == ("", "")
    session = KernelSession()
    for tail, shown in ((0, ""), (1, "line 2\n"), (None, "line 0\nline 1\nline 2\n")):
        actions.logs(session, 1, tail=tail, follow=False)
        assert capsys.readouterr().out == shown
    session.client().close()


def test_a_progress_bar_in_the_output_is_one_line(master, det) -> None:
    master.add_trial(master.add_experiment().id)
    master.log(1, "10%\r50%\r100%\r")
    assert det("t", "logs", 1).stdout == "100%\n"


# --- downloads --------------------------------------------------------------------------------------------


def test_downloads(master, det, det_json, workplace: Path) -> None:
    assert det("e", "create", "search.yaml", "code").exit_code == 0
    master.add_trial(1)
    worse = master.add_checkpoint(1, {"w": b"worse"}, validation=0.9, steps_completed=2)
    better = master.add_checkpoint(1, {"w": b"better"}, validation=0.1, steps_completed=1)
    assert det("t", "download", 1, "-o", "best").exit_code == 0
    assert (workplace / "best" / "w").read_bytes() == b"better"
    assert det("t", "download", 1, "--latest").exit_code == 0
    assert (workplace / "checkpoints" / worse.uuid / "w").read_bytes() == b"worse"
    assert det_json("c", "download", better.uuid, "-o", "here")["path"] == "here"
    assert det("t", "download", 1, "--best", "--latest").exit_code == 2
    (workplace / "best" / "w").write_bytes(b"mine")
    result = det("c", "download", worse.uuid, "-o", "best")
    assert result.exit_code == 1
    assert "best exists and is neither this checkpoint nor an unchanged download" in result.stderr
    assert det("e", "download-model-def", 1, "-o", "out").exit_code == 0
    assert (workplace / "out" / "experiment_1_code.tar.gz").read_bytes() == next(iter(master.bundles.values()))


def test_experiment_download_is_the_best_checkpoints_as_in_determined(master, det, det_json, workplace: Path) -> None:
    # It was the code, which is `download-model-def` in Determined.
    master.add_trial(master.add_experiment().id)
    assert "no validated checkpoint" in det("e", "download", 1).stderr
    worst, best, middle = (
        master.add_checkpoint(1, {"w": b"%d" % steps}, validation=loss, steps_completed=steps).uuid
        for steps, loss in enumerate((0.9, 0.1, 0.5), 1)
    )
    assert det("e", "download", 1).exit_code == 0
    assert [folder.name for folder in (workplace / "checkpoints").iterdir()] == [best]
    assert (workplace / "checkpoints" / best / "w").read_bytes() == b"2"
    got = det_json("e", "download", 1, "--top-n", 2, "-o", "two")
    assert got == [{"uuid": uuid, "path": str(Path("two") / uuid)} for uuid in (best, middle)]
    assert det("e", "download", 1, "-q", "--top-n", 9, "-o", "all").stdout.split() == [
        str(Path("all") / uuid) for uuid in (best, middle, worst)
    ]


# --- login ------------------------------------------------------------------------------------------------


def test_login_tries_the_token_and_remembers_it(master, det, workplace: Path, monkeypatch) -> None:
    monkeypatch.delenv("DET_URL")
    monkeypatch.delenv("DET_TOKEN")
    assert "no cluster found" in det("e", "list").stderr
    assert det("login", master.url, "--token-file", "-", input="wrong").exit_code == 1
    assert "no cluster found" in det("e", "list").stderr
    result = det("login", f"{master.url}/hub/home", "--token-file", "-", input=f"{master.token}\n")
    assert result.exit_code == 0, result.output
    assert "as alice" in result.stdout
    file = workplace / "xdg-config" / "detlab" / "auth.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "alice" in det("user", "whoami").stdout
    assert det("logout").stdout == "Logged out.\n"
    assert "no cluster found" in det("e", "list").stderr


def test_login_needs_a_token_that_nobody_can_see(master, det) -> None:
    result = det("login", master.url)
    assert result.exit_code == 2
    assert "--token-file" in result.stderr
    assert det("login", master.url, "--token-file", "-", input="two words").exit_code == 1


# --- errors -----------------------------------------------------------------------------------------------


def test_errors_are_one_block(master, det) -> None:
    result = det("e", "describe", 99)
    assert result.exit_code == 1
    assert result.stderr == "Error: there is no experiment 99\n"
    result = det("e", "describe", 99, "--json")
    assert json.loads(result.stdout)["code"] == "not_found"
    assert result.exit_code == 1


def test_a_wrong_token(master, det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_TOKEN", "wrong")
    result = det("e", "list")
    assert result.exit_code == 1
    assert "no valid token" in result.stderr
    assert "det login URL" in result.stderr


def test_a_cluster_that_is_not_running(det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_URL", "http://127.0.0.1:9")
    result = det("e", "list")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9/services/detlab/ (named by DET_URL)" in result.stderr
    assert "det up" in result.stderr


def test_the_master_can_be_named(master, det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_URL", "http://127.0.0.1:9")
    assert det("-m", master.url, "e", "list").exit_code == 1  # DET_TOKEN belongs to DET_URL
    monkeypatch.delenv("DET_URL")
    assert det("-m", master.url, "e", "list").exit_code == 0


def test_debug_shows_the_traceback(det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_DEBUG", "1")
    assert "Traceback" in det("e", "describe", 99).stderr


def test_problems_print_as_path_and_message() -> None:
    from detlab.cli.output.failures import problem_line

    assert problem_line(Problem("a.b", "is \x1b[1mwrong", "fix it")) == "a.b: is wrong (fix it)"


def test_a_working_directory_that_was_removed_is_named(det, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "[Errno 2] No such file or directory", of nothing."""
    gone = workplace / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.delenv("DET_URL")
    gone.rmdir()
    result = det("e", "list")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: the working directory was removed",
        "  → cd to a directory that exists, and run it again",
    ]
