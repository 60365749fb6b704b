"""Lists, descriptions and failure cards of `det` against a fake master: empty, hostile, as tables and as JSON."""

import math
import re
from pathlib import Path

import click
import pytest

from detlab.schemas.wire import (
    BestView,
    ExperimentState,
    FailureView,
    SeriesView,
    SummaryView,
    TrialState,
)
from testbed.fake_master.api import FakeMaster

HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]evil[/red]\x1b[0m\u202egnp\x9b2J\nsecond <img src=x onerror=alert(1)>"
SHOWN = "[red]evil[/red]gnp second <img src=x onerror=alert(1)>"


# --- lists and descriptions -------------------------------------------------------------------------------


def test_empty_states_say_what_to_do(master, det) -> None:
    assert det("e", "list").stdout == "No experiments yet. Try: det experiment create CONFIG DIR\n"
    assert det("e", "list", "--name", "x").stdout == "No experiments match.\n"
    assert "det agent run" in det("agent", "list").stdout
    assert "det agent run" in det("slot", "list").stdout
    master.add_trial(master.add_experiment().id)
    assert det("t", "metrics", 1).stdout == "No metrics yet.\n"
    assert "no output yet" in det("t", "logs", 1).stderr
    for words in (("e", "list-checkpoints", 1), ("c", "list", 1), ("c", "list", "--trial", 1)):
        assert det(*words).stdout == "No checkpoints yet.\n"
    master.update_trial(1, state=TrialState.CANCELED)
    assert det("c", "list", "--trial", 1).stdout == "Trial 1 has ended (CANCELED) without a checkpoint.\n"
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    for words in (("e", "lc", 1), ("e", "lc", 1, "--best", 2), ("c", "list", 1)):
        assert det(*words).stdout == "Experiment 1 has ended (COMPLETED) without a checkpoint.\n"
    master.add_experiment()
    for words in (("e", "list-trials", 2), ("t", "list", 2)):
        assert det(*words).stdout == "No trials yet.\n"
    assert "no trials yet" in det("e", "logs", 2).stderr


def test_checkpoints_that_are_deleted_are_listed_as_such_and_are_never_the_best(master, det, workplace: Path) -> None:
    master.add_trial(master.add_experiment().id)
    gone, kept = (
        master.add_checkpoint(1, {"w": b"x"}, validation=loss, steps_completed=steps, state=state)
        for loss, steps, state in ((0.1, 9, "DELETED"), (0.5, 2, "COMPLETED"))
    )
    first, second = det("c", "list", 1).stdout.splitlines()[-2:]
    assert gone.uuid in first
    assert "deleted" in first
    assert kept.uuid in second
    assert "deleted" not in second
    assert gone.uuid not in det("e", "lc", 1, "--best", 5).stdout
    for number, words in enumerate((("e", "download", 1), ("t", "download", 1), ("t", "download", 1, "--latest"))):
        assert det(*words, "-o", f"got{number}").exit_code == 0
    assert [path.name for path in (workplace / "got0").iterdir()] == [kept.uuid]
    assert (workplace / "got2" / "w").exists()


def test_a_list_of_the_best_checkpoints_says_when_none_was_validated(master, det) -> None:
    master.add_trial(master.add_experiment().id)
    master.add_checkpoint(1, {"w": b"x"}, steps_completed=3)
    said = "No checkpoint has a value of the searcher metric. List all: det e list-checkpoints 1\n"
    assert det("e", "lc", 1, "--best", 1).stdout == said


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (ExperimentState.ACTIVE, "2 running"),
        (ExperimentState.PAUSED, "2 pausing"),
        (ExperimentState.STOPPING_CANCELED, "2 stopping"),
    ],
)
def test_trials_that_are_leaving_are_not_said_to_run(master, det, state: ExperimentState, word: str) -> None:
    master.add_experiment(trials={"ACTIVE": 2, "RUNNING": 2, "COMPLETED": 1}, trials_total=3, state=state)
    for words in (("e", "list"), ("e", "describe", 1)):
        shown = " ".join(det(*words).stdout.split())
        assert word in shown
        assert ("running" in shown) is (state is ExperimentState.ACTIVE)


