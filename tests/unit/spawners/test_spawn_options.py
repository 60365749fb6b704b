"""Options of a server: the form, the REST API's, and every mistake at once."""

import pytest

from detlab.schemas.taskwire import SpawnView, TaskEnd, TaskKind
from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.spawners import form, options, wording

HOSTILE = "\"><script>alert('x')</script>"


def test_the_forms_values_go_into_the_task_config():
    chosen = options.from_form(
        {
            "kind": ["shell"],
            "slots": ["2"],
            "pool": ["gpu"],
            "image": [" img:1 "],
            "runtime": ["docker"],
            "idle_timeout": ["30m"],
            "_xsrf": ["secret"],
            "name": [""],
        }
    )
    assert "_xsrf" not in chosen
    wanted, problems = options.read(chosen)
    assert not problems
    assert wanted.kind is TaskKind.SHELL
    assert wanted.config == {
        "resources": {"slots": 2, "resource_pool": "gpu"},
        "environment": {"image": "img:1"},
        "runtime": "docker",
        "idle_timeout": "30m",
    }


def test_who_names_an_image_wants_a_container():
    wanted, problems = options.read({"image": "img:1"})
    assert not problems
    assert wanted.config["runtime"] == "docker"
    _, problems = options.read({"image": "img:1", "runtime": "process"})
    assert [problem.path for problem in problems] == ["Image"]
    _, problems = options.read({"image": "img:1"}, runtimes=["process"])
    assert [problem.path for problem in problems] == ["Runtime"]


@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_the_only_runtime_of_a_site_is_not_asked_for_and_is_used(runtime):
    assert options.read({}, runtimes=[runtime])[0].config == {"runtime": runtime}


def test_an_empty_form_is_a_notebook_with_the_clusters_defaults():
    assert options.read(options.from_form({"slots": [""], "image": [""]})) == (options.SpawnOptions(), [])


def test_every_kind_of_mistake_is_named_at_once():
    wrong = {
        "kind": "spreadsheet",
        "slots": -1,
        "runtime": "vm",
        "idle_timeout": "soon",
        "colour": "red",
        "name": "a\nb",
        "experiment_ids": ["x"],
        "config": {"bind_mounts": 5},
        "bundle": 7,
    }
    _, problems = options.read(wrong)
    text = "\n".join(map(str, problems))
    for part in ("kind", "Slots", "Runtime", "Idle", "colour", "name", "experiment_ids", "bind_mounts", "bundle"):
        assert part in text, part


@pytest.mark.parametrize("nonsense", [[], "x", 5])
def test_options_that_are_no_object_are_a_mistake(nonsense):
    assert options.read(nonsense)[1]


def test_flat_options_win_over_the_config_and_leave_it_alone():
    config = {"resources": {"slots": 1, "priority": 7}}
    wanted, problems = options.read({"slots": 3, "config": config})
    assert not problems
    assert wanted.config == {"resources": {"slots": 3, "priority": 7}}
    assert config == {"resources": {"slots": 1, "priority": 7}}


def test_a_tensorboard_must_show_something():
    assert options.read({"kind": "tensorboard"})[1]
    wanted, problems = options.read({"kind": "tensorboard", "experiment_ids": [3]})
    assert not problems
    assert wanted.experiment_ids == [3]


def test_a_runtime_that_the_site_does_not_offer_is_a_mistake():
    assert options.read({"runtime": "docker"}, runtimes=["process"])[1]


def test_the_form_escapes_what_comes_from_outside():
    chosen = dict.fromkeys((*options.FIELDS, "kind"), HOSTILE)
    html = form.render(pools=["a", HOSTILE], images=[HOSTILE], runtimes=["process", "docker", HOSTILE], chosen=chosen)
    assert "<script>" not in html
    _, problems = options.read({"kind": HOSTILE, HOSTILE: 1})
    assert "<script>" not in form.problems_html(problems)


