"""Katib's trial template, a `Job` or a distributed job such as `PyTorchJob`: entrypoint, environment, resources."""

from __future__ import annotations

import re
from typing import Any

from detlab.schemas.expconf.raw.paths import Path
from detlab.schemas.imports.katib import jobs
from detlab.schemas.imports.katib.jobs import Layout
from detlab.schemas.imports.katib.keys import TRIAL_SPEC
from detlab.schemas.imports.ledger import Ledger
from detlab.schemas.imports.trials import HPARAMS

DISTRIBUTED = ["python3", "-m", "detlab.launch.torch_distributed", "--"]

_TRIAL_PARAMETERS: Path = ("spec", "trialTemplate", "trialParameters")
_PARAMETER = re.compile(r"\$\{trialParameters\.([^}]+)\}")
_META = re.compile(r"\$\{trialSpec\.([A-Za-z]+)(?:\[([^\]]+)\])?\}")
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
    found = jobs.layout(ledger)
    if found is None:
        return
    gpus = _resources(ledger, config, found)
    _environment(ledger, config, found.main)
    _command(ledger, config, found, names, gpus)
    _restarts(ledger, config)
    _deadline(ledger, config, found.pods[0][0])
    for pod, _ in found.pods:
        _pod_by_hand(ledger, pod)
    _variables_by_hand(ledger, found.main)


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
        if meta := _META.fullmatch(reference):
            found[name] = _of_the_trial(ledger, index, meta.group(1), meta.group(2))
            continue
        if reference not in hyperparameters:
            ledger.mistake((*above, index, "reference"), f"{reference!r} is no parameter of the file")
            continue
        found[name] = f"${{hparams.{reference}}}"
        ledger.kept((*above, index, "name"))
        ledger.kept((*above, index, "reference"))
    return found


def _of_the_trial(ledger: Ledger, index: int, field: str, key: str | None) -> str:
    """Return what stands for a field of the trial's own object: its id for the name, else what the file says."""
    places: dict[str, tuple[Path, Any]] = {
        "Namespace": (("metadata", "namespace"), "default"),
        "Kind": ((*TRIAL_SPEC, "kind"), None),
        "APIVersion": ((*TRIAL_SPEC, "apiVersion"), None),
        "Labels": ((*TRIAL_SPEC, "metadata", "labels", key or ""), None),
        "Annotations": ((*TRIAL_SPEC, "metadata", "annotations", key or ""), None),
    }
    at: Path = (*_TRIAL_PARAMETERS, index)
    if field == "Name":
        value, why = "trial-${env.DET_TRIAL_ID}", "the trial's id stands for it"
    else:
        place, default = places.get(field, ((), None))
        raw = ledger.at(place) if place else None
        value, why = str(default if raw is None else raw), "what the file says stands for it"
        if raw is None and default is None:
            ledger.mistake((*at, "reference"), f"the trial's template has no {field}{f'[{key}]' if key else ''}")
    ledger.changed((*at, "name"), why)
    ledger.changed((*at, "reference"), why)
    return value


# --- resources


def _resources(ledger: Ledger, config: dict[str, Any], found: Layout) -> int:
    """Add the resources of a trial; return the GPUs of a pod."""
    gpus = _gpus_of_each(ledger, found)
    block: dict[str, Any] = {}
    if gpus or found.count > 1:
        block["slots_per_trial"] = found.count * max(1, gpus)
    for key, to in (("cpu", "cpus"), ("memory", "memory")):
        for group in ("limits", "requests"):
            place = (*found.main, found.resources, group, key)
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
                if found.count > 1:
                    ledger.changed(place, "of each node, however many ranks of the trial are on it")
                else:
                    ledger.kept(place)
    if block:
        config["resources"] = block
    for pod, _ in found.pods[1:]:
        _other_pod(ledger, pod)
    return gpus