def everything(master: FakeMaster, text: str) -> str:
    """Put a text into every place that users can write to; return a checkpoint's id."""
    failure = FailureView(kind="exception", message=text, trial_id=1, rank=1, where=text, log_tail=[text], hint=text)
    best = BestView(trial_id=1, trial_index=0, steps_completed=1, value=float("nan"))
    master.add_experiment(
        text, owner=text, description=text, labels=[text], metric=text, warnings=[text], failure=failure, best=best,
        workspace=text, project=text, pending_reason=text, state=ExperimentState.ERROR, config={text: text},
    )  # fmt: skip
    master.add_trial(
        1, hparams={text: text}, state=TrialState.ERROR, failure=failure, status=text, warnings=[text],
        summary={text: {text: SummaryView(count=1, last=float("inf"))}}, best_validation=float("nan"),
        pending_reason=text, agent_id=text,
    )  # fmt: skip
    master.series[1] = [
        SeriesView(trial_id=1, group=text, name=text, steps=[1, 2], values=[float("nan"), 1.5], times=[1, 2])
    ]
    master.log(1, text, rank=0)
    master.add_agent(text)
    return master.add_checkpoint(1, {"weights.bin": b"x"}, metadata={text: text}, validation=0.5).uuid


def commands(uuid: str) -> list[tuple[object, ...]]:
    return [
        ("e", "list"), ("e", "describe", 1), ("e", "list-trials", 1), ("e", "list-checkpoints", 1),
        ("e", "config", 1), ("t", "list", 1), ("t", "describe", 1), ("t", "metrics", 1), ("c", "list", 1),
        ("c", "describe", uuid), ("agent", "list"), ("slot", "list"), ("u", "whoami"), ("version",),
    ]  # fmt: skip


def test_texts_of_users_neither_control_the_terminal_nor_are_markup(master, det) -> None:
    uuid = everything(master, HOSTILE)
    for words in [*commands(uuid), ("e", "logs", 1), ("t", "logs", 1), ("e", "wait", 1)]:
        result = det(*words)
        for character in result.output:
            assert character == "\n" or character.isprintable(), (words, character)
    assert f"[rank 0] {SHOWN}" in det("t", "logs", 1).stdout
    assert SHOWN in det("e", "describe", 1).stdout


def test_json_is_strict_everywhere(master, det_json) -> None:
    uuid = everything(master, HOSTILE)
    for words in commands(uuid):
        assert det_json(*words)
    assert det_json("e", "list")[0]["name"] == HOSTILE
    assert det_json("t", "metrics", 1)[0]["metrics"] == {HOSTILE: "NaN"}


def test_tables_to_a_pipe_are_not_cut(master, det) -> None:
    name = "a-long-name-" * 8
    master.add_experiment(name)
    assert name in det("e", "list").stdout


def test_a_failure_card_names_what_where_and_next(master, det) -> None:
    failure = FailureView(
        kind="import",
        message="ModuleNotFoundError: No module named 'nonsense'",
        trial_id=1,
        rank=2,
        exit_code=1,
        where="cell 14, line 3",
        log_tail=["Traceback", "ModuleNotFoundError"],
        hint="ship the module",
    )
    master.add_experiment(state=ExperimentState.ERROR, failure=failure)
    master.add_trial(1, state=TrialState.ERROR, failure=failure)
    for words in (("e", "describe", 1), ("t", "describe", 1), ("e", "wait", 1)):
        told = det(*words).output
        assert "Failed (import): ModuleNotFoundError: No module named 'nonsense'" in told
        assert "where: trial 1, rank 2, exit code 1, cell 14, line 3" in told
        assert "    | Traceback" in told
        assert "→ ship the module" in told
        assert "→ det trial logs 1" in told


