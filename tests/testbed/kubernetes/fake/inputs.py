"""What containers of the fake cluster's pods are given: their volumes and their environment."""

from __future__ import annotations

import base64
import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.kubernetes.fake.resources import Object
from testbed.kubernetes.fake.store import Store


class Waits(Exception):
    """A container cannot start yet."""

    def __init__(self, reason: str, message: str, event: str = "Failed") -> None:
        super().__init__(message)
        self.reason, self.event = reason, event


class Inputs:
    """The inputs of all pods.

    Args:
        store: Has secrets, config maps and claims.
        directory: The cluster's; claims lie beside it.
        images: Environment by pattern of image names.
        common: Environment of all containers.
    """

    def __init__(
        self, store: Store, directory: Path, images: Mapping[str, Mapping[str, str]], common: Mapping[str, str]
    ) -> None:
        self._store, self._directory, self._images, self._common = store, directory, images, common

    def volume(self, pod: Object, folder: Path, volume: Object) -> Path:
        """Return where a volume of a pod is on this machine, made where it has to be.

        Raises:
            Waits: It cannot be mounted.
        """
        name, namespace = volume["name"], pod["metadata"]["namespace"]
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
            if "OrCreate" in volume["hostPath"].get("type", ""):
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                said = f'MountVolume.SetUp failed for volume "{name}": hostPath type check failed: {path} is not there'
                raise Waits("ContainerCreating", said, "FailedMount")
            return path
        target = folder / "volumes" / name
        target.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume or "persistentVolumeClaim" in volume:
            target.chmod(0o777)
            claim = volume.get("persistentVolumeClaim")
            return target if claim is None else self._claimed(namespace, claim["claimName"])
        for source in (volume.get("projected") or {}).get("sources") or [volume]:
            for kind in ("secret", "configMap"):
                if kind in source:
                    self._fill(target, namespace, name, kind, source[kind])
        return target

    def _claimed(self, namespace: str, name: str) -> Path:
        found = self._store.find(self._store.kind("persistentvolumeclaims"), namespace, name)
        if found is None:
            raise Waits("ContainerCreating", f'persistentvolumeclaim "{name}" not found', "FailedMount")
        path = self._directory.with_name("claims") / namespace / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        return path

    def _fill(self, target: Path, namespace: str, volume: str, kind: str, source: Object) -> None:
        name = source.get("secretName") or source.get("name")
        data = self._data(namespace, kind, name)
        if data is None:
            if source.get("optional"):
                return
            said = f'MountVolume.SetUp failed for volume "{volume}" : {kind.lower()} "{name}" not found'
            raise Waits("ContainerCreating", said, "FailedMount")
        items = {one["key"]: one["path"] for one in source.get("items") or []} or {key: key for key in data}
        for key, path in items.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_bytes(data[key])
                file.chmod(source.get("defaultMode", 0o644))

    def _data(self, namespace: str, kind: str, name: str) -> dict[str, bytes] | None:
        found = self._store.find(self._store.kind("secrets" if kind == "secret" else "configmaps"), namespace, name)
        if found is None:
            return None
        plain = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return {key: base64.b64decode(value) for key, value in plain.items()} if kind == "secret" else plain

    def environment(self, pod: Object, spec: Object, address: str) -> dict[str, str]:
        """Return the environment of a container.

        Raises:
            Waits: Something that it refers to is not there.
        """
        namespace = pod["metadata"]["namespace"]
        own = next(found for pattern, found in self._images.items() if fnmatch.fnmatch(spec["image"], pattern))
        result = {**self._common, **own, "HOSTNAME": hostname(pod), "HOME": "/root"}
        for one in spec.get("envFrom") or []:
            kind = "secret" if "secretRef" in one else "configMap"
            reference = one[f"{kind}Ref"]
            data = self._data(namespace, kind, reference["name"])
            if data is None and not reference.get("optional"):
                said = f'{kind.lower()} "{reference["name"]}" not found'
                raise Waits("CreateContainerConfigError", said)
            result |= {one.get("prefix", "") + key: value.decode() for key, value in (data or {}).items()}
        for one in spec.get("env") or []:
            if "valueFrom" not in one:
                result[one["name"]] = expanded(one.get("value") or "", result)
                continue
            value = self._value_from(pod, spec, address, one["valueFrom"])
            if value is not None:
                result[one["name"]] = value
        return result

    def _value_from(self, pod: Object, spec: Object, address: str, source: Object) -> str | None:
        if "fieldRef" in source:
            return _field(pod, source["fieldRef"]["fieldPath"], address)
        if "resourceFieldRef" in source:
            kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
            return str(((spec.get("resources") or {}).get(kind) or {}).get(name, "0"))
        kind = "secret" if "secretKeyRef" in source else "configMap"
        reference = source[f"{kind}KeyRef"]
        data = self._data(pod["metadata"]["namespace"], kind, reference["name"])
        if data is not None and reference["key"] in data:
            return data[reference["key"]].decode()
        if reference.get("optional"):
            return None
        said = (
            f'{kind.lower()} "{reference["name"]}" not found'
            if data is None
            else f"couldn't find key {reference['key']}"
        )
        raise Waits("CreateContainerConfigError", said)


def hostname(pod: Object) -> str:
    """Return the host name of a pod."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Put variables into `$(NAME)`; `$$(NAME)` stays."""
    found = re.sub(r"(?<!\$)\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), text)
    return found.replace("$$(", "$(")


def _field(pod: Object, path: str, address: str) -> str:
    if matched := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str((pod["metadata"].get(matched[1]) or {}).get(matched[2], ""))
    fixed = {"status.podIP": address, "status.hostIP": "127.0.0.1"}
    if path in fixed:
        return fixed[path]
    found: Any = pod
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found)
