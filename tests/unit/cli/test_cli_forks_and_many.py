"""`det experiment fork | continue | retry`, and acts on many experiments, against a scripted master."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detlab.cli.commands.experiments.batches import IDS, spec_of
from detlab.schemas.expconf.raw.loading import load_yaml
from detlab.schemas.wire import ExperimentState

CONFIG = {
    "name": "digits",
    "entrypoint": "true",
    "searcher": {"name": "single", "metric": "x"},
    "workspace": "old/name",
}
CODE = "tree:" + "a" * 64


@pytest.fixture
def forked(master):
    """Experiment 1, in a workspace of ada's."""
    master.add_experiment(
        config=CONFIG, bundle=CODE, owner="ada", workspace="vision", project="digits", state=ExperimentState.COMPLETED
    )
    return master


def test_a_fork_has_config_and_code_and_lies_beside_the_earlier_one(forked, det) -> None:
    done = det("e", "fork", 1, "--config", "hyperparameters.lr=0.1", "--name", "again", "--paused")
    assert done.stdout.splitlines()[0] == "Created experiment 2, a fork of experiment 1"
    assert "det experiment activate 2" in done.stdout
    [made] = forked.submitted
    assert made.config == {
        **CONFIG, "workspace": "ada/vision", "project": "digits", "name": "again", "hyperparameters": {"lr": 0.1}
    }  # fmt: skip
    assert (made.bundle, made.forked_from, made.activate) == (CODE, 1, False)


def test_who_may_only_read_it_forks_it_into_their_own_workspace(forked, det) -> None:
    forked.experiments[1] = forked.experiments[1].model_copy(update={"may": "read"})
    assert det("e", "fork", 1).exit_code == 0
    assert not {"workspace", "project"} & set(forked.submitted[0].config)
    assert det("e", "fork", 1, "-w", "ben/own", "--project", "p").exit_code == 0
    assert forked.submitted[1].config["workspace"] == "ben/own"
    assert forked.submitted[1].config["project"] == "p"


def test_another_workspace_takes_no_project_of_the_first(forked, det) -> None:
    assert det("e", "fork", 1, "-w", "ada/other").exit_code == 0
    assert forked.submitted[0].config["workspace"] == "ada/other"
    assert "project" not in forked.submitted[0].config


