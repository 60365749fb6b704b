"""Nodes of the fake cluster that run their pods, as processes of this machine (`container.py`)."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.kubernetes.fake.inputs import Inputs, Waits, expanded, hostname
from testbed.kubernetes.fake.resources import Object
from testbed.kubernetes.fake.scheduler import emit, with_condition
from testbed.kubernetes.fake.store import Change, Store, now

STARTER = Path(__file__).with_name("container.py")
ROOT = Path(__file__).parents[4]
_AGAIN = 0.2
_LONGEST_LINE = 1 << 20


@dataclass
class Log:
    """What a container has said: time and line."""

    lines: list[tuple[str, bytes]] = field(default_factory=list)
    over: bool = False


@dataclass
class Container:
    """One container that was started."""

    process: asyncio.subprocess.Process
    folder: Path
    started: str = field(default_factory=now)
    reason: str = ""

    def first(self) -> int | None:
        """Return the pid, on this machine, of the container's first process."""
        at = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError):
            if words := at.read_text(encoding="ascii").split():
                return int(words[0])
        return None

    def signal(self, number: int) -> None:
        """Signal the first process; SIGKILL takes all with it."""
        pid = self.first()
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, number)
                elif number == signal.SIGKILL:  # it is about to start, and goes with its parent
                    self.process.kill()

    def state(self, message: str) -> Object:
        """Return how it ended, as a status has it."""
        code = self.process.returncode or 0
        code = 128 - code if code < 0 else code
        failed = (self.folder / "failed").read_text(encoding="utf-8", errors="replace")
        reason = self.reason or ("StartError" if failed else "Completed" if code == 0 else "Error")
        ended = {"exitCode": code, "reason": reason, "startedAt": self.started, "finishedAt": now()}
        said = f"failed to create containerd task: {failed}: unknown" if failed else message
        return {
            "terminated": {**ended, **({"message": said} if said else {}), "containerID": f"fake://{self.process.pid}"}
        }


