"""The environment of a task's entrypoint: a scrubbed base, the experiment's variables, and detlab's variables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from detlab.launch.python_program import KEPT
from detlab.launch.taskdir import RUN_TOKEN
from detlab.loopback import VARIABLE as TRUSTED_UIDS
from detlab.schemas.runtimes import PROCESS

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH", TRUSTED_UIDS)
"""The only variables of the agent that a task sees. Anything else may be a secret of the operator."""

PLUGINS = Path(__file__).resolve().parent / "plugins"
"""Entry points for libraries of others, found by the metadata of a package: detlab itself may not be installed."""

NO_PROXY = ("no_proxy", "NO_PROXY")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def base_environment(agent: Mapping[str, str], *, bin_dir: Path, home: Path, user: str, tmp: Path) -> dict[str, str]:
    """Return the scrubbed base of the launcher's and the task's environment.

    Args:
        agent: The agent's own environment.
        bin_dir: `bin` of the Python environment that the task runs in; first in PATH.
        home: HOME.
        user: USER and LOGNAME.
        tmp: TMPDIR.
    """
    env = {name: agent[name] for name in PASSED_ON if name in agent}
    env.setdefault("LANG", "C.UTF-8")
    env.update(
        PATH=f"{bin_dir}:{SYSTEM_PATH}",
        HOME=str(home),
        USER=user,
        LOGNAME=user,
        TMPDIR=str(tmp),
    )
    return env


def without_proxy(environ: Mapping[str, str], hosts: Iterable[str]) -> dict[str, str]:
    """Return `no_proxy` and `NO_PROXY` with these hosts added to what an environment says: libraries read either."""
    said = ",".join(environ.get(name, "") for name in NO_PROXY).split(",")
    names = [*filter(None, (name.strip() for name in said)), *hosts]
    text = ",".join(dict.fromkeys(names))
    return dict.fromkeys(NO_PROXY, text)


def source_path(agent: Mapping[str, str]) -> dict[str, str]:
    """Return the PYTHONPATH of a task where detlab runs from its sources, not installed; else nothing."""
    root = str(Path(__file__).resolve().parents[2])
    return {"PYTHONPATH": root} if root in agent.get("PYTHONPATH", "").split(os.pathsep) else {}


def entrypoint_environment(base: Mapping[str, str], launch: Mapping[str, Any], task_dir: Path) -> dict[str, str]:
    """Return the environment of the entrypoint.

    Args:
        base: The launcher's own environment: scrubbed, with what the agent says about the slots.
        launch: The Launch message as JSON.
        task_dir: The task's directory.
    """
    info = launch["info"]
    experiment = {str(name): str(value) for name, value in launch.get("environment", {}).items()}
    env = {**base, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **experiment}
    # What is ours comes last: an experiment cannot make its task take another one's place or slots.
    env.update(
        DET_TASK_DIR=str(task_dir),
        DET_MASTER=str(info["master_url"]),
        DET_CLUSTER_ID=str(info["cluster_id"]),
        DET_AGENT_ID=str(info["agent_id"]),
        DET_EXPERIMENT_ID=str(info["experiment_id"]),
        DET_TRIAL_ID=str(info["trial_id"]),
        DET_TRIAL_SEED=str(info["trial_seed"]),
        DET_TASK_ID=str(info["task_id"]),
        DET_ALLOCATION_ID=str(info["allocation_id"]),
        DET_RUNTIME=str(launch.get("runtime", "process")),
        DET_TASK_TYPE=str(info.get("task_type", "TRIAL")),
        DET_SLOT_IDS=json.dumps(info["slot_ids"]),
        DET_DEVICE_SHARES=json.dumps(info.get("device_shares", [])),
        DET_HPARAMS=json.dumps(info.get("hparams", {})),
        DET_UNIQUE_PORT_OFFSET=base.get("DET_UNIQUE_PORT_OFFSET", "0"),
    )
    run_token = task_dir / RUN_TOKEN
    if run_token.is_file():
        env["DET_TOKEN_FILE"] = str(run_token)
    # A proxy that the experiment or its image names is for the world outside.
    env.update(without_proxy(env, (*LOOPBACK, urlsplit(str(info["master_url"])).hostname or "localhost")))
    for name in ("DET_SERVICE_FD", "DET_SERVICE_SOCKET", KEPT):  # the agent alone passes a socket on
        env.pop(name, None)
    for name in (
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "DET_SERVICE_ADDRESS",
        "DET_SERVICE_PORT",
        "DET_SERVICE_FD",
        "DET_SERVICE_SOCKET",
        "DET_SERVICE_CERT_FILE",
        "DET_SERVICE_KEY_FILE",
        "DET_MASTER_CERT_FILE",
        "DET_NETWORK",
        "DET_NODE_ADDRESS",
    ):
        if name in base:
            env[name] = base[name]
    if "PYTHONPATH" in base and "PYTHONPATH" in experiment:
        env["PYTHONPATH"] = f"{experiment['PYTHONPATH']}:{base['PYTHONPATH']}"  # detlab itself may be on ours
    if env["DET_TASK_TYPE"] == "TRIAL" and "MLFLOW_TRACKING_URI" not in env:
        env.update(mlflow_environment(env, copied="PYTHONPATH" in base or env["DET_RUNTIME"] != PROCESS))
    return env


def mlflow_environment(env: Mapping[str, str], *, copied: bool) -> dict[str, str]:
    """Return what makes MLflow's client in a trial log into the trial; where its code names a server, that one counts.

    Args:
        env: The environment of the entrypoint without it.
        copied: Whether detlab may be there without being installed, as in containers. A path that differs from the
            agent's would have trials of the process runtime start cold.
    """
    master = env["DET_MASTER"].rstrip("/")
    found = {"MLFLOW_TRACKING_URI": f"{master}/mlflow", "MLFLOW_TRACKING_AUTH": "detlab"}
    if copied:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(PLUGINS)]))
    certificate = env.get("DET_MASTER_CERT_FILE") or env.get("SSL_CERT_FILE")
    if certificate and master.startswith("https:"):
        found["MLFLOW_TRACKING_SERVER_CERT_PATH"] = env.get("MLFLOW_TRACKING_SERVER_CERT_PATH", certificate)
    return found
