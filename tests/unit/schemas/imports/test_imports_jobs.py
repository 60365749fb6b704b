"""`det config import` of every kind of job that Katib's own examples have: slots and command are right, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.errors import ConfigError
from detlab.schemas.imports import Imported, import_config, load_import

FILES = Path(__file__).parent / "files"
HPARAMS = ["python3", "-m", "detlab.launch.hparams", "--"]
RANKS = ["python3", "-m", "detlab.launch.torch_distributed", "--"]
GPUS = {"limits": {"nvidia.com/gpu": 2}}


def experiment(kind: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    algorithm = more.pop("algorithm", "random")
    parameters = [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.5"}}]
    template = {"trialParameters": more.pop("trial_parameters", [{"name": "lr", "reference": "lr"}])}
    template["trialSpec"] = {"apiVersion": "kubeflow.org/v1", "kind": kind, "spec": spec, **more.pop("job", {})}
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "x", "namespace": "speech"},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss", **more.pop("objective", {})},
            "algorithm": {"algorithmName": algorithm, "algorithmSettings": more.pop("settings", [])},
            "maxTrialCount": 12,
            "parameters": parameters,
            "trialTemplate": template,
            **more,
        },
    }


def replica(count: int, *command: str, resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    words = list(command or ("python3", "train.py", "--lr=${trialParameters.lr}"))
    main = {"name": "main", "image": "a:1", "command": words, "resources": resources or {}, **more}
    return {"replicas": count, "template": {"spec": {"containers": [main]}}}


def job(*command: str, resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    one = replica(1, *command, resources=resources)
    return experiment("Job", {"template": one["template"], **more.pop("spec", {})}, **more)


def torch_job(spec: dict[str, Any], **roles: Any) -> dict[str, Any]:
    return experiment("PyTorchJob", {"pytorchReplicaSpecs": roles, **spec})


def command(result: Imported) -> list[str]:
    words: list[str] = result.config["entrypoint"]
    return words[len(HPARAMS) :] if words[: len(HPARAMS)] == HPARAMS else words


def mistakes(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        import_config(raw)
    return {problem.path: f"{problem.message} ({problem.hint})" for problem in refused.value.problems}


def test_a_job_with_two_gpus_runs_its_command_once_on_one_node() -> None:
    result = import_config(job(resources=GPUS))
    assert result.config["resources"] == {"slots_per_trial": 2, "is_single_node": True}
    assert command(result) == ["python3", "train.py", "--lr=${hparams.lr}"]
    own = import_config(job("torchrun", "--nproc_per_node=2", "train.py", resources=GPUS))
    assert command(own) == ["torchrun", "--nproc_per_node=2", "train.py"]


@pytest.mark.parametrize("key", ["parallelism", "completions"])
def test_a_job_of_several_pods_is_refused(key: str) -> None:
    (path,) = mistakes(job(spec={key: 4}))
    assert path == f"spec.trialTemplate.trialSpec.spec.{key}"
    assert import_config(job(spec={key: 1}))


def test_a_job_of_pytorch_has_a_process_for_each_slot() -> None:
    result = import_config(torch_job({}, Master=replica(1), Worker=replica(1)))
    assert result.config["resources"] == {"slots_per_trial": 2}
    assert command(result) == [*RANKS, "python3", "train.py", "--lr=${hparams.lr}"]


def test_one_replica_of_pytorch_with_two_gpus_is_one_process() -> None:
    result = import_config(torch_job({}, Master=replica(1, resources=GPUS), Worker=replica(0)))
    assert result.config["resources"] == {"slots_per_trial": 2, "is_single_node": True}
    assert command(result)[0] == "python3"


def test_replicas_of_pytorch_with_two_gpus_have_a_process_for_each_and_say_so() -> None:
    plain = import_config(torch_job({}, Master=replica(1, resources=GPUS), Worker=replica(1, resources=GPUS)))
    assert plain.config["resources"] == {"slots_per_trial": 4}
    assert command(plain)[: len(RANKS)] == RANKS
    assert any("one process with 2 GPUs" in line for line in plain.to_do)
    each = import_config(torch_job({"nprocPerNode": "2"}, Master=replica(1, resources=GPUS)))
    assert (each.config["resources"], command(each)[: len(RANKS)]) == ({"slots_per_trial": 2}, RANKS)
    assert not any("one process with 2 GPUs" in line for line in each.to_do)


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["torchrun", "--nproc_per_node=2", "--nnodes", "2", "train.py", "--lr", "1"], ["python3", "train.py"]),
        (["torchrun", "--nproc-per-node", "gpu", "-m", "pack.train", "--lr", "1"], ["python3", "-m", "pack.train"]),
        (["python", "-m", "torch.distributed.run", "--nproc_per_node=2", "t.py", "--lr", "1"], ["python", "t.py"]),
        (["torchrun", "--standalone", "--nproc-per-node=2", "--no-python", "t", "--lr", "1"], ["t"]),
    ],
)
def test_a_command_of_torchrun_is_taken_apart(words: list[str], script: list[str]) -> None:
    both = {"Master": replica(1, *words, resources=GPUS), "Worker": replica(1, *words, resources=GPUS)}
    result = import_config(torch_job({}, **both))
    assert result.config["resources"]["slots_per_trial"] == 4
    assert command(result) == [*RANKS, *script, "--lr", "1"]


@pytest.mark.parametrize(
    ("spec", "words", "says"),
    [
        ({}, ["torchrun", "--nproc_per_node=4", "train.py"], "4 processes with 2 GPUs"),
        ({"nprocPerNode": 8}, ["python3", "train.py"], "8 processes with 2 GPUs"),
        ({"nprocPerNode": "many"}, ["python3", "train.py"], "must be a whole number"),
        ({}, ["torchrun", "--nproc_per_node=2", "--heal", "train.py"], "--heal is no option of torchrun"),
        ({}, ["accelerate", "launch", "train.py"], "accelerate starts processes itself"),
        ({}, ["sh", "-c", "torchrun --nproc_per_node=2 train.py"], "torchrun starts processes itself"),
        ({}, ["mpirun", "-np", "2", "python3", "train.py"], "mpirun starts processes itself"),
    ],
)
def test_what_would_start_too_many_processes_is_refused(spec: dict[str, Any], words: list[str], says: str) -> None:
    both = {"Master": replica(1, *words, resources=GPUS), "Worker": replica(1, *words, resources=GPUS)}
    assert says in str(mistakes(torch_job(spec, **both)))


def test_replicas_that_differ_in_gpus_are_refused() -> None:
    assert "has 2 GPUs, the main one 0" in str(
        mistakes(torch_job({}, Master=replica(1), Worker=replica(2, resources=GPUS)))
    )


ALONE = {
    "TFJob": ("tfReplicaSpecs", "TF_CONFIG"),
    "XGBoostJob": ("xgbReplicaSpecs", "tracker"),
    "MXJob": ("mxReplicaSpecs", "scheduler"),
    "PaddleJob": ("paddleReplicaSpecs", "Paddle"),
    "JAXJob": ("jaxReplicaSpecs", "COORDINATOR_ADDRESS"),
}


@pytest.mark.parametrize("kind", ALONE)
def test_other_jobs_are_imported_with_one_replica_and_refused_with_several(kind: str) -> None:
    roles, says = ALONE[kind]
    result = import_config(experiment(kind, {roles: {"Worker": replica(1, resources=GPUS)}}))
    assert result.config["resources"] == {"slots_per_trial": 2, "is_single_node": True}
    assert command(result)[0] == "python3"
    several = mistakes(experiment(kind, {roles: {"Master": replica(1), "Worker": replica(2)}}))
    assert list(several) == ["spec.trialTemplate.trialSpec.kind"]
    assert says in str(several)
    assert kind in str(several)


@pytest.mark.parametrize("kind", ["MPIJob", "Workflow", "PipelineRun", "RayJob", "SparkApplication", "Sandwich"])
def test_a_job_that_no_command_here_stands_for_is_refused_by_its_kind(kind: str) -> None:
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2)}}
    found = mistakes(experiment(kind, spec))
    assert list(found) == ["spec.trialTemplate.trialSpec.kind"]
    assert found["spec.trialTemplate.trialSpec.kind"].startswith(kind)


def test_a_job_of_the_trainer_has_a_process_for_each_slot() -> None:
    result = import_config(load_import((FILES / "katib_trainjob.yaml").read_text(encoding="utf-8"))[0])
    assert result.config["resources"] == {"slots_per_trial": 2, "cpus": 4.0}
    assert command(result) == [*RANKS, "python3", "/opt/digits.py", "--lr=${hparams.lr}"]
    other = experiment("TrainJob", {"runtimeRef": {"name": "deepspeed"}, "trainer": {"command": ["a"]}})
    assert "'deepspeed' is a template in the cluster" in str(mistakes(other))
    per_node = {"numNodes": 2, "numProcPerNode": "auto", "command": ["torchrun", "t.py"], "resourcesPerNode": GPUS}
    found = import_config(experiment("TrainJob", {"runtimeRef": {"name": "torch-distributed"}, "trainer": per_node}))
    assert (found.config["resources"], command(found)) == ({"slots_per_trial": 4}, [*RANKS, "python3", "t.py"])


def test_devices_that_are_no_gpus_are_left_to_do_by_name() -> None:
    result = import_config(job(resources={"limits": {"xilinx/aws-f1": 1, "nvidia.com/mig-1g.5gb": 1}}))
    assert [line.split(":", 1)[0] for line in result.to_do if "this device" in line] == [
        "xilinx/aws-f1",
        "nvidia.com/mig-1g.5gb",
    ]


def test_fields_of_the_trial_s_object_are_what_the_file_says() -> None:
    fields = ("Name", "Namespace", "Kind", "APIVersion", "Labels[a-b]", "Annotations[c]")
    trial_parameters = [{"name": f"p{at}", "reference": f"${{trialSpec.{field}}}"} for at, field in enumerate(fields)]
    words = [f"${{trialParameters.p{at}}}" for at in range(len(fields))]
    about = {"apiVersion": "batch/v1", "metadata": {"labels": {"a-b": "one"}, "annotations": {"c": "two"}}}
    result = import_config(job("echo", *words, trial_parameters=trial_parameters, job=about))
    assert command(result) == ["echo", "trial-${env.DET_TRIAL_ID}", "speech", "Job", "batch/v1", "one", "two"]
    missing = job("echo", trial_parameters=[{"name": "x", "reference": "${trialSpec.Labels[none]}"}])
    assert "has no Labels[none]" in str(mistakes(missing))


@pytest.mark.parametrize("name", ["enas", "darts", "DARTS"])
def test_architecture_search_is_refused_by_its_name(name: str) -> None:
    raw = job(algorithm=name, trial_parameters=[{"name": "net", "reference": "architecture"}])
    raw["spec"]["nasConfig"] = {"graphConfig": {"numLayers": 3}, "operations": []}
    found = mistakes(raw)
    assert list(found) == ["spec.algorithm.algorithmName"]
    assert found["spec.algorithm.algorithmName"].startswith(f"{name.lower()} searches architectures (NAS)")
    raw["spec"]["algorithm"] = {"algorithmName": "random"}
    assert list(mistakes(raw)) == ["spec.nasConfig"]


def strategy(value: str, metric: str = "loss") -> Imported:
    return import_config(job(objective={"metricStrategies": [{"name": metric, "value": value}]}))


def test_a_strategy_of_the_objective_that_is_not_the_best_report_is_left_to_do() -> None:
    assert not any("of several reports" in line for line in strategy("min").to_do)
    assert not any("of several reports" in line for line in strategy("latest", "other").to_do)
    (latest,) = (line for line in strategy("latest").to_do if "of several reports" in line)
    assert "once, when a trial ends" in latest
    (worst,) = (line for line in strategy("max").to_do if "of several reports" in line)
    assert "not the max" in worst
    assert {note.outcome for note in strategy("latest").notes if "metricStrategies" in note.path} == {"left_out"}
    assert "is no strategy of Katib" in str(
        mistakes(job(objective={"metricStrategies": [{"name": "a", "value": "avg"}]}))
    )


def test_methods_that_continue_trials_need_checkpoints_and_say_so() -> None:
    settings = [{"name": "r_l", "value": "9"}, {"name": "resource_name", "value": "epochs"}]
    for result in (
        import_config(job(algorithm="pbt")),
        import_config(job(algorithm="hyperband", settings=settings)),
        import_config(
            {
                "method": "bayes",
                "metric": {"name": "loss"},
                "early_terminate": {"type": "hyperband", "max_iter": 27, "s": 2},
                "parameters": {"x": {"min": 0.0, "max": 1.0}},
            }
        ),
    ):
        assert any(line.startswith("save checkpoints") for line in result.to_do), result.config["searcher"]
    assert not any(line.startswith("save checkpoints") for line in import_config(job(algorithm="tpe")).to_do)
