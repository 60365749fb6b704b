"""`det config import` of Katib Experiments: what each part becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.errors import ConfigError
from detlab.schemas.expconf import load_yaml
from detlab.schemas.expconf.blocks.searchers import BUILT_IN
from detlab.schemas.imports import Imported, import_config
from detlab.schemas.imports.katib.search import ALGORITHMS
from detlab.schemas.imports.katib.trials import quantity

FILES = Path(__file__).parent / "files"


def imported(name: str) -> Imported:
    return import_config(load_yaml((FILES / f"{name}.yaml").read_text(encoding="utf-8"))[0])


def experiment(algorithm: str = "random", *parameters: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rate = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.5"}}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": algorithm, "algorithmSettings": spec.pop("settings", [])},
            "maxTrialCount": 20,
            "parameters": list(parameters) or [rate],
            **spec,
        },
    }


def space(kind: str, **feasible: Any) -> dict[str, Any]:
    return {"name": "x", "parameterType": kind, "feasibleSpace": feasible}


def searched(raw: dict[str, Any]) -> Any:
    return import_config(raw).config["hyperparameters"]["x"]


def mistakes(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        import_config(raw)
    return {problem.path: problem.message for problem in refused.value.problems}


def why(result: Imported, path: str) -> str:
    return next(note.why for note in result.notes if note.path == path)


def test_a_job_becomes_a_command_in_its_image():
    config = imported("katib_job").config
    assert config["entrypoint"] == [
        *("python3", "-m", "detlab.launch.hparams", "--"),
        *("python3", "/opt/train.py", "--lr=${hparams.lr}", "--hidden=${hparams.hidden}", "--cell=${hparams.cell}"),
    ]
    assert config["environment"] == {
        "image": "registry.example.org/speech:4",
        "environment_variables": ["OMP_NUM_THREADS=1"],
    }
    assert config["resources"] == {"slots_per_trial": 1, "cpus": 0.5, "memory": 4 * 1024**3}
    assert (config["runtime"], config["name"], config["labels"]) == ("docker", "vowels", ["team=asr"])
    assert config["reproducibility"] == {"experiment_seed": 7}
    assert config["searcher"] == {
        "name": "bayesian",
        "metric": "val_acc",
        "smaller_is_better": False,
        "max_trials": 20,
        "max_concurrent_trials": 2,
        "goal": 0.97,
    }
    assert config["hyperparameters"]["lr"] == {"type": "log", "base": 10, "minval": -4.0, "maxval": -1.0}


def test_a_distributed_job_takes_the_slots_of_all_its_replicas():
    result = imported("katib_hyperband")
    assert result.config["resources"] == {"slots_per_trial": 8, "cpus": 2.0}
    assert result.config["entrypoint"][:9] == [
        *("python3", "-m", "detlab.launch.hparams", "--", "env", "NOISE=${hparams.noise}"),
        *("python3", "-m", "detlab.launch.torch_distributed"),
    ]
    assert result.config["entrypoint"][-1] == "--run=trial-${env.DET_TRIAL_ID}"
    assert result.config["environment"]["force_pull_image"] is True


def test_hyperband_names_its_resource_as_the_time_metric():
    config = imported("katib_hyperband").config
    searcher = config["searcher"]
    assert searcher["name"] == "hyperband"
    assert (searcher["time_metric"], searcher["max_time"], searcher["divisor"]) == ("epochs", 27, 4)
    assert config["hyperparameters"]["epochs"] == 27
    assert config["hyperparameters"]["units"] == {"type": "int", "minval": 8, "maxval": 512, "log": True}


def test_a_grid_has_the_points_that_the_steps_make():
    config = imported("katib_grid").config
    assert config["hyperparameters"] == {
        "lr": {"type": "double", "minval": 0.1, "maxval": 0.3, "count": 3},
        "layers": {"type": "int", "minval": 1, "maxval": 4, "count": 4},
    }
    assert "entrypoint" not in config
    assert config["searcher"]["max_trials"] == 12


def test_what_is_left_to_do_names_the_time_metric_that_code_has_to_report():
    result = imported("katib_hyperband")
    metric = result.config["searcher"]["time_metric"]
    assert [line for line in result.to_do if line.startswith(f"report {metric!r}, the searcher's time_metric")]


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"hyperband"}))
def test_every_algorithm_becomes_a_method_that_there_is(name):
    result = import_config(experiment(name))
    assert result.config["searcher"]["name"] == ALGORITHMS[name].method
    assert ALGORITHMS[name].method in BUILT_IN


def test_sobol_stays_sobol() -> None:
    settings = [{"name": "random_state", "value": "3"}]
    result = import_config(experiment("sobol", settings=settings))
    assert result.config["searcher"]["name"] == "sobol"
    assert result.config["reproducibility"] == {"experiment_seed": 3}
    (note,) = (note for note in result.notes if note.path == "spec.algorithm.algorithmName")
    assert note.outcome == "kept"


def test_a_setting_without_a_counterpart_is_named_by_its_place():
    settings = [{"name": "n_startup_trials", "value": "5"}, {"name": "gamma", "value": "0.25"}]
    result = import_config(experiment("tpe", settings=settings))
    assert result.config["searcher"]["startup_trials"] == 5
    assert why(result, "spec.algorithm.algorithmSettings[1]") == "gamma: tpe has no such setting"


def test_a_step_stays_a_step():
    stepped = searched(experiment("random", space("int", min="8", max="20", step="5")))
    assert stepped == {"type": "int", "minval": 8, "maxval": 18, "step": 5}


def test_integers_on_a_logarithmic_scale_stay_there_unless_they_have_a_step() -> None:
    found = import_config(experiment("random", space("int", min="1", max="1000", distribution="logUniform")))
    assert found.config["hyperparameters"]["x"] == {"type": "int", "minval": 1, "maxval": 1000, "log": True}
    assert {note.outcome for note in found.notes if note.path.startswith("spec.parameters")} == {"kept"}
    stepped = import_config(experiment("random", space("int", min="8", max="64", step="8", distribution="logUniform")))
    assert stepped.config["hyperparameters"]["x"] == {"type": "int", "minval": 8, "maxval": 64, "step": 8}
    assert "not both" in why(stepped, "spec.parameters[0].feasibleSpace.distribution")
    grid = searched(experiment("grid", space("int", min="1", max="4", distribution="logUniform")))
    assert grid == {"type": "int", "minval": 1, "maxval": 4, "count": 4}


def test_numbers_of_a_discrete_parameter_are_numbers_and_texts_of_a_categorical_stay_texts():
    assert searched(experiment("random", space("discrete", list=["16", "0.5"]))) == {
        "type": "ordinal",
        "vals": [0.5, 16],
    }
    assert searched(experiment("random", space("categorical", list=["16", "1e-4"])))["vals"] == ["16", "1e-4"]
    assert searched(experiment("random", space("int", min="3", max="3"))) == 3


def test_a_goal_ends_the_whole_search_and_a_median_rule_is_a_stopping_policy():
    raw = experiment(earlyStopping={"algorithmName": "medianstop"})
    raw["spec"]["objective"]["goal"] = 0.1
    result = import_config(raw)
    assert result.config["searcher"]["goal"] == 0.1
    assert result.config["stopping"] == [{"name": "median", "min_trials": 3, "warmup": 4}]
    (note,) = (note for note in result.notes if note.path == "spec.objective.goal")
    assert (note.outcome, note.to) == ("kept", "searcher.goal")
    raw["spec"]["objective"]["goal"] = "soon"
    assert mistakes(raw) == {"spec.objective.goal": "must be a number"}


def test_normal_distributions_are_priors_around_the_middle() -> None:
    double = space("double", min="0", max="6", distribution="normal")
    assert searched(experiment("random", double))["prior"] == {"center": 3.0, "confidence": 1}
    whole = space("int", min="1", max="9", step="2", distribution="normal")
    assert searched(experiment("random", whole))["prior"] == {"center": 5, "confidence": 1}
    log = searched(experiment("random", space("double", min="0.01", max="1", distribution="logNormal")))
    assert log == {"type": "log", "base": 10, "minval": -2.0, "maxval": 0.0, "prior": {"center": 0.1, "confidence": 1}}
    integers = searched(experiment("random", space("int", min="1", max="100", distribution="logNormal")))
    wanted = {"type": "int", "minval": 1, "maxval": 100, "log": True, "prior": {"center": 7, "confidence": 1}}
    assert integers == wanted
    evenly = import_config(experiment("grid", double))
    assert "prior" not in evenly.config["hyperparameters"]["x"]
    assert "a grid draws nothing" in why(evenly, "spec.parameters[0].feasibleSpace.distribution")


def job(pod: dict[str, Any], container: dict[str, Any], **keys: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "a:1", "command": ["python3"], **container}
    spec = {"template": {"spec": {"containers": [main], **pod}}, **keys}
    return experiment(trialTemplate={"trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}})


def test_a_deadline_is_the_longest_time_of_an_attempt() -> None:
    result = import_config(job({"activeDeadlineSeconds": 600}, {}, activeDeadlineSeconds=3600))
    assert result.config["resources"]["max_time"] == 600
    assert why(result, "spec.trialTemplate.trialSpec.spec.activeDeadlineSeconds") == "the other deadline is shorter"
    assert list(mistakes(job({}, {}, activeDeadlineSeconds="soon"))) == [
        "spec.trialTemplate.trialSpec.spec.activeDeadlineSeconds"
    ]


def test_volumes_secrets_and_init_containers_are_left_to_do_by_name() -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    pod = {"volumes": [{"name": "data", "emptyDir": {}}], "initContainers": [{"name": "fetch", "image": "b"}]}
    to_do = import_config(job(pod, {"env": [secret], "envFrom": [{"configMapRef": {"name": "c"}}]})).to_do
    for begins in (
        "volume 'data': ",
        "init container 'fetch': ",
        "variable TOKEN from secretKeyRef: ",
        "variables from",
    ):
        assert [line for line in to_do if line.startswith(begins)], begins


def test_what_is_not_needed_here_is_no_loss() -> None:
    result = import_config(job({"restartPolicy": "Never", "serviceAccountName": "x"}, {}))
    needless = {note.path for note in result.with_outcome("not_needed")}
    assert {"apiVersion", "kind"} <= needless
    assert any(path.endswith("serviceAccountName") for path in needless)
    assert not any(note.why.startswith("not needed") for note in result.with_outcome("left_out"))


@pytest.mark.parametrize("resources", [{"limits": -1}, {"requests": "x"}, 3, {"limits": {"nvidia.com/gpu": None}}])
def test_resources_that_are_none_are_no_crash(resources: Any) -> None:
    raw = job({}, {"resources": resources})
    if resources == {"limits": {"nvidia.com/gpu": None}}:
        assert "must be a whole number" in str(mistakes(raw))
    else:
        assert "resources" not in import_config(raw).config


def test_all_mistakes_are_named_at_once():
    raw = experiment(
        "tpee",
        space("double", min="a", max="1"),
        {"name": "x", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "2"}},
        {"name": "y", "parameterType": "int", "feasibleSpace": {"min": "4", "max": "2"}},
        {
            "name": "z",
            "parameterType": "double",
            "feasibleSpace": {"min": "0", "max": "2", "distribution": "logUniform"},
        },
    )
    raw["spec"]["objective"]["type"] = "max"
    found = mistakes(raw)
    assert set(found) == {
        "spec.algorithm.algorithmName",
        "spec.objective.type",
        "spec.parameters[0].feasibleSpace.min",
        "spec.parameters[1].name",
        "spec.parameters[2].feasibleSpace",
        "spec.parameters[3].feasibleSpace.min",
    }


def test_a_word_that_names_an_unknown_trial_parameter_is_a_mistake():
    container = {"name": "main", "image": "a:1", "command": ["python3", "--lr=${trialParameters.rate}"]}
    job = {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    found = mistakes(experiment(trialTemplate={"trialSpec": job}))
    assert list(found) == ["spec.trialTemplate.trialSpec.spec.template.spec.containers[0].command[1]"]


@pytest.mark.parametrize(
    ("raw", "path", "says"),
    [
        ({"apiVersion": "kubeflow.org/v1alpha3", "kind": "Experiment"}, "apiVersion", "v1beta1"),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "kind", "cannot be imported"),
        ({"searcher": {"name": "single"}}, "", "already"),
        ({"a": 1}, "", "neither a Katib Experiment nor a W&B sweep"),
        ([1], "", "not a mapping"),
        (None, "", "not a mapping"),
    ],
)
def test_another_kind_of_file_is_refused_with_what_is_known(raw, path, says):
    with pytest.raises(ConfigError) as refused:
        import_config(raw)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert says in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("4Gi", 4 * 1024**3), ("1k", 1000), ("2", 2), (3, 3), ("1e3", 1000), ("x", None), (True, None)],
)
def test_quantities_of_kubernetes(text, value):
    assert quantity(text) == value
