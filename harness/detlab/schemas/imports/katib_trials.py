"""Katib's trial template, a `Job` or a distributed job such as `PyTorchJob`: entrypoint, environment, resources."""

from __future__ import annotations

import re
from typing import Any

from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.imports.katib_rows import TRIAL_SPEC
from detlab.schemas.imports.ledger import Ledger

HPARAMS = ["python3", "-m", "detlab.launch.hparams", "--"]
"""The command that puts hyperparameters into the words of another one."""
DISTRIBUTED = ["python3", "-m", "detlab.launch.torch_distributed", "--"]

_TRIAL_PARAMETERS: Path = ("spec", "trialTemplate", "trialParameters")
_PARAMETER = re.compile(r"\$\{trialParameters\.([^}]+)\}")
_META = re.compile(r"\$\{trialSpec\.[^}]+\}")
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)(m|[kKMGTPE]i?|)")
_SCALES = {"": 1.0, "m": 1e-3, "Ki": 1024.0} | {
    letter + suffix: float(base ** (power + 1))
    for power, letter in enumerate("kMGTPE")
    for suffix, base in (("", 1000), ("i", 1024))
}


def quantity(value: object) -> float | None:
    """Return the number that a Kubernetes quantity such as `500m` or `4Gi` stands for; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        return None
    try:
        return float(match.group(1)) * _SCALES[match.group(2)]
    except (ValueError, KeyError):
        return None


def add_trial(ledger: Ledger, config: dict[str, Any]) -> None:
    """Add what the trial template says to a config."""
    names = _trial_parameters(ledger, config["hyperparameters"])
    if ledger.at(TRIAL_SPEC) is None:
        ledger.to_do.append("set `entrypoint`: the file has no command")
    else:
        _add_job(ledger, config, names)
    entrypoint = " ".join(config.get("entrypoint", []))
    for index, item in enumerate(ledger.items(_TRIAL_PARAMETERS)):
        if isinstance(item, dict) and names.get(str(item.get("name")), "") not in entrypoint:
            for key in ("name", "reference"):
                ledger.left_out((*_TRIAL_PARAMETERS, index, key), "no command here uses it")


def _add_job(ledger: Ledger, config: dict[str, Any], names: dict[str, str]) -> None:
    pods = _pods(ledger)
    if not pods:
        kind = ledger.at((*TRIAL_SPEC, "kind"))
        ledger.mistake((*TRIAL_SPEC, "spec"), f"has no pod template that is known ({kind})", "a Job has spec.template")
        return
    main, _ = pods[0]
    container = _main_container(ledger, main)
    if container is None:
        return
    slots = _resources(ledger, config, container, pods)
    _environment(ledger, config, container, names)
    _command(ledger, config, container, names, slots)
    _restarts(ledger, config)
    _deadline(ledger, config, main)
    for pod, _ in pods:
        _pod_by_hand(ledger, pod)
    _variables_by_hand(ledger, container)


def _pod_by_hand(ledger: Ledger, pod: Path) -> None:
    """Say what is left to do for what a pod brought along."""
    for key, what, instead in (
        ("volumes", "volume", "mount a directory of the nodes that has what it held: `bind_mounts`"),
        ("initContainers", "init container", "have the entrypoint do what it did"),
    ):
        value = ledger.at((*pod, key))
        for index, item in enumerate(value if isinstance(value, list) else ()):
            name = item.get("name") if isinstance(item, dict) else None
            text = f"{what} {name!r}: {instead}" if name else f"{what} number {index + 1}: {instead}"
            if text not in ledger.to_do:
                ledger.to_do.append(text)


def _variables_by_hand(ledger: Ledger, main: Path) -> None:
    """Say which variables the cluster filled in."""
    for key in ("env", "envFrom"):
        value = ledger.at((*main, key))
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, dict) or (key == "env" and not isinstance(item.get("valueFrom"), dict)):
                continue
            source = item.get("valueFrom") if key == "env" else item
            kinds = ", ".join(str(kind) for kind in source) if isinstance(source, dict) else "?"
            name = f"variable {item.get('name')}" if key == "env" else "variables"
            ledger.to_do.append(f"{name} from {kinds}: set by hand in `environment.environment_variables`")


def _trial_parameters(ledger: Ledger, hyperparameters: dict[str, Any]) -> dict[str, str]:
    """Return what stands for each trial parameter in the entrypoint."""
    found: dict[str, str] = {}
    above = _TRIAL_PARAMETERS
    for index, item in enumerate(ledger.items(above)):
        name, reference = (item.get(key) if isinstance(item, dict) else None for key in ("name", "reference"))
        if not isinstance(name, str) or not isinstance(reference, str):
            ledger.mistake((*above, index), "must have `name` and `reference`")
            continue
        if _META.fullmatch(reference):
            found[name] = "trial-${env.DET_TRIAL_ID}"
            ledger.changed((*above, index, "name"), "the trial's id stands for it")
            ledger.changed((*above, index, "reference"), "the trial's id stands for it")
            continue
        if reference not in hyperparameters:
            ledger.mistake((*above, index, "reference"), f"{reference!r} is no parameter of the file")
            continue
        found[name] = f"${{hparams.{reference}}}"
        ledger.kept((*above, index, "name"))
        ledger.kept((*above, index, "reference"))
    return found


# --- pods and containers


def _pods(ledger: Ledger) -> list[tuple[Path, int]]:
    """Return the places of the pod specs with their replicas, the main one first."""
    spec: Path = (*TRIAL_SPEC, "spec")
    if isinstance(ledger.at((*spec, "template", "spec")), dict):
        return [((*spec, "template", "spec"), 1)]
    found: list[tuple[Path, int]] = []
    for key, roles in (ledger.at(spec) or {}).items() if isinstance(ledger.at(spec), dict) else ():
        if not str(key).endswith("ReplicaSpecs") or not isinstance(roles, dict):
            continue
        for role, replica in roles.items():
            if not isinstance(replica, dict) or not isinstance(ledger.at((*spec, key, role, "template", "spec")), dict):
                continue
            count = replica.get("replicas", 1)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                ledger.mistake((*spec, key, role, "replicas"), "must be a whole number")
                count = 1
            elif "replicas" in replica:
                ledger.kept((*spec, key, role, "replicas"))
            found.append(((*spec, key, role, "template", "spec"), count))
    return sorted(found, key=lambda pod: pod[0][5] not in ("Master", "Chief", "Launcher"))


def _main_container(ledger: Ledger, pod: Path) -> Path | None:
    containers = ledger.items((*pod, "containers"))
    wanted_at = ("spec", "trialTemplate", "primaryContainerName")
    wanted = ledger.at(wanted_at)
    named = [
        index for index, item in enumerate(containers)
        if isinstance(item, dict) and (wanted is None or item.get("name") == wanted)
    ]  # fmt: skip
    if not named and len(containers) == 1 and isinstance(containers[0], dict):
        named = [0]
    if not named:
        ledger.mistake((*pod, "containers"), f"has no container {wanted!r}" if wanted else "has no container")
        return None
    main = (*pod, "containers", named[0])
    for index in range(len(containers)):
        if index != named[0]:
            ledger.left_out((*pod, "containers", index), "a trial has one container")
    return main


def _resources(ledger: Ledger, config: dict[str, Any], main: Path, pods: list[tuple[Path, int]]) -> int:
    """Add the resources of a trial; return its slots."""
    per_pod = [(_gpus(ledger, pod), count) for pod, count in pods]
    distributed = len(pods) > 1 or pods[0][1] > 1
    gpus = [found for found, _ in per_pod if found is not None]
    slots = sum((found if found is not None else int(distributed and not gpus)) * count for found, count in per_pod)
    block: dict[str, Any] = {}
    if gpus or distributed:
        block["slots_per_trial"] = slots
    for key, to in (("cpu", "cpus"), ("memory", "memory")):
        for group in ("limits", "requests"):
            place = (*main, "resources", group, key)
            raw = ledger.at(place)
            if raw is None:
                continue
            value = quantity(raw)
            if value is None:
                ledger.mistake(place, "is no quantity of Kubernetes", "such as 500m or 4Gi")
            elif to in block:
                ledger.left_out(place, f"`resources.{to}` is what the limit says")
            else:
                block[to] = int(value) if to == "memory" else value
                ledger.kept(place)
    if block:
        config["resources"] = block
    for pod, _ in pods[1:]:
        _other_pod(ledger, pod)
    return slots if (gpus or distributed) else 1


def _other_pod(ledger: Ledger, pod: Path) -> None:
    """Leave out the pod of another role, but for its GPUs: all ranks run the main one's command."""
    why = "all ranks run the command of the first role"
    for index, container in enumerate(ledger.items((*pod, "containers"))):
        for key in container if isinstance(container, dict) else ():
            if key != "resources":
                ledger.left_out((*pod, "containers", index, key), why)