def test_a_fork_with_other_code_sends_it(forked, det, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    assert det("e", "fork", 1, "--code", tmp_path).exit_code == 0
    [made] = forked.submitted
    assert made.bundle not in (CODE, None)
    assert made.forked_from == 1


def test_a_config_file_takes_precedence_and_k_v_over_that(forked, det, tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text("name: of the file\nmax_restarts: 1\n")
    assert det("e", "fork", 1, "--config-file", file, "--config", "max_restarts=2").exit_code == 0
    [made] = forked.submitted
    assert (made.config["name"], made.config["max_restarts"], made.config["entrypoint"]) == ("of the file", 2, "true")


def test_the_editor_gets_the_config_and_what_it_saves_is_sent(forked, det, monkeypatch) -> None:
    seen = []

    def edit(text: str, extension: str) -> str:
        seen.append(text)
        return text.replace("name: digits", "name: by hand")

    monkeypatch.setattr("click.edit", edit)
    assert det("e", "fork", 1, "-e", "--config", "max_restarts=0").exit_code == 0
    assert "max_restarts: 0" in seen[0]
    assert forked.submitted[0].config["name"] == "by hand"
    assert forked.submitted[0].forked_from == 1
    monkeypatch.setattr("click.edit", lambda text, extension: None)
    assert det("e", "fork", 1, "-e").exit_code == 130
    monkeypatch.setattr("click.edit", lambda text, extension: "a: [")
    assert det("e", "fork", 1, "-e").exit_code == 2
    assert len(forked.submitted) == 1


def test_texts_that_look_like_numbers_stay_texts_in_the_editor_and_in_a_printed_config(
    forked, det, monkeypatch
) -> None:
    words = ["1e3", "0o17", "1e-3", "on", "12:30:45", "0.5"]
    forked.experiments[1] = forked.experiments[1].model_copy(update={"config": {**CONFIG, "labels": words}})
    monkeypatch.setattr("click.edit", lambda text, extension: text)
    assert det("e", "fork", 1, "-e").exit_code == 0
    assert forked.submitted[0].config["labels"] == words
    config, problems = load_yaml(det("e", "config", 1).stdout)
    assert (config["labels"], problems) == (words, [])


def test_what_it_is_a_fork_of_is_shown(forked, det) -> None:
    forked.add_experiment(forked_from=1)
    assert "forked from  experiment 1" in det("e", "describe", 2).stdout


def test_continue_sends_what_changes(forked, det) -> None:
    words = ("--max-length", "{epochs: 40}", "--config", "max_restarts=3", "--trial", 9, "--from-earlier")
    assert det("e", "continue", 1, *words).stdout == "Experiment 1 goes on: ACTIVE\n"
    [sent] = forked.continued
    assert sent.config == {"max_restarts": 3, "searcher": {"max_length": {"epochs": 40}}}
    assert (sent.trial_ids, sent.from_earlier) == ([9], True)
    det("e", "continue", 1, "--max-length", 40)
    assert forked.continued[1].config == {"searcher": {"max_length": 40}}
    assert forked.continued[1].idempotency_key != sent.idempotency_key


def test_retry_is_that_of_the_search(forked, det) -> None:
    assert det("e", "retry", 1, 4, 5).exit_code == 0
    assert [(one.act, one.trial_ids) for one in forked.steered] == [("retry", [4, 5])]


# --- many


@pytest.mark.parametrize(
    ("text", "ids"), [("7", (7,)), ("1-3,7", (1, 2, 3, 7)), ("3,1-3", (3, 1, 2)), ("5-5", (5,)), ("1,2,", (1, 2))]
)
def test_ids_are_read(text, ids) -> None:
    assert IDS.convert(text, None, None) == ids


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1--2", "1,,2", "3-1", "1-1000000000", "1.5", "٣", "9" * 30])
def test_what_is_no_id_is_refused(master, det, text) -> None:
    refused = det("e", "archive", "--", text)
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output


def test_ids_are_written_as_they_are_read() -> None:
    assert spec_of([7, 3, 1, 2, 2]) == "1-3,7"
    assert IDS.convert(spec_of(range(1, 500)), None, None) == tuple(range(1, 500))


@pytest.fixture
def five(master):
    for number in range(5):
        master.add_experiment(
            name=f"n{number}", state=ExperimentState.COMPLETED if number != 2 else ExperimentState.ACTIVE
        )
    return master


def test_a_range_is_done_in_parts_each_with_its_answer_and_the_undo(five, det) -> None:
    done = det("e", "archive", "1-5,9")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "Experiment 1: archived", "Experiment 2: archived", "Experiment 4: archived", "Experiment 5: archived",
        "4 experiments archived, 2 not",
    ]  # fmt: skip
    assert "Experiment 3: not archived: experiment 3 is ACTIVE" in done.stderr
    assert "Experiment 9: not archived: there is no experiment 9" in done.stderr
    assert "→ undo: det experiment unarchive 1-2\n→ undo: det experiment unarchive 4-5" in done.stderr
    back = det("e", "unarchive", "1-2,4-5")
    assert back.exit_code == 0
    assert all(one.archived_at is None for one in five.experiments.values())


def test_a_filter_is_listed_and_asked_for_before_anything_is_done(five, det) -> None:
    listed = det("e", "archive", "--filter", "state = COMPLETED", "--dry-run")
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:]] == ["5", "4", "3", "2", "1"]
    asked = det("e", "archive", "--filter", "state = COMPLETED")
    assert asked.exit_code == 2
    assert "add --yes" in asked.stderr
    assert all(one.archived_at is None for one in five.experiments.values())
    done = det("e", "archive", "--filter", "state = COMPLETED", "--yes")
    assert "4 experiments archived, 1 not" in done.stdout


def test_deleting_a_range_asks(five, det) -> None:
    assert det("e", "delete", "1-2").exit_code == 2
    assert len(five.experiments) == 5
    assert det("e", "delete", "1-2", "--yes").exit_code == 0
    assert sorted(five.experiments) == [3, 4, 5]


def test_labels_and_moves_take_ranges_and_filters(five, det) -> None:
    assert det("e", "label", "add", "1-2", "a", "b").exit_code == 0
    assert det("e", "label", "add", "--filter", "owner = x", "--yes", "c").exit_code == 0
    assert [one.labels for one in five.experiments.values()] == [["a", "b", "c"]] * 2 + [["c"]] * 3
    assert det("e", "move", "1-2", "ada/vision", "digits").exit_code == 0
    assert det("e", "move", "1-2", "a", "b", "c").exit_code == 2
    assert det("e", "label", "add", 1).exit_code == 2


@pytest.mark.parametrize("words", [("archive",), ("archive", 1, "--filter", "x = 1"), ("kill",), ("delete", "--yes")])
def test_which_experiments_must_be_said_in_one_way(five, det, words) -> None:
    refused = det("e", *words)
    assert refused.exit_code == 2
    assert "--filter" in refused.stderr


