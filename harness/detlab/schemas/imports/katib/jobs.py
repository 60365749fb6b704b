"""The kinds of jobs in Katib's trial templates: which are known, their pods, and how many processes they start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.imports.katib.keys import TRIAL_SPEC
from detlab.schemas.imports.ledger import Ledger

_SPEC: Path = (*TRIAL_SPEC, "spec")
_ALONE = "with one replica it can be imported; for several, write the command for torchrun as a PyTorchJob"
_AS_JOB = "give the training step alone as a `batch/v1` Job, or set `entrypoint` by hand in a config of your own"

REPLICAS: dict[str, str] = {
    "PyTorchJob": "",
    "TFJob": "its replicas find each other by TF_CONFIG, which no launcher here sets",
    "XGBoostJob": "its replicas meet at a tracker of XGBoost's, which no launcher here starts",
    "MXJob": "its scheduler, servers and workers are different programs; here all ranks run one",
    "PaddleJob": "its replicas are started by Paddle's launcher, which is not here",
    "JAXJob": "its replicas find each other by COORDINATOR_ADDRESS, which no launcher here sets",
}
"""Kinds with replicas by role, and why several replicas of one cannot be imported; empty: they can."""

REFUSED: dict[str, tuple[str, str]] = {
    "MPIJob": (
        "starts its ranks by mpirun over SSH, and there is no launcher for MPI here",
        "write it as a PyTorchJob whose replicas run the training script itself",
    ),
    "Workflow": ("is a workflow of Argo with steps of its own; a trial here is one command", _AS_JOB),
    "PipelineRun": ("is a pipeline of Tekton with tasks of its own; a trial here is one command", _AS_JOB),
    "TaskRun": ("is a task of Tekton with steps of its own; a trial here is one command", _AS_JOB),
    "RayJob": ("starts a cluster of Ray; a trial here is one command", _AS_JOB),
    "SparkApplication": ("starts a driver and executors of Spark; a trial here is one command", _AS_JOB),
}
"""Kinds that cannot be imported at all: why, and what to do."""

TORCH_RUNTIME = "torch-distributed"
"""The runtime of a TrainJob that torchrun starts."""
KNOWN = ("Job", "TrainJob", *REPLICAS)
_FIRST = ("Master", "Chief", "Launcher")
_LAUNCHERS = re.compile(
    r"\b(torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:-launch)?|deepspeed|horovodrun|mpirun|mpiexec)\b"
)
_TORCHRUN_FLAGS = frozenset({"standalone", "run-path", "use-env"})
_TORCHRUN_VALUES = frozenset(
    {
        *("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr", "max-restarts"),
        *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "monitor-interval", "start-method", "role"),
        *("log-dir", "r", "redirects", "t", "tee"),
    }
)
PER_SLOT = ("auto", "gpu", "cpu")
"""Words for as many processes of a node as it has devices."""


@dataclass(frozen=True)
class Layout:
    """Where the parts of a trial's job are in the file.

    Attributes:
        kind: The kind of job.
        main: The container whose command is the trial's.
        pods: Pod specs with their replicas, the main one first; of a `TrainJob`, its trainer.
        resources: The key of the container's resources.
    """

    kind: str
    main: Path
    pods: tuple[tuple[Path, int], ...]
    resources: str = "resources"

    @property
    def count(self) -> int:
        """Return how many pods there are."""
        return sum(count for _, count in self.pods)


def layout(ledger: Ledger) -> Layout | None:
    """Return the parts of the trial's job; None, and a mistake, if its kind cannot be imported."""
    kind = ledger.at((*TRIAL_SPEC, "kind"))
    if kind == "TrainJob":
        return _train_job(ledger)
    pods = _pods(ledger, kind)
    if pods is None:
        return None
    main = _main_container(ledger, pods[0][0])
    return None if main is None else Layout(kind, main, tuple(pods))


def _pods(ledger: Ledger, kind: Any) -> list[tuple[Path, int]] | None:
    if not isinstance(kind, str) or kind not in KNOWN:
        why, hint = REFUSED.get(str(kind), ("is no kind of job that is known here", f"known are {', '.join(KNOWN)}"))
        ledger.mistake((*TRIAL_SPEC, "kind"), f"{kind or 'it'} {why}", hint)
        return None
    if kind == "Job":
        return _job(ledger)
    found = [pod for pod in _replicas(ledger) if pod[1]]
    if not found:
        ledger.mistake(_SPEC, f"has no replicas with a pod template ({kind})", "such as pytorchReplicaSpecs.Master")
        return None
    if sum(count for _, count in found) > 1 and REPLICAS[kind]:
        ledger.mistake((*TRIAL_SPEC, "kind"), f"{kind} has several replicas: {REPLICAS[kind]}", _ALONE)
        return None
    return found


def _job(ledger: Ledger) -> list[tuple[Path, int]] | None:
    for key in ("parallelism", "completions"):
        count = ledger.at((*_SPEC, key))
        if count not in (None, 1):
            ledger.mistake((*_SPEC, key), f"is {count}: a trial here is one command, not several pods", "leave it out")
    pod = (*_SPEC, "template", "spec")
    if not isinstance(ledger.at(pod), dict):
        ledger.mistake(_SPEC, "has no pod template that is known (Job)", "a Job has spec.template")
        return None
    return [(pod, 1)]


