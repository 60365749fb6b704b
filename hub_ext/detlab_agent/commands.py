"""`det agent run`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import platformdirs

from detlab.errors import DetlabError
from detlab.launch.host.identity import ACCEPTED_RANGE, IdentityError, parse_range
from detlab.schemas.expconf.blocks.environment import parse_size
from detlab_agent.daemon import default_agent_id, read_user_map, run_agent
from detlab_agent.endpoints import PIN_FILE, UnsafeMaster, find_endpoints
from detlab_agent.runtimes.flags import FLAGS, asked_for, read_flags, runtime_flags
from detlab_agent.runtimes.process.network import DEFAULT_SUBNETS
from detlab_agent.runtimes.registry import RUNTIMES
from detlab_agent.settings import DEFAULT_PIDS, AgentError, AgentSettings, for_cluster
from detlab_agent.slots import GpuError


def _range(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    try:
        return parse_range(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _runtimes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in (value or "").split(",") if part.strip()))
    there = RUNTIMES.names()
    unknown = [name for name in names if name not in there]
    if unknown:
        known = ", ".join(there) or "none"
        raise click.BadParameter(f"no runtime {', '.join(unknown)} is installed here; installed: {known}")
    return names


def _ports(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    first, separator, last = value.partition("-")
    if not (separator and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 65536):
        raise click.BadParameter(f"{value!r} is not a range of ports: write for example 30000-30999")
    return int(first), int(last)


def _labels(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not (separator and name and value.isprintable() and len(value) <= LABEL_CHARS):
            raise click.BadParameter(f"{value[:80]!r} is not NAME=VALUE with at most {LABEL_CHARS} characters")
        labels[name] = text
    return labels


def _size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value[:80]!r} is not a size: write for example 120G" if value else "empty"
        ) from error


def _subnet(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}: write for example {DEFAULT_SUBNETS[0]}") from error
    if network.prefixlen > 28:
        raise click.BadParameter(f"{value}: a task needs four addresses; give at least a /28")
    return str(network)


def _cpus(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value and round(value * 1000) == 0:
        raise click.BadParameter(f"{value:g} is less than 0.001, the unit of CPUs; use 0 for no limit")
    return value


def chosen(settings: AgentSettings, asked: Sequence[str]) -> AgentSettings:
    """Return the settings with the runtimes that were asked for by options of their own, unless others were named.

    Raises:
        AgentError: One speaks for a cluster, and others are asked for.
    """
    clusters = [name for name in asked if FLAGS.load(name).whole_cluster]
    others = tuple(name for name in asked if name not in clusters)
    if not settings.runtimes:
        settings = replace(settings, runtimes=others)
    for name in clusters:
        settings = for_cluster(settings, name)
    return settings


LABEL_CHARS = 200
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="run")
@click.option("--master", required=True, metavar="URL", help="Address of the Hub or of the service.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: Path(platformdirs.user_state_dir("detlab")) / "agent",
    show_default="~/.local/state/detlab/agent",
    help="State of the agent: its key, task directories, bundles.",
)
@click.option("--slots", type=click.IntRange(min=0), help="CPU slots, or the maximum number of GPUs to offer.")
@click.option("--name", default=default_agent_id, show_default="the machine's name", metavar="ID")
@click.option("--pool", default="default", show_default=True, metavar="NAME", help="Resource pool of this agent.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=_labels,
    metavar="NAME=VALUE",
    help="Label for tasks that select agents by labels (repeatable).",
)
@click.option(
    "--max-zero-slot-tasks",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Maximum number of tasks without slots at a time.",
)
@click.option(
    "--cpus",
    type=click.FloatRange(min=0, max=1e6),
    callback=_cpus,
    help="CPUs that all tasks together may request (resources.cpus); 0: no limit [default: all the agent may use].",
)
@click.option(
    "--memory",
    callback=_size,
    metavar="SIZE",
    help="Memory that all tasks together may request, such as 120G; 0: no limit [default: all the agent may use].",
)
@click.option("--enrolment-token-file", type=_FILE, help="Needed for the first connection.")
@click.option(
    "--uid-range",
    default="{}-{}".format(*ACCEPTED_RANGE),
    show_default=True,
    callback=_range,
    metavar="A-B",
    help="uids that an agent run by root accepts for hub users; the master assigns them.",
)
@click.option("--user-map", type=_FILE, help="JSON file of Hub users with uids, to be compared with the master's uids.")
@click.option("--users-file", type=_FILE, help="uids that an earlier version gave to users [default: DIR/users.json].")
@click.option("--serves-user", metavar="NAME", help="The hub user of an agent that is not run by root.")
@click.option(
    "--runtime",
    "runtimes",
    callback=_runtimes,
    metavar="NAMES",
    help="Installed runtimes, such as process,docker [default: process, and docker if root finds an engine].",
)
@click.option(
    "--docker-host", default="", metavar="URL", help="The engine [default: $DOCKER_HOST, or its usual socket]."
)
@click.option(
    "--allow-mount",
    "allow_mounts",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory that containers may mount from (repeatable; default: none).",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="HOST[:CONTAINER][:ro]",
    help="Directory that every container mounts (repeatable).",
)
@click.option("--allow-privileges", is_flag=True, help="Allow containers to have capabilities and devices.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address under which the Hub's proxy reaches this machine; notebooks and other servers listen there.",
)
@click.option("--service-ports", callback=_ports, metavar="A-B", help="Ports for them [default: any free one].")
@click.option(
    "--homes",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for homes of users without a home on this machine [default: DIR/homes].",
)
@click.option(
    "--warm-pool/--no-warm-pool",
    envvar="DETLAB_WARM_POOL",
    default=False,
    show_default=True,
    help="Fork trials that are plain Python programs from a process that has imported torch.",
)
@click.option(
    "--task-network",
    type=click.Choice(["auto", "private", "host"]),
    default="auto",
    show_default=True,
    help="private: each task has a network namespace; host: all share this machine's; auto: private where root can.",
)
@click.option(
    "--task-subnet",
    callback=_subnet,
    metavar="A.B.C.D/N",
    help="Addresses for these namespaces [default: 10.213.0.0/16, or the next one that is free].",
)
@click.option(
    "--task-metadata",
    envvar="DET_TASK_METADATA",
    type=click.Choice(["allow", "block"]),
    default="allow",
    show_default=True,
    help="Whether tasks reach a cloud's metadata service, with this machine's credentials (block: root and iptables).",
)
@click.option(
    "--task-port",
    "task_ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    metavar="N",
    help="A port of this machine's loopback that tasks reach from there (repeatable).",
)
@click.option(
    "--task-memory",
    callback=_size,
    metavar="SIZE",
    help="Memory of a task that requests none (resources.memory), such as 16G [default: no limit].",
)
@click.option(
    "--task-pids",
    type=click.IntRange(min=0),
    default=DEFAULT_PIDS,
    show_default=True,
    help="Maximum number of processes and threads of one task; 0: no limit.",
)
@runtime_flags
@click.option("--insecure-http", is_flag=True, help="Send the token over plain http to another machine.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING"]))
def run(
    *,
    master: str,
    directory: Path,
    name: str,
    user_map: Path | None,
    task_memory: int | None,
    insecure_http: bool,
    log_level: str,
    **options: Any,
) -> None:
    """Offer this machine's slots to a cluster and run its tasks.

    The agent only opens outgoing connections. Its tasks survive if it stops, and the agent reattaches to them at its
    next start.
    """
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpcore", "docker", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        # An option has the name of its setting; the rest are those of the runtimes.
        settings = AgentSettings(
            endpoints=find_endpoints(master, insecure_http=insecure_http, pin_file=directory.absolute() / PIN_FILE),
            directory=directory,
            agent_id=name,
            user_map=read_user_map(user_map) if user_map else None,
            task_memory=task_memory or None,
            **{each.name: options.pop(each.name) for each in fields(AgentSettings) if each.name in options},
            of_runtimes=read_flags(options),
        )
        asyncio.run(run_agent(chosen(settings, asked_for(options))))
    except (AgentError, IdentityError, GpuError, UnsafeMaster, DetlabError) as error:
        raise click.ClickException(str(error)) from error