def test_the_card_of_what_was_stopped_or_waits_is_shown_in_place_of_a_failure(master, det) -> None:
    stopped = FailureView(kind="user_stop", message=HOSTILE, hint="nothing failed", command="det trial logs 1")
    lost = FailureView(kind="lost", message="it was lost", trial_id=1, hint="it goes on", command="det agent list")
    master.add_experiment(state=ExperimentState.CANCELED, card=stopped)
    master.add_trial(1, state=TrialState.ACTIVE, card=lost)
    for words in (("e", "describe", 1), ("e", "wait", 1)):
        told = det(*words).output
        assert f"Stopped (user_stop): {SHOWN}" in told
        assert "  → nothing failed\n  → det trial logs 1\n" in told
    told = det("t", "describe", 1).output
    assert "Interrupted (lost): it was lost" in told
    assert "  → it goes on\n  → det agent list\n" in told


def test_a_search_that_completed_with_failed_trials_says_how_many_why_and_of_whom_the_best_is(master, det) -> None:
    """It was `COMPLETED, 6/6 trials done` and rc 0 everywhere; three had failed, the one with the best among them."""
    first = FailureView(kind="exception", message="ZeroDivisionError: division by zero", trial_id=2)
    best = BestView(trial_id=2, trial_index=1, value=0.18, steps_completed=5, failed=True)
    counts = {"COMPLETED": 3, "ERROR": 3}
    master.add_experiment(state=ExperimentState.COMPLETED, trials=counts, trials_total=6, card=first, best=best)
    waited = det("e", "wait", 1)
    assert waited.exit_code == 0
    for told in (waited.output, det("e", "describe", 1).output):
        assert "6/6 trials done, 3 failed" in told
        assert "3 trials failed, this one first:\nFailed (exception): ZeroDivisionError: division by zero" in told
        assert "(trial 2, which failed" in told
    listed = det("e", "list").output
    assert "6/6, 3 failed" in listed
    assert "0.18 (trial failed)" in listed


def commands_of_cards() -> list[str]:
    """Every command that a card can name, with numbers in place of what is filled in."""
    from detlab_hub.services.failures import cards as failures
    from detlab_hub.services.failures import endings

    found = set()
    for module in (endings, failures):
        text = re.sub(r"\{[^{}]*\}", "1", Path(module.__file__).read_text(encoding="utf-8"))
        found.update(re.findall(r"\bdet (?:trial|task|experiment|agent|queue)[a-z0-9 -]*", text))
    return sorted(one.replace("logs 11", "logs 1 --rank 1").strip() for one in found)


def test_every_command_that_a_card_names_exists() -> None:
    from detlab.cli.root import det

    known = commands_of_cards()
    assert {"det agent list", "det queue", "det trial logs 1", "det trial logs 1 --rank 1"} <= set(known)
    for line in known:
        context, words = click.Context(det), line.split()[1:]
        command: click.Command = det
        while isinstance(command, click.Group):
            _, found, words = command.resolve_command(context, words)
            assert found is not None, line
            command = found
        command.make_context(command.name, words)


def test_warnings_of_an_experiment_are_shown(master, det) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED, warnings=["trial 3 never reported 'val_loss'"])
    for words in (("e", "describe", 1), ("e", "wait", 1)):
        assert "warning: trial 3 never reported 'val_loss'" in det(*words).output


@pytest.mark.parametrize("words", [("e", "wait", 1), ("e", "wait", 1, "--json")])
def test_a_misspelt_searcher_metric_is_a_failure_though_the_experiment_completed(master, det, words) -> None:
    warning = "trial 3 never reported 'val_los' (its validations reported: val_loss)"
    master.add_experiment(state=ExperimentState.COMPLETED, metric="val_los", warnings=[warning])
    result = det(*words)
    assert result.exit_code == 4
    assert f"Error: experiment 1 has no result: {warning}" in result.stderr
    assert "searcher.metric" in result.stderr


