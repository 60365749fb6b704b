"""`det notebook` against a fake master: starting, opening, and configs with mistakes."""

import json
import threading
from pathlib import Path

import pytest

from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import FailureView, ProblemView


def test_notebook_start_prints_the_address(master, det, comes_up) -> None:
    result = det("notebook", "start", "--slots", "1", "--name", "mine", "--no-open")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"Notebook notebook-0001: {master.url}/user/alice/notebook-0001/lab\n"
    assert result.stderr == "Notebook notebook-0001: running on node1\n"
    (asked,) = master.asked
    assert (asked.kind, asked.name, asked.config) == (TaskKind.NOTEBOOK, "mine", {"resources": {"slots": 1}})


def test_notebook_start_tells_place_and_reason(master, det) -> None:
    def queued(view):
        master.update_task(view.id, place=3, pending_reason="all 2 slots are in use", allocation_state="PENDING")

        def goes_on() -> None:
            master.await_request("GET", "stream")
            master.update_task(view.id, place=1, pending_reason="the next slot is for it")
            master.update_task(
                view.id, place=None, pending_reason=None, allocation_state="PULLING", display_state="PULLING",
                agent_id="node-1", stage_message="pulling torch:2.10, 41 %",
            )  # fmt: skip
            master.bring_up(view.id)

        threading.Thread(target=goes_on, daemon=True).start()

    master.on_create = queued
    result = det("notebook", "start", "--no-open")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == ("Notebook notebook-0001: in the queue, position 3: all 2 slots are in use")
    assert "/user/alice/notebook-0001/lab" in result.stdout


def test_a_missed_event_is_made_up_for_by_the_keep_alive(master, det) -> None:
    """What changed between the look and the stream, or without an event, is found when the stream falls silent."""

    def later(view):
        def up_without_a_word() -> None:
            master.await_request("GET", "stream")
            with master.changed:
                known = master.events
                master.bring_up(view.id)
                master.events = known[:-1]

        threading.Thread(target=up_without_a_word, daemon=True).start()

    master.on_create = later
    result = det("notebook", "start", "--no-open")
    assert result.exit_code == 0, result.output


def test_notebook_that_ends_while_it_starts_shows_its_card(master, det) -> None:
    failure = FailureView(
        kind="image", message="the image registry.example/nope:1 is not known", hint="docker images", log_tail=["pull"]
    )
    master.on_create = lambda view: master.end_task(view.id, 125, failure=failure)
    result = det("notebook", "start", "--image", "registry.example/nope:1")
    assert result.exit_code == 125
    assert "Failed (image): the image registry.example/nope:1 is not known" in result.stderr
    assert "  → docker images" in result.stderr
    assert "  → det notebook logs notebook-0001" in result.stderr
    assert result.stdout == ""


def test_notebook_start_detached_names_the_next_commands(master, det) -> None:
    result = det("notebook", "start", "--detach")
    assert result.exit_code == 0
    assert "det notebook open notebook-0001" in result.stdout
    assert ("GET", "stream") not in master.requests


def test_notebook_start_as_json(master, det_json, comes_up) -> None:
    told = det_json("notebook", "start")
    assert (told["id"], told["address"]) == ("notebook-0001", f"{master.url}/user/alice/notebook-0001/lab")
    assert det_json("notebook", "start", "--detach")["display_state"] == "RUNNING"


def test_an_image_means_a_container(master, det) -> None:
    det("notebook", "start", "--image", "torch:2", "--detach")
    assert master.asked[0].config == {"environment": {"image": "torch:2"}, "runtime": "docker"}
    result = det("notebook", "start", "--image", "torch:2", "--runtime", "process")
    assert result.exit_code == 2
    assert "--image needs a container" in result.stderr


def test_the_config_of_file_overrides_and_options(master, det, workplace: Path) -> None:
    (workplace / "nb.yaml").write_text("idle_timeout: 30m\nresources: {slots: 4, priority: 50}\n")
    words = ("--config-file", "nb.yaml", "-c", "resources.slots=3", "--config", "work_dir=/tmp", "--slots", "2")
    assert det("notebook", "start", "--detach", *words, "--idle-timeout", "never").exit_code == 0
    assert master.asked[0].config == {
        "idle_timeout": "never",
        "resources": {"slots": 2, "priority": 50},
        "work_dir": "/tmp",
    }