def test_what_there_is_no_choice_of_is_not_asked():
    html = form.render(pools=["default"], images=[], runtimes=["process"], chosen={})
    for name in ("pool", "image", "runtime"):
        assert f'name="{name}"' not in html
    for name in ("kind", "slots", "idle_timeout"):
        assert f'name="{name}"' in html
        assert f'for="det-{name}"' in html, "each field has its label"


def test_what_was_chosen_stays_chosen():
    html = form.render(pools=["a", "b"], images=[], runtimes=["process"], chosen={"pool": "b", "slots": "x"})
    assert '<option value="b" selected>' in html
    assert 'value="x"' in html


def test_what_no_node_has_is_closed_with_the_reason():
    why = "no node has <a> container engine now"
    both = {"pools": ["default"], "images": [], "runtimes": ["process", "docker"], "chosen": {"runtime": "docker"}}
    html = form.render(**both, closed={"docker": why, "vm": "is nothing that this site offers"})
    assert '<option value="docker" disabled>' in html
    assert '<option value="process">' in html
    assert 'aria-describedby="det-runtime-help"' in html
    assert "No node has &lt;a&gt; container engine now." in html
    assert "is nothing" not in html
    nobody = form.render(**both, closed=dict.fromkeys(("process", "docker"), "no node is connected now"))
    assert nobody.count("No node is connected now.") == 1
    alone = form.render(pools=["default"], images=[], runtimes=["docker"], chosen={}, closed={"docker": why})
    assert "No node has &lt;a&gt;" in alone, "said where there is no choice, too"
    assert "disabled" not in form.render(**both)


def view(**more):
    return SpawnView(task_id="notebook-1", state=TrialState.ACTIVE, **more)


def test_the_page_says_place_and_reason():
    waiting = view(allocation_state=AllocationState.PENDING, place=2, reason="needs 1 slot: none of 2 free")
    assert wording.progress_of(waiting)[1] == "Waiting in the queue, place 2: needs 1 slot: none of 2 free"
    pulling = view(allocation_state=AllocationState.PULLING, stage_message="pulling img:1, 41 %", agent_id="n1")
    assert wording.progress_of(pulling)[1] == "pulling img:1, 41 %"
    said = "Slurm job 7: Resources, expected to start 2026-11-27 16:00:00"
    elsewhere = view(allocation_state=AllocationState.ASSIGNED, agent_id="login-1", stage_message=said)
    assert wording.progress_of(elsewhere)[1] == said, "it waits in the cluster's own queue, which has no room yet"
    percents = [wording.progress_of(view(allocation_state=state))[0] for state in list(AllocationState)[:5]]
    assert percents == sorted(percents)


def test_a_failure_shows_reason_and_tail_escaped():
    ended = SpawnView(
        task_id="notebook-1",
        state=TrialState.ERROR,
        end_reason=TaskEnd.FAILED,
        exit_code=1,
        reason=HOSTILE,
        log_tail=["first", HOSTILE],
    )
    failure = wording.failure_of(ended)
    assert failure.jupyterhub_message.startswith("The server failed. Exit code 1.")
    assert "first" in failure.jupyterhub_message
    assert "<script>" not in failure.jupyterhub_html_message
    assert "<pre" in failure.jupyterhub_html_message
    assert failure.reason == "failed"


@pytest.mark.parametrize(("end", "status"), [("completed", 0), ("killed", 0), ("lost", 1), ("failed", 1)])
def test_an_end_without_an_exit_code_has_a_status(end, status):
    ended = SpawnView(task_id="notebook-1", state=TrialState.ERROR, end_reason=TaskEnd(end))
    assert wording.status_of(ended) == status


def test_a_mistake_names_its_field_as_the_form_does():
    html = form.render(pools=["a", "b"], images=[], runtimes=["process", "docker"], chosen={})
    wrong = {"slots": "-1", "runtime": "vm", "idle_timeout": "soon"}
    _, problems = options.read(wrong, runtimes=["process", "docker"])
    assert sorted(problem.path for problem in problems) == ["Idle timeout", "Runtime", "Slots"]
    for problem in problems:
        assert f">{problem.path}</label>" in html, problem.path
