"""Memory and processors of a container: where they are written, what is refused, and what a process makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.errors import ConfigError
from detlab.schemas import expconf, taskconf
from detlab.schemas.expconf import check, resolve, unsupported_keys
from detlab.schemas.publish import json_schema
from detlab.schemas.taskwire import TaskKind


def problems(resources: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(one.path, one.message, one.hint) for one in check({"resources": resources})]


def test_limits_of_an_experiment_are_resolved_and_published() -> None:
    resources = resolve({"resources": {"memory": "1.5G", "cpus": 2}})["resources"]
    assert (resources["memory"], resources["cpus"]) == (1610612736, 2.0)
    assert not {"memory", "cpus"} & set(resolve({})["resources"]), "Determined's own config has neither"
    published = json_schema()["$defs"]["ResourcesConfig"]["properties"]
    assert {"type": "string"}.items() <= published["memory"]["anyOf"][1].items()
    assert "cpus" in published


@pytest.mark.parametrize(
    ("resources", "path", "said"),
    [
        ({"memory": 8}, "resources.memory", "8 bytes"),
        ({"memory": "1K"}, "resources.memory", "no task can start"),
        ({"memory": "lots"}, "resources.memory", "memory size"),
        ({"memory": -1}, "resources.memory", "0"),
        ({"memory": [1]}, "resources.memory", "whole number"),
        ({"cpus": 0}, "resources.cpus", "0.01"),
        ({"cpus": "2"}, "resources.cpus", "number"),
        ({"cpus": float("nan")}, "resources.cpus", "finite"),
        ({"cpus": True}, "resources.cpus", "number"),
        ({"cpu": 2}, "resources.cpu", "unknown key"),
    ],
)
def test_limits_that_make_no_sense_are_named_for_experiments_and_tasks(
    resources: dict[str, Any], path: str, said: str
) -> None:
    (found,) = problems(resources)
    assert found[0] == path
    assert said in found[1]
    (task,) = taskconf.check({"resources": resources, "entrypoint": "true"}, TaskKind.COMMAND)
    assert (task.path, task.message) == found[:2]


def test_limits_without_a_unit_say_how_to_write_one() -> None:
    (found,) = problems({"memory": 8})
    assert found[2] == 'write a unit, such as "8G"'


def test_limits_of_zero_memory_are_none() -> None:
    assert problems({"memory": 0}) == []


def test_limits_of_a_process_are_warned_about_and_those_of_a_container_are_not() -> None:
    raw = {"entrypoint": "true", "resources": {"memory": "1G", "cpus": 1, "shm_size": "1G"}}
    task = taskconf.parse(raw, TaskKind.COMMAND)
    named = {"resources.memory", "resources.cpus", "resources.shm_size"}
    found = taskconf.unsupported(task, "process", TaskKind.COMMAND)
    assert {one.path for one in found} == named
    assert {one.level for one in found} == {"warning"}
    assert taskconf.unsupported(task, "docker", TaskKind.COMMAND) == []
    experiment = expconf.parse({**raw, "searcher": {"name": "single", "metric": "x"}})
    assert {one.path for one in unsupported_keys(experiment)} == named
    assert unsupported_keys(experiment, runtime="docker") == []


def test_limits_of_a_task_are_all_judged_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        taskconf.parse({"resources": {"memory": 3, "cpus": -1, "slots": -2}}, TaskKind.SHELL)
    assert {one.path for one in caught.value.problems} == {"resources.memory", "resources.cpus", "resources.slots"}


@pytest.mark.parametrize("kind", list(TaskKind))
def test_what_is_for_servers_is_warned_about_where_a_task_runs_to_its_end(kind: TaskKind) -> None:
    raw = {"entrypoint": "true", "idle_timeout": "2h", "work_dir": "/data"}
    found = taskconf.unsupported(taskconf.parse(raw, kind), "process", kind)
    assert [problem.path for problem in found] == ([] if kind.served_by_hub else ["idle_timeout", "work_dir"])
    assert {problem.level for problem in found} <= {"warning"}


def test_constraints_of_agents_are_read_and_left_out_where_there_are_none() -> None:
    raw = {"constraints": {"gpu": "H100", "memory": "40G", "labels": {"rack": "r7"}}}
    found = resolve({"resources": raw})["resources"]["constraints"]
    assert (found["gpu"], found["memory"], found["labels"]) == ("H100", 40 << 30, {"rack": "r7"})
    assert "constraints" not in resolve({})["resources"], "Determined's own config has none"
    made = taskconf.parse({"resources": {"slots": 1, **raw}}, TaskKind.SHELL).model_dump(mode="json")
    assert made["resources"]["constraints"]["memory"] == 40 << 30


def test_a_mistake_in_constraints_has_its_path() -> None:
    found = check({"resources": {"constraints": {"slot_type": "tpu", "gpus": 1, "memory": "much"}}})
    assert {problem.path for problem in found} >= {
        "resources.constraints.slot_type",
        "resources.constraints.gpus",
        "resources.constraints.memory",
    }


RULES = {
    "required": [{"label": "zone", "one_of": ["a", "b"]}, {"label": "spot", "exists": False}],
    "preferred": [{"label": "disk", "none_of": ["sata"], "weight": 50}, {"label": "near", "exists": True}],
}


def test_rules_for_labels_are_read_and_left_out_where_there_are_none() -> None:
    found = resolve({"resources": {"constraints": {"affinity": RULES}}})["resources"]["constraints"]
    assert found["affinity"] == {**RULES, "preferred": [RULES["preferred"][0], {**RULES["preferred"][1], "weight": 1}]}
    assert "affinity" not in resolve({"resources": {"constraints": {"gpu": "A10"}}})["resources"]["constraints"]
    made = taskconf.parse({"resources": {"constraints": {"affinity": RULES}}}, TaskKind.SHELL).model_dump(mode="json")
    assert made["resources"]["constraints"]["affinity"] == found["affinity"]


def test_all_mistakes_in_rules_for_labels_are_said_each_with_its_path() -> None:
    required = [
        {"label": "zone"},
        {"label": "zone", "one_of": ["x"], "none_of": ["y"], "exists": True},
        {"label": "", "one_of": []},
        {"lable": "zone", "one_of": "a"},
        {"label": "zone", "one_of": ["a", 1]},
    ]
    preferred = [{"label": "a", "exists": True, "weight": 101}, {"label": "a", "exists": "no", "weight": 0}]
    raw = {"constraints": {"affinity": {"required": required, "preferred": preferred, "prefered": []}}}
    wrong = {
        "required[0].exists",
        "required[1].none_of",
        "required[1].exists",
        "required[2].label",
        "required[2].one_of",
        "required[3].label",
        "required[3].lable",
        "required[3].one_of",
        "required[4].one_of[1]",
        "preferred[0].weight",
        "preferred[1].exists",
        "preferred[1].weight",
        "prefered",
    }
    expected = {f"resources.constraints.affinity.{path}" for path in wrong}
    assert {problem.path for problem in check({"resources": raw})} == expected
    assert {problem.path for problem in taskconf.check({"resources": raw}, TaskKind.SHELL)} == expected


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"resources": {"constraints": {"gpus": 1}}}, "resources.constraints.gpus"),
        ({"resources": {"devices": [{"host": "/dev/x"}]}}, "resources.devices[0].host"),
        ({"bind_mounts": [{"host_path": "/a", "container_path": "/b", "rw": True}]}, "bind_mounts[0].rw"),
        ({"environment": {"image": {"cdua": "x"}}}, "environment.image.cdua"),
    ],
)
def test_an_unknown_key_deep_in_a_tasks_config_is_a_problem_and_no_crash(raw: dict[str, Any], path: str) -> None:
    assert path in {problem.path for problem in taskconf.check(raw, TaskKind.SHELL)}
    with pytest.raises(ConfigError, match="unknown key"):
        taskconf.parse(raw, TaskKind.SHELL)