def test_json_has_what_became_of_each(five, det) -> None:
    found = json.loads(det("e", "archive", "1,3", "--json").stdout)
    assert [(one["id"], one["result"]) for one in found["items"]] == [(1, "done"), (3, "refused")]
    assert found["undo"][0]["act"] == "unarchive"


def test_a_text_that_was_replaced_can_be_set_again(five, det) -> None:
    assert "→ undo: det experiment set name 1 n0" in det("e", "set", "name", 1, "it is '2'").stderr
    assert """→ undo: det experiment set name 1 'it is '"'"'2'"'"''""" in det("e", "set", "name", 1, "x").stderr
    assert "undo" not in det("e", "set", "description", 1, "first").stderr
    assert "→ undo: det experiment unarchive 1" in det("e", "archive", 1).stderr


def test_what_was_so_before_is_not_counted_as_done(five, det) -> None:
    """`unarchive 2-5` of four that were not archived: "4 experiments unarchived"."""
    done = det("e", "unarchive", "1-2,4-5")
    assert done.stdout.splitlines()[-1] == "0 experiments unarchived, 4 before"
    assert "undo" not in done.stderr
    alone = det("e", "unarchive", 1)
    assert (alone.stdout, "undo" in alone.stderr) == ("Experiment 1: unarchived before\n", False)
    assert "undo: det experiment archive 1" not in det("e", "archive", 1).stderr
    assert det("e", "archive", 1).stdout == "Experiment 1: archived before\n"


def test_an_empty_list_says_that_archived_ones_are_hidden(five, det) -> None:
    for number in five.experiments:
        five.update_experiment(number, archived_at=1.0)
    assert det("e", "list").stdout == "5 archived experiments are hidden: --all shows them.\n"


def test_a_key_of_ones_own_that_the_earlier_experiment_lacks_is_named(forked, det) -> None:
    """A mistyped hyperparameter was accepted without a word, and the fork ran as the earlier one had."""
    forked.update_experiment(
        1, config={**CONFIG, "hyperparameters": {"mode": "bad", "lr": {"type": "log", "minval": 1}}}
    )
    told = det("e", "fork", 1, "--config", "hyperparameters.mdoe=ok", "--paused").stderr
    assert told == "hyperparameters.mdoe is new: did you mean hyperparameters.mode, which stays as it is?\n"
    changed = det(
        "e", "fork", 1, "--config", "hyperparameters.mode=ok", "--config", "hyperparameters.lr=0.1", "--paused"
    )
    assert "is new" not in changed.stderr


# --- several that were named one by one


@pytest.fixture
def some(master):
    """An experiment that runs, one that has ended, a trial and a checkpoint of the first, and an agent."""
    running = master.add_experiment(state=ExperimentState.ACTIVE)
    master.add_experiment(state=ExperimentState.COMPLETED)
    trial = master.add_trial(running.id)
    master.checkpoint_of_it = master.add_checkpoint(trial.id, {"weights": b"w"}).uuid
    master.add_agent("node1")
    return master


@pytest.mark.parametrize(
    ("words", "unknown", "known", "refused", "done"),
    [
        ("experiment pause", "99", "1", "Experiment 99: ", "Experiment 1: "),
        ("experiment kill", "99", "1", "Experiment 99: ", "Experiment 1: "),
        ("experiment archive", "99", "2", "Experiment 99: ", "Experiment 2: archived"),
        ("experiment delete --yes", "99", "2", "Experiment 99: ", "Deleted experiment 2"),
        ("trial kill", "99", "1", "Trial 99: ", "Trial 1: "),
        ("checkpoint delete --yes", "0" * 32, "CHECKPOINT", "Checkpoint 000", "Deleted checkpoint "),
        ("checkpoint bookmark", "0" * 32, "CHECKPOINT", "Checkpoint 000", "bookmarked"),
        ("agent disable", "node9", "node1", "Agent node9: ", "Agent node1: "),
    ],
)
def test_what_is_refused_for_one_is_said_for_it_and_the_others_are_done(
    some, det, words: str, unknown: str, known: str, refused: str, done: str
) -> None:
    known = known.replace("CHECKPOINT", str(some.checkpoint_of_it))
    both = det(*words.split(), unknown, known)
    assert both.exit_code == 1, both.output
    assert both.stderr.startswith(refused), both.stderr
    assert done in both.stdout, both.output


def test_of_a_single_one_the_error_is_a_block_as_always(some, det) -> None:
    alone = det("experiment", "pause", 99)
    assert alone.exit_code == 1
    assert alone.stderr.startswith("Error: ")
