"""The options of `det agent run --kubernetes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from detlab_agent.runtimes.flags import RuntimeFlags


@dataclass(frozen=True)
class KubernetesFlags:
    """How an agent reaches its cluster.

    Attributes:
        kubeconfig: File that says how; None for the usual places.
        context: Its context; None for the current one.
        namespace: Namespace of the pods; None for the context's.
        settings: File with the rest of the settings; see `options.read_options`.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    settings: Path | None = None


def _read(given: Mapping[str, Any]) -> KubernetesFlags:
    return KubernetesFlags(
        given["kubeconfig"], given["kube_context"], given["kube_namespace"], given["kubernetes_settings"]
    )


_FILE = click.Path(dir_okay=False, path_type=Path)
FLAGS = RuntimeFlags(
    "kubernetes",
    (
        click.option(
            "--kubernetes", is_flag=True, help="Speak for the nodes of a Kubernetes cluster, and run tasks as pods."
        ),
        click.option(
            "--kubeconfig",
            type=_FILE,
            help="How to reach it [default: this pod's account, $KUBECONFIG, ~/.kube/config].",
        ),
        click.option("--kube-context", metavar="NAME", help="Context of the kubeconfig [default: its current one]."),
        click.option(
            "--namespace", "kube_namespace", metavar="NAME", help="Namespace of the pods [default: the context's]."
        ),
        click.option(
            "--kubernetes-settings", type=_FILE, help="YAML file: image, pools, GPU resources, tolerations, …"
        ),
    ),
    _read,
    whole_cluster=True,
)