def _replicas(ledger: Ledger) -> list[tuple[Path, int]]:
    """Return the pods of all roles; the one that leads first."""
    spec = ledger.at(_SPEC)
    found: list[tuple[Path, int]] = []
    for key, roles in spec.items() if isinstance(spec, dict) else ():
        if not str(key).endswith("ReplicaSpecs") or not isinstance(roles, dict):
            continue
        for role, replica in roles.items():
            pod = (*_SPEC, key, role, "template", "spec")
            if not isinstance(replica, dict) or not isinstance(ledger.at(pod), dict):
                continue
            found.append((pod, counted(ledger, (*_SPEC, key, role, "replicas"), 1)))
    return sorted(found, key=lambda pod: pod[0][5] not in _FIRST)


def counted(ledger: Ledger, place: Path, default: int) -> int:
    """Return a whole number of a job, which is kept; the default, and perhaps a mistake, if there is none."""
    count = ledger.at(place)
    if count is None:
        return default
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        ledger.mistake(place, "must be a whole number")
        return default
    ledger.kept(place)
    return count


def _main_container(ledger: Ledger, pod: Path) -> Path | None:
    containers = ledger.items((*pod, "containers"))
    wanted = ledger.at(("spec", "trialTemplate", "primaryContainerName"))
    named = [
        index for index, item in enumerate(containers)
        if isinstance(item, dict) and (wanted is None or item.get("name") == wanted)
    ]  # fmt: skip
    if not named and len(containers) == 1 and isinstance(containers[0], dict):
        named = [0]
    if not named:
        ledger.mistake((*pod, "containers"), f"has no container {wanted!r}" if wanted else "has no container")
        return None
    for index in range(len(containers)):
        if index != named[0]:
            ledger.left_out((*pod, "containers", index), "a trial has one container")
    return (*pod, "containers", named[0])


def _train_job(ledger: Ledger) -> Layout | None:
    at = (*_SPEC, "runtimeRef", "name")
    runtime = ledger.at(at)
    if runtime != TORCH_RUNTIME:
        ledger.mistake(at, f"{runtime!r} is a template in the cluster; only {TORCH_RUNTIME} is known here", _AS_JOB)
        return None
    main = (*_SPEC, "trainer")
    if not ledger.mapping(main):
        ledger.mistake(main, "is missing: the runtime's own command is in the cluster", "give its command and image")
        return None
    nodes = counted(ledger, (*main, "numNodes"), 1)
    return Layout("TrainJob", main, ((main, max(1, nodes)),), "resourcesPerNode")


# --- processes


def processes(ledger: Ledger, found: Layout) -> int | str | None:
    """Return how many processes each pod of a PyTorchJob or TrainJob is to start; None if it does not say."""
    place = (*_SPEC, "trainer", "numProcPerNode") if found.kind == "TrainJob" else (*_SPEC, "nprocPerNode")
    raw = ledger.at(place)
    if raw is None:
        return None
    value = int(raw) if isinstance(raw, str) and raw.isdecimal() else raw
    if value in PER_SLOT or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        ledger.kept(place)
        return value
    ledger.mistake(place, "must be a whole number of at least 1, auto, gpu or cpu")
    return None


def launcher_in(words: list[str]) -> str | None:
    """Return the program in a command that would start processes itself; None if there is none."""
    match = _LAUNCHERS.search(" ".join(words))
    return match.group(1) if match else None


@dataclass(frozen=True)
class Torchrun:
    """A command of torchrun, taken apart.

    Attributes:
        script: What each process runs.
        processes: How many of them a node is to have, as written; None if it does not say.
        unknown: An option that is not known here; then the command cannot be taken apart.
    """

    script: list[str]
    processes: int | str | None = None
    unknown: str = ""


def torchrun_in(words: list[str]) -> Torchrun | None:
    """Take a command that begins with torchrun apart; None for any other command."""
    start = _after_torchrun(words)
    if start is None:
        return None
    python = words[0] if start > 1 else "python3"
    head, given, index = [python], None, start
    while index < len(words) and words[index].startswith("-"):
        name, equals, value = words[index].lstrip("-").partition("=")
        name = name.replace("_", "-")
        index += 1
        if name in ("m", "module"):
            head = [python, "-m"]
        elif name == "no-python":
            head = []
        elif name in _TORCHRUN_VALUES:
            if not equals:
                value, index = words[index] if index < len(words) else "", index + 1
            given = (int(value) if value.isdecimal() else value) if name == "nproc-per-node" else given
        elif name not in _TORCHRUN_FLAGS:
            return Torchrun([], given, words[index - 1])
    return Torchrun([*head, *words[index:]], given)


def _after_torchrun(words: list[str]) -> int | None:
    if words[:1] and words[0].rsplit("/", 1)[-1] == "torchrun":
        return 1
    module = next((index for index in (1, 2) if words[index : index + 1] == ["-m"]), None)
    if module and words[module + 1 : module + 2] and words[module + 1] in (
        "torch.distributed.run", "torch.distributed.launch",
    ):  # fmt: skip
        return module + 2
    return None