def test_a_config_with_every_kind_of_mistake_names_all_of_them_at_once(master, det, workplace: Path) -> None:
    (workplace / "bad.yaml").write_text(
        "resources: {slots: -1, priority: 200, slotz: 1}\nidle_timeout: soon\nruntime: a podman\n"
        "bind_mounts: [{host_path: here, container_path: /x}]\nenviroment: {}\n"
    )
    result = det("notebook", "start", "--config-file", "bad.yaml", "-c", "nonsense", "-c", "runtime.x=1")
    assert result.exit_code == 2
    assert "Error: the task config has 9 errors" in result.stderr, result.stderr
    for path in (
        "resources.slots:", "resources.priority:", "resources.slotz: unknown key", "idle_timeout:", "runtime:",
        "bind_mounts[0].host_path:", "enviroment: unknown key", "nonsense:", "runtime: is not a mapping",
    ):  # fmt: skip
        assert path in result.stderr, (path, result.stderr)
    assert "did you mean" in result.stderr
    assert master.requests == []
    told = det("notebook", "start", "--config-file", "bad.yaml", "--json")
    assert told.exit_code == 2
    assert {"resources.slots", "idle_timeout", "runtime"} <= {
        item["path"] for item in json.loads(told.stdout)["problems"]
    }


def test_mistakes_that_only_the_master_knows(master, det) -> None:
    master.problems = [ProblemView(path="resources.resource_pool", message="there is no pool 'gpu'", hint="default")]
    result = det("notebook", "start", "--resource-pool", "gpu")
    assert result.exit_code == 2
    assert "resources.resource_pool: there is no pool 'gpu' (default)" in result.stderr


def test_config_files_that_cannot_be_used(master, det, workplace: Path) -> None:
    assert "nowhere.yaml cannot be read" in det("notebook", "start", "--config-file", "nowhere.yaml").stderr
    (workplace / "list.yaml").write_text("- 1\n")
    result = det("shell", "start", "--config-file", "list.yaml")
    assert result.exit_code == 2
    assert "must be a mapping" in result.stderr


def test_open_waits_for_what_is_not_up_yet(master, det) -> None:
    view = master.add_task("notebook")

    def goes_up() -> None:
        master.await_request("GET", "stream")
        master.bring_up(view.id)

    threading.Thread(target=goes_up, daemon=True).start()
    result = det("nb", "open", view.id, "--no-open")
    assert result.exit_code == 0, result.output
    assert f"/user/alice/{view.id}/lab" in result.stdout


def test_open_what_is_over_names_the_next_command(master, det) -> None:
    view = master.add_task("notebook")
    master.end_task(view.id, 0, end_reason="idle")
    result = det("notebook", "open", view.id)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == f"Error: the notebook {view.id} has ended (idle)"
    assert "det notebook start" in result.stderr


@pytest.mark.timeout(60)
def test_what_another_member_has_started_is_refused_and_not_waited_for(master, det) -> None:
    for words in (
        ("notebook", "open"),
        ("tensorboard", "open"),
        *(("shell", verb) for verb in ("open", "ssh-config", "show-ssh-command", "proxy")),
    ):
        view = master.add_task(words[0])
        master.bring_up(view.id)
        master.update_task(view.id, owner="ada", opens=False, may="read", url=None, server_name=None)
        result = det(*words, view.id)
        assert result.exit_code == 1, words
        assert "is ada's: members of its workspace see its state, and only ada opens it" in result.stderr
        assert ("GET", "stream") not in master.requests, "it never comes up here"


def test_an_address_that_leads_elsewhere_is_not_opened(master, det) -> None:
    view = master.add_task("notebook")
    master.bring_up(view.id)
    for url in ("//evil.example/x", "https://evil.example", "javascript:alert(1)"):
        master.update_task(view.id, url=url)
        result = det("notebook", "open", view.id)
        assert result.exit_code == 1
        assert "not a path of the Hub" in result.stderr