def _gpus(ledger: Ledger, pod: Path) -> int | None:
    """Return the GPUs of a pod; None if it names none."""
    found: int | None = None
    for index, container in enumerate(ledger.items((*pod, "containers"))):
        for group in ("limits", "requests"):
            above = (*pod, "containers", index, "resources", group)
            amounts = container.get("resources", {}) if isinstance(container, dict) else {}
            given = amounts.get(group) if isinstance(amounts, dict) else None
            for key, raw in given.items() if isinstance(given, dict) else ():
                if not str(key).endswith("/gpu"):
                    continue
                value = quantity(raw)
                if value is None or not float(value).is_integer():
                    ledger.mistake((*above, key), "must be a whole number")
                elif group == "requests" and found is not None:
                    ledger.left_out((*above, key), "`resources.slots_per_trial` is what the limit says")
                else:
                    found = (found or 0) + int(value)
                    ledger.kept((*above, key))
    return found


# --- the command


def _environment(ledger: Ledger, config: dict[str, Any], main: Path, names: dict[str, str]) -> None:
    image = ledger.text((*main, "image"))
    if image is not None:
        config["environment"] = {"image": image}
        config["runtime"] = "docker"
        ledger.kept((*main, "image"))
        ledger.added("runtime", "docker: the command is in the image")
        ledger.to_do.append("have Python and detlab in the image: docs/how-to/docker-agents.md")
    policy = ledger.at((*main, "imagePullPolicy"))
    if policy == "Always":
        config.setdefault("environment", {})["force_pull_image"] = True
        ledger.kept((*main, "imagePullPolicy"))
    elif policy is not None:
        ledger.left_out((*main, "imagePullPolicy"), "it is the default")
    for index, item in enumerate(ledger.items((*main, "env"))):
        at = (*main, "env", index)
        name, value = (item.get(key) if isinstance(item, dict) else None for key in ("name", "value"))
        if not isinstance(name, str) or not name or "=" in name:
            ledger.mistake((*at, "name"), "must be the name of a variable")
        elif value is not None and not _PARAMETER.search(str(value)):
            variables = config.setdefault("environment", {}).setdefault("environment_variables", [])
            variables.append(f"{name}={value}")
            ledger.kept((*at, "name"))
            ledger.kept((*at, "value"))
        elif value is None:
            ledger.left_out((*at, "name"), "it has no value here: set it in `environment.environment_variables`")