class Kubelet:
    """All nodes that run pods. The arguments are as of `FakeCluster`."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        hidden: Sequence[Path],
        images: Mapping[str, Mapping[str, str]] | None,
        environment: Mapping[str, str],
    ) -> None:
        self.store, self.directory, self.hidden = store, directory, list(hidden)
        self.images = {"*": {}} if images is None else dict(images)
        self._inputs = Inputs(store, directory, self.images, environment)
        self.nodes: set[str] = set()
        self._lost: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._containers: dict[str, dict[str, Container]] = {}
        self._logs: dict[tuple[str, str], Log] = {}
        self._addresses = iter(f"127.77.{n // 250}.{n % 250 + 2}" for n in range(60000))

    @property
    def pods(self) -> Any:
        """The kind of pods."""
        return self.store.kind("pods")

    def start(self) -> None:
        """Begin, in the running loop."""
        self.store.listeners.add(self._note)
        for pod in list(self.store.all(self.pods)):
            self._look(pod)

    async def stop(self) -> None:
        """End every container."""
        self.store.listeners.discard(self._note)
        tasks = list(self._tasks.values())
        for containers in self._containers.values():
            for container in containers.values():
                container.signal(signal.SIGKILL)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, change: Change) -> None:
        if change.resource.plural == "pods":
            if change.deleted:
                self._gone(change.after)
            else:
                self._look(change.after)

    def _look(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName")
        if node not in self.nodes or node in self._lost or uid in self._tasks:
            return
        self._tasks[uid] = asyncio.get_running_loop().create_task(self._run(pod))

    def _gone(self, pod: Object) -> None:
        """End what still runs of a pod that was removed by force."""
        for container in self._containers.get(pod["metadata"]["uid"], {}).values():
            container.signal(signal.SIGKILL)

    # --- what tests do to pods ----------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """End all of a node at once, and say nothing of it."""
        self._lost.add(node)
        for pod in list(self.store.all(self.pods)):
            if pod["spec"].get("nodeName") == node:
                self._gone(pod)
                if task := self._tasks.get(pod["metadata"]["uid"]):
                    task.cancel()

    def kill(self, namespace: str, name: str, reason: str) -> None:
        """SIGKILL a pod's containers."""
        pod = self.store.get(self.pods, namespace, name)
        for container in self._containers.get(pod["metadata"]["uid"], {}).values():
            container.reason = reason
            container.signal(signal.SIGKILL)

    def evict(self, namespace: str, name: str, message: str) -> None:
        """End a pod for want of something on its node."""
        pod = self.store.get(self.pods, namespace, name)
        status = {"phase": "Failed", "reason": "Evicted", "message": message, "startTime": now()}
        self.store.modify(self.pods, namespace, name, lambda one: one.update(status=status))
        emit(self.store, pod, "Warning", "Evicted", message, "kubelet")
        self._gone(pod)

    def log(self, pod: Object, container: str) -> Log | None:
        """Return what a container has said; None if it has not started."""
        return self._logs.get((pod["metadata"]["uid"], container))

    async def execute(self, pod: Object, container: str, command: Sequence[str]) -> tuple[int, bytes]:
        """Run a command in a container; return its exit status and what it said.

        Raises:
            LookupError: The container does not run.
        """
        found = self._containers.get(pod["metadata"]["uid"], {}).get(container)
        pid = None if found is None else found.first()
        if found is None or pid is None:
            raise LookupError(f"container {container} is not running")
        spec = json.loads((found.folder / "spec.json").read_text(encoding="utf-8"))
        words = ["nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd"]
        if os.geteuid() != 0:
            words += ["--user", "--preserve-credentials"]
        elif spec["uid"] is not None:
            words += ["--setuid", str(spec["uid"]), "--setgid", str(spec["gid"])]
        environment = [f"{key}={value}" for key, value in spec["env"].items()]
        process = await asyncio.create_subprocess_exec(
            *(*words, "/usr/bin/env", "-i", *environment, *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said

    # --- one pod ------------------------------------------------------------------------------------------

    async def _run(self, pod: Object) -> None:
        meta = pod["metadata"]
        folder = self.directory / meta["uid"]
        folder.mkdir(parents=True)
        folder.chmod(0o711)
        address = next(self._addresses)
        self._containers[meta["uid"]] = {}
        try:
            self._status(pod, hostIP="127.0.0.1", podIP=address, podIPs=[{"ip": address}], startTime=now())
            await self._live(pod, folder, address)
        finally:
            for container in self._containers.pop(meta["uid"], {}).values():
                container.signal(signal.SIGKILL)
                await container.process.wait()
            self._tasks.pop(meta["uid"], None)
            shutil.rmtree(folder, ignore_errors=True)

    async def _live(self, pod: Object, folder: Path, address: str) -> None:
        spec = pod["spec"]
        main = asyncio.gather(self._containers_of(pod, folder, address))
        ended = asyncio.ensure_future(self._until_deleted(pod))
        try:
            deadline = spec.get("activeDeadlineSeconds")
            await asyncio.wait({main, ended}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if not main.done() and not ended.done():
                await self._end(pod, main, spec["terminationGracePeriodSeconds"])
                message = "Pod was active on the node longer than the specified deadline"
                self._status(pod, phase="Failed", reason="DeadlineExceeded", message=message)
            elif not main.done():
                current = ended.result()
                grace = None if current is None else current["metadata"].get("deletionGracePeriodSeconds", 0)
                await self._end(pod, main, grace or 0)
            else:
                main.result()
            await ended
        finally:  # a lost node says no more
            main.cancel()
            ended.cancel()
        found = self.store.find(self.pods, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.store.remove(self.pods, found)

    async def _end(self, pod: Object, main: asyncio.Future[Any], grace: float) -> None:
        """Ask the containers to end, and make them."""
        until = time.monotonic() + grace
        asked: set[str] = set()
        while not main.done():
            running = self._containers.get(pod["metadata"]["uid"], {})
            for name, container in list(running.items()):
                if time.monotonic() > until:
                    container.signal(signal.SIGKILL)
                elif name not in asked and container.first() is not None:
                    container.signal(signal.SIGTERM)
                    asked.add(name)
            if all(one.process.returncode is not None for one in running.values()) and not main.done():
                await asyncio.sleep(0.05)
                if all(one.process.returncode is not None for one in running.values()) and not main.done():
                    main.cancel()
            await asyncio.wait({main}, timeout=0.05)

    async def _until_deleted(self, pod: Object) -> Object | None:
        """Wait until a pod is to be deleted; None if it is gone already."""
        meta = pod["metadata"]
        while True:
            found = self.store.find(self.pods, meta["namespace"], meta["name"])
            if found is None or found["metadata"]["uid"] != meta["uid"]:
                return None
            if found["metadata"].get("deletionTimestamp"):
                return found
            await asyncio.sleep(0.05)

    async def _containers_of(self, pod: Object, folder: Path, address: str) -> None:
        spec, states = pod["spec"], {}
        names = [one["name"] for one in spec["containers"]]
        for one in spec.get("initContainers") or []:
            state = await self._container(pod, folder, address, one, states, init=True)
            if state["terminated"]["exitCode"] != 0:
                return self._over(pod, "Failed")
        self._status(pod, condition=("Initialized", "True"))
        ends = await asyncio.gather(*(self._container(pod, folder, address, one, states) for one in spec["containers"]))
        codes = [end["terminated"]["exitCode"] for end in ends]
        assert len(codes) == len(names)
        return self._over(pod, "Failed" if any(codes) else "Succeeded")

    def _over(self, pod: Object, phase: str) -> None:
        self._status(pod, phase=phase, condition=("Ready", "False"))

    async def _container(
        self, pod: Object, folder: Path, address: str, spec: Object, states: dict[str, Object], *, init: bool = False
    ) -> Object:
        """Run a container until it is over for good; return its last state."""
        key, name, again = (pod["metadata"]["uid"], spec["name"]), spec["name"], 0
        self._state(pod, spec, {"waiting": {"reason": "PodInitializing" if init else "ContainerCreating"}}, 0, init)
        while True:
            container = await self._started(pod, folder, address, spec, again, init)
            log = self._logs[key] = Log()
            running = {"running": {"startedAt": container.started}}
            self._state(pod, spec, running, again, init)
            reader = asyncio.ensure_future(_read(container.process, log))
            await container.process.wait()
            await reader
            log.over = True
            message = _read_message(folder, spec, container, log)
            state = container.state(message)
            self._state(pod, spec, state, again, init)
            states[name] = state
            policy, failed = pod["spec"]["restartPolicy"], state["terminated"]["exitCode"] != 0
            deleted = self.store.find(self.pods, pod["metadata"]["namespace"], pod["metadata"]["name"])
            leaving = deleted is None or deleted["metadata"].get("deletionTimestamp")
            if leaving or policy == "Never" or (not failed and (init or policy == "OnFailure")):
                return state
            again += 1
            await asyncio.sleep(_AGAIN)

    async def _started(
        self, pod: Object, folder: Path, address: str, spec: Object, again: int, init: bool
    ) -> Container:
        """Start a container as soon as its image and its volumes are there."""
        while True:
            try:
                return await self._start(pod, folder, address, spec, again)
            except Waits as waits:
                emit(self.store, pod, "Warning", waits.event, str(waits), "kubelet")
                state = {"waiting": {"reason": waits.reason, "message": str(waits)}}
                self._state(pod, spec, state, again, init)
                await asyncio.sleep(_AGAIN)

    async def _start(self, pod: Object, folder: Path, address: str, spec: Object, again: int) -> Container:
        image = spec["image"]
        if not any(fnmatch.fnmatch(image, one) for one in self.images):
            if spec["imagePullPolicy"] == "Never":
                said = f'Container image "{image}" is not present with pull policy of Never'
                raise Waits("ErrImageNeverPull", said, "ErrImageNeverPull")
            said = f'Failed to pull image "{image}": rpc error: code = NotFound desc = failed to resolve reference'
            raise Waits("ErrImagePull" if again == 0 else "ImagePullBackOff", said)
        home = folder / f"{spec['name']}-{again}"
        home.mkdir(exist_ok=True)
        volumes = {one["name"]: self._inputs.volume(pod, folder, one) for one in pod["spec"].get("volumes") or []}
        mounts: list[tuple[str, str, bool]] = []
        for one in sorted(spec.get("volumeMounts") or [], key=lambda mount: mount["mountPath"]):
            source = volumes[one["name"]] / one.get("subPath", "")
            inside = source.resolve().is_relative_to(volumes[one["name"]].resolve())
            if one.get("subPath") and not inside:
                said = f'failed to prepare subPath for volumeMount "{one["name"]}" of container "{spec["name"]}"'
                raise Waits("CreateContainerConfigError", said, "Failed")
            if one.get("subPath") and not source.exists():
                source.mkdir(parents=True)
            mounts.append((str(source), one["mountPath"], bool(one.get("readOnly"))))
        if ROOT.is_relative_to("/tmp"):  # every image has this checkout; a container has a /tmp of its own
            mounts.append((str(ROOT), str(ROOT), True))
        said = home / "said"
        said.touch()
        said.chmod(0o666)
        mounts.append((str(said), spec["terminationMessagePath"], False))
        (home / "failed").touch()
        hosts = home / "hosts"
        hosts.write_text(f"127.0.0.1\tlocalhost\n{address}\t{hostname(pod)}\n", encoding="ascii")
        mounts.append((str(hosts), "/etc/hosts", False))
        environment = self._inputs.environment(pod, spec, address)
        argv = [
            expanded(word, environment)
            for word in [*(spec.get("command") or ["sleep", "3600"]), *(spec.get("args") or [])]
        ]
        security = {**(pod["spec"].get("securityContext") or {}), **(spec.get("securityContext") or {})}
        root = os.geteuid() == 0
        uid = security.get("runAsUser") if root else None
        value = {
            "base": str(home / "root"),
            "failed": str(home / "failed"),
            "mounts": mounts,
            "hidden": [str(path) for path in [*self.hidden, self.directory]],
            "hostname": hostname(pod)[:63],
            "cwd": spec.get("workingDir") or "/",
            "argv": argv,
            "env": environment,
            "uid": uid,
            "gid": security.get("runAsGroup", uid) if root else None,
            "groups": [one for one in [security.get("fsGroup"), *security.get("supplementalGroups", [])] if one],
        }
        (home / "spec.json").write_text(json.dumps(value), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(STARTER), str(home / "spec.json")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={},
            cwd="/",
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        container = Container(process, home)
        self._containers[pod["metadata"]["uid"]][spec["name"]] = container
        emit(self.store, pod, "Normal", "Started", f"Started container {spec['name']}", "kubelet")
        return container

    # --- status -------------------------------------------------------------------------------------------

    def _status(self, pod: Object, *, condition: tuple[str, str] | None = None, **fields: Any) -> None:
        meta = pod["metadata"]

        def change(one: Object) -> None:
            if one["metadata"]["uid"] != meta["uid"] or one["status"].get("reason") == "Evicted":
                return
            one["status"].update(fields)
            if condition is not None:
                with_condition(one["status"], *condition)

        self.store.modify(self.pods, meta["namespace"], meta["name"], change)

    def _state(self, pod: Object, spec: Object, state: Object, again: int, init: bool) -> None:
        meta, kind = pod["metadata"], "initContainerStatuses" if init else "containerStatuses"
        running, name = "running" in state, spec["name"]

        def change(one: Object) -> None:
            status = one["status"]
            if one["metadata"]["uid"] != meta["uid"] or status.get("reason") == "Evicted":
                return
            found = {old["name"]: old for old in status.get(kind) or []}
            last = found.get(name, {}).get("state", {})
            found[name] = {
                "name": name,
                "state": state,
                "lastState": last if "terminated" in last and "terminated" not in state else {},
                "ready": running,
                "started": running,
                "restartCount": again,
                "image": spec["image"],
                "imageID": "",
            }
            status[kind] = list(found.values())
            total = len(one["spec"]["containers"])
            if not init and running:
                status["phase"] = "Running"
                ready = sum(old["ready"] for old in found.values()) == total
                with_condition(status, "ContainersReady", "True" if ready else "False")
                with_condition(status, "Ready", "True" if ready else "False")

        self.store.modify(self.pods, meta["namespace"], meta["name"], change)


async def _read(process: asyncio.subprocess.Process, log: Log) -> None:
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # a line longer than is kept
            continue
        if not line:
            return
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.{time.time_ns() % 10**9:09d}Z"
        log.lines.append((stamp, line.rstrip(b"\n")))


def _read_message(folder: Path, spec: Object, container: Container, log: Log) -> str:
    said = (container.folder / "said").read_bytes()[:4096].decode(errors="replace")
    if not said and spec["terminationMessagePolicy"] == "FallbackToLogsOnError" and container.process.returncode:
        said = b"\n".join(line for _, line in log.lines[-80:])[-2048:].decode(errors="replace")
    return said