def test_an_experiment_all_of_whose_values_are_none_is_marked_in_the_list_and_in_describe(master, det) -> None:
    warning = "no finite value of 'val_loss' was reported"
    master.add_experiment(state=ExperimentState.COMPLETED, metric="val_loss", warnings=[warning])
    assert "COMPLETED (no result)" in det("e", "list").output
    assert f"COMPLETED, but without a result: {warning}" in det("e", "describe", 1).output
    waited = det("e", "wait", 1)
    assert waited.exit_code == 4, "a nightly job must not go on with a search that diverged"
    assert f"Error: experiment 1 has no result: {warning}" in waited.stderr
    assert "learning rate" in waited.stderr


def test_an_infinite_value_is_not_offered_as_the_best(master, det) -> None:
    """Regression: below "no finite value was reported" stood the best one, inf, and how to download its checkpoint."""
    warning = "no finite value of 'val_loss' was reported"
    best = BestView(
        trial_id=3, trial_index=0, value=math.inf, steps_completed=1, checkpoint="a671f11f-0471-8bf6-9c14-d045b4603a7b"
    )
    master.add_experiment(state=ExperimentState.COMPLETED, metric="val_loss", warnings=[warning], best=best)
    waited = det("e", "wait", 1)
    assert f"has no result: {warning}" in waited.output
    assert "Best" not in waited.output
    assert "download" not in waited.output


def test_code_that_validates_nothing_has_not_failed(master, det) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED, warnings=["trial 3 never reported 'val_loss'"])
    assert det("e", "wait", 1).exit_code == 0


def test_trials_as_csv(master, det) -> None:
    master.add_trial(master.add_experiment().id, hparams={"lr": 0.25, "name": "a,b"})
    header, row = det("e", "list-trials", 1, "--csv").stdout.splitlines()
    assert header.startswith("trial_id,index,state,")
    assert header.endswith(",hparams.lr,hparams.name")
    assert row.endswith(',0.25,"a,b"')


# --- many columns -----------------------------------------------------------------------------------------


def add_metrics(master: FakeMaster, count: int) -> None:
    master.add_trial(master.add_experiment().id)
    master.series[1] = [
        SeriesView(trial_id=1, group="training", name=f"loss_{n:05}", steps=[1, 2], values=[0.25, n], times=[1, 2])
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 10, 80, 300, 25_000])
def test_a_table_with_many_columns_stays_readable_and_says_what_it_leaves_out(master, det, count: int) -> None:
    """80 metrics were printed a letter per line, 300 not at all, and 25,000 took 20 GB."""
    add_metrics(master, count)
    result = det("t", "metrics", 1)
    assert result.exit_code == 0
    head, _, *values = result.stdout.splitlines()
    shown = head.split()[2:]
    assert shown == [f"loss_{n:05}" for n in range(len(shown))], "whole names, in one line"
    assert values[0].split() == ["1", "training", *["0.25"] * len(shown)]
    assert len(values) == 2
    assert len(shown) >= min(count, 8)
    if len(shown) == count:
        assert result.stderr == ""
    else:
        left = f"{count - len(shown):,} columns left out (loss_{len(shown):05}, "
        assert left in result.stderr
        assert "det trial metrics 1 --name NAME shows some, --json all" in result.stderr
        assert len(result.stderr) < 500


def test_metrics_are_chosen_by_name(master, det, det_json) -> None:
    add_metrics(master, 300)
    result = det("t", "metrics", 1, "--name", "loss_00299", "--name", "loss_00007")
    assert result.stdout.splitlines()[0].split() == ["Step", "Group", "loss_00007", "loss_00299"]
    assert result.stderr == ""
    assert det("t", "metrics", 1, "--name", "nothing").stdout == "No metrics named nothing.\n"
    assert len(det_json("t", "metrics", 1)[0]["metrics"]) == 300