def _assignments(ledger: Ledger, main: Path, names: dict[str, str]) -> list[str]:
    """Return the assignments of variables that hold a hyperparameter."""
    found = []
    for index, item in enumerate(ledger.items((*main, "env"))):
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, str) and isinstance(item.get("name"), str) and _PARAMETER.search(value):
            at = (*main, "env", index)
            found.append(f"{item['name']}={_replaced(ledger, (*at, 'value'), value, names)}")
            ledger.kept((*at, "name"), "entrypoint")
            ledger.kept((*at, "value"), "entrypoint")
    return found


def _replaced(ledger: Ledger, place: Path, word: str, names: dict[str, str]) -> str:
    for name in _PARAMETER.findall(word):
        if name not in names:
            ledger.mistake(place, f"${{trialParameters.{name}}} is not in trialParameters")
    return _PARAMETER.sub(lambda match: names.get(match.group(1), match.group(0)), word)


def _command(ledger: Ledger, config: dict[str, Any], main: Path, names: dict[str, str], slots: int) -> None:
    words: list[str] = []
    for key in ("command", "args"):
        for index, word in enumerate(ledger.items((*main, key))):
            place = (*main, key, index)
            if isinstance(word, dict | list) or word is None:
                ledger.mistake(place, "must be a text")
                continue
            words.append(_replaced(ledger, place, str(word), names))
            ledger.kept(place)
    if not words:
        ledger.to_do.append("set `entrypoint`: the image's own command is not known here")
        return
    if ledger.at((*main, "command")) is None:
        ledger.to_do.append("put the image's own command before the arguments in `entrypoint`")
    if slots > 1:
        words = _distributed(ledger, words)
    assignments = _assignments(ledger, main, names)
    if assignments:
        words = ["env", *assignments, *words]
    if any("${" in word for word in words):
        words = [*HPARAMS, *words]
    config["entrypoint"] = words


def _distributed(ledger: Ledger, words: list[str]) -> list[str]:
    """Return a command as one that runs in a process for each slot."""
    ledger.added("entrypoint", "detlab.launch.torch_distributed starts one process for each slot")
    return [*DISTRIBUTED, *words]


def _restarts(ledger: Ledger, config: dict[str, Any]) -> None:
    place = (*TRIAL_SPEC, "spec", "backoffLimit")
    value = ledger.at(place)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        ledger.mistake(place, "must be a whole number")
        return
    config["max_restarts"] = value
    ledger.kept(place)


def _deadline(ledger: Ledger, config: dict[str, Any], pod: Path) -> None:
    """Take the shorter deadline of the job and of its pod."""
    found: list[tuple[int, Path]] = []
    for place in ((*TRIAL_SPEC, "spec", "activeDeadlineSeconds"), (*pod, "activeDeadlineSeconds")):
        value = ledger.at(place)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            ledger.mistake(place, "must be a whole number of at least 1")
            continue
        found.append((value, place))
    for value, place in sorted(found):
        if value == min(found)[0]:
            config.setdefault("resources", {})["max_time"] = value
            ledger.changed(place, "of each attempt of a trial, which then stops at its next checkpoint")
        else:
            ledger.left_out(place, "the other deadline is shorter")