def _gpus_of_each(ledger: Ledger, found: Layout) -> int:
    """Return the GPUs of a pod, which has to be the same number in all."""
    if found.kind == "TrainJob":
        return _gpus_in(ledger, found.main, found.resources, None) or 0
    each = [(pod, _gpus(ledger, pod) or 0) for pod, _ in found.pods]
    first = each[0][1]
    for pod, gpus in each[1:]:
        if gpus != first:
            message = f"has {gpus} GPUs, the main one {first}: a trial's ranks are alike here"
            ledger.mistake((*pod, "containers"), message, "give all replicas the same number")
    return first


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
    for index in range(len(ledger.items((*pod, "containers")))):
        found = _gpus_in(ledger, (*pod, "containers", index), "resources", found)
    return found


def _gpus_in(ledger: Ledger, container: Path, resources: str, found: int | None) -> int | None:
    """Add the GPUs of a container to those that were found before; say which other devices it asks for."""
    for group in ("limits", "requests"):
        above = (*container, resources, group)
        given = ledger.at(above)
        for key, raw in given.items() if isinstance(given, dict) else ():
            if not str(key).endswith("/gpu"):
                _device_by_hand(ledger, str(key))
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


def _device_by_hand(ledger: Ledger, key: str) -> None:
    text = f"{key}: choose nodes that have this device, by `resources.resource_pool` or `resources.constraints`"
    if "/" in key and text not in ledger.to_do:
        ledger.to_do.append(text)


# --- the command


def _environment(ledger: Ledger, config: dict[str, Any], main: Path) -> None:
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


def _command(ledger: Ledger, config: dict[str, Any], found: Layout, names: dict[str, str], gpus: int) -> None:
    main = found.main
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
    words = _started(ledger, config, found, words, gpus)
    assignments = _assignments(ledger, main, names)
    if assignments:
        words = ["env", *assignments, *words]
    if any("${" in word for word in words):
        words = [*HPARAMS, *words]
    config["entrypoint"] = words


def _started(ledger: Ledger, config: dict[str, Any], found: Layout, words: list[str], gpus: int) -> list[str]:
    """Return the command as it is to be started: once, or in a process for each slot."""
    asked = jobs.processes(ledger, found) if found.kind in ("PyTorchJob", "TrainJob") else None
    taken = jobs.torchrun_in(words) if found.kind in ("PyTorchJob", "TrainJob") else None
    if found.count == 1 and asked in (None, 1) and taken is None:
        if gpus > 1:
            config["resources"]["is_single_node"] = True
            ledger.added("resources.is_single_node", "true: the one process of the job uses all of its GPUs")
        return words
    place = (*found.main, "command")
    if taken is None and (other := jobs.launcher_in(words)):
        ledger.mistake(place, f"{other} starts processes itself", "write the script's own command: one runs per slot")
        return words
    if taken is not None and taken.unknown:
        ledger.mistake(place, f"{taken.unknown} is no option of torchrun that is known here", "leave it out")
        return words
    each = _processes_of_each(ledger, place, taken.processes if taken and taken.processes else asked, gpus)
    if not gpus and found.count * each > 1:
        config.setdefault("resources", {})["slots_per_trial"] = found.count * each
    if gpus > 1 and each == 1:
        why = f"a Katib pod runs one process with {gpus} GPUs: see that batch sizes and learning rate still suit"
        ledger.to_do.append(f"{why}, one process for each GPU here")
    ledger.added("entrypoint", "detlab.launch.torch_distributed starts one process for each slot")
    return [*DISTRIBUTED, *(taken.script if taken else words)]


def _processes_of_each(ledger: Ledger, place: Path, asked: int | str | None, gpus: int) -> int:
    """Return the processes of each pod; one per GPU or, where that is all it says, one."""
    if asked is None:
        return 1
    if isinstance(asked, str):
        if asked not in jobs.PER_SLOT:
            ledger.mistake(place, f"starts {asked!r} processes, which is no number")
        return max(1, gpus)
    if gpus and asked not in (1, gpus):
        ledger.mistake(
            place, f"starts {asked} processes with {gpus} GPUs: here each process has one", "make them alike"
        )
    return asked


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
