"""`det up`, `det down`, `det status` (and `preview-search`, which lives beside the searchers)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from detlab.errors import DetlabError
from detlab.pasted import word

__all__ = ["down", "status", "up"]

_DEFAULT_DIR = Path(".detlab")


def __getattr__(name: str) -> Any:
    """Load `preview_search` when it is asked for: the searchers come with numpy, which the others do not need."""
    if name == "preview_search":
        from detlab_hub.preview import preview_search

        return preview_search
    raise AttributeError(name)


_found_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state folder itself.  [default: of the cluster that other commands run here talk to]",
)


_COPY = (
    "This cluster is a copy of one that may still run. It starts nothing, and leaves the checkpoints alone: they are",
    "the original's. Once that is stopped for good: det down{0} && det up{0} --take-over",
)
"""Lines about a copy, for the option that names its folder: without it the commands might mean the original."""


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state folder itself.  [default: .detlab here, else the nearest one in a folder above]",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the Hub.  [default: as last time, else 8642]")
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="CPU slots.  [default: as last time, else GPUs if there are, else cores]",
)
@click.option("--foreground", is_flag=True, help="Stay attached; Ctrl-C shuts the cluster down.")
@click.option("--reload", is_flag=True, help="With --foreground: restart parts when their code changes.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="traitlets file for Hub and master, read after DIR/detlab_config.py.",
)
@click.option("--timeout", type=float, default=90.0, show_default=True, help="Seconds to wait for the cluster.")
@click.option("--ip", metavar="ADDRESS", help="Where to listen; 0.0.0.0: everywhere.  [default: 127.0.0.1]")
@click.option("--tls", is_flag=True, help="Speak TLS, with a certificate of its own that agents and logins pin.")
@click.option("--behind-tls-proxy", is_flag=True, help="Listen beyond loopback without TLS: a server before it has it.")
@click.option(
    "--warm-pool/--no-warm-pool",
    envvar="DETLAB_WARM_POOL",
    default=None,
    help="Start plain Python trials from a process with torch loaded.  [default: if torch is installed]",
)
@click.option(
    "--take-over", is_flag=True, help="Of a copy (restored, or moved): it owns the checkpoints now, and trains on."
)
@click.option("--renew-certificate", is_flag=True, help="Make a new certificate; agents have to pin it again.")
def up(
    *,
    folder: Path | None,
    port: int | None,
    slots: int | None,
    foreground: bool,
    reload: bool,
    config: Path | None,
    timeout: float,
    ip: str | None,
    tls: bool,
    behind_tls_proxy: bool,
    warm_pool: bool | None,
    take_over: bool,
    renew_certificate: bool,
) -> None:
    """Start a whole cluster on this machine: JupyterHub, proxy, master and one agent.

    Returns when it is healthy and its slots are registered. Starting it twice is harmless. In a folder below one that
    has a cluster, it is that one, as for all other commands; `--dir .detlab` makes a new one there. It listens on
    loopback unless told otherwise, and beyond that only with TLS.
    """
    from detlab_hub.embedded import attached, inspection, lifecycle
    from detlab_hub.embedded.state import StateFolder

    if folder is None:
        _refuse_inside_a_server()
    above = None if folder is not None else _folder_above()
    folder = folder or above or _DEFAULT_DIR
    state = StateFolder(folder)
    if renew_certificate and state.locked:
        raise DetlabError(
            "the cluster is running and serves the certificate that it has",
            hint=f"det down{_dir_option(folder)}, then this again",
        )
    if take_over and state.locked:
        named = _dir_option(folder)
        raise DetlabError("the cluster is running", hint=f"det down{named}, then det up{named} --take-over")
    last = state.read_plan()
    options = lifecycle.UpOptions(
        port=port or (lifecycle.UpOptions.port if last is None else last.port),
        slots=slots or (None if last is None else last.slots),
        config=config,
        timeout=timeout,
        ip=ip,
        tls=tls or renew_certificate,
        behind_tls_proxy=behind_tls_proxy,
        renew_certificate=renew_certificate,
        take_over=take_over,
        warm_pool=warm_pool,
        workdir=above and above.parent,
    )
    if reload and not foreground:
        raise DetlabError("--reload works in the foreground only", hint="det up --foreground --reload")
    if above is not None:
        what = "This is" if state.locked else "Starting"
        click.echo(f"{what} the cluster of {above}, in a folder above; for a new one here: det up --dir .detlab")
    if foreground:

        def ready(cluster: lifecycle.RunningCluster) -> None:
            _print_cluster(cluster, folder, attached=True)

        sys.exit(asyncio.run(attached.run(state, options, ready, click.echo, reload=reload)))
    cluster = lifecycle.up(state, options, click.echo)
    plan = cluster.plan
    other_front = (ip and plan.ip != ip) or (tls and not plan.fingerprint)
    if cluster.already and ((port and plan.port != port) or (slots and plan.slots != slots) or other_front):
        named = _dir_option(folder)
        click.echo(f"It already runs with the settings below; to change them: det down{named}, then det up{named}.")
    if not cluster.already and (said := inspection.since_last_time(last, plan)):
        click.echo(said)
    _print_cluster(cluster, folder)


def _refuse_inside_a_server() -> None:
    """Refuse to start a second cluster in the terminal of a notebook server, where nobody means one.

    Raises:
        DetlabError: This is one, and no cluster's folder is here or above.
    """
    from detlab.client.transport.discovery import Discovery

    url, found = os.environ.get("DET_URL"), Discovery.default()
    if not url or not os.environ.get("JUPYTERHUB_USER") or found.folder_to_start().exists():
        return
    raise DetlabError(
        f"this is a server of the cluster {url}; det up would start another cluster inside it",
        hint="Start and stop that one where it was started. For another one here: det up --dir .detlab",
    )


def _folder_above() -> Path | None:
    """Return the state folder in a folder above, if there is one and none here."""
    from detlab.client.transport.discovery import Discovery

    found = Discovery.default().folder_to_start()
    return None if found.parent == Path.cwd() else found


def _dir_option(folder: Path) -> str:
    """Return the option of further commands that names the cluster of a folder, "" where they find it without."""
    return "" if folder == _DEFAULT_DIR else f" --dir {word(folder)}"


def _print_cluster(cluster: Any, folder: Path, *, attached: bool = False) -> None:
    from detlab_hub.embedded.inspection import open_first, warm_pool_promise

    view, plan = cluster.view, cluster.plan
    where = _dir_option(folder)
    password = cluster.password_file.read_text(encoding="ascii").strip()
    lines = [
        "detlab is up." if not cluster.already else "detlab is up already.",
        f"  log in       {plan.public_url}/hub/login",
        f"  user         {plan.operator}",
        f"  password     {password}" if sys.stdout.isatty() else f"  password     in {cluster.password_file}",
        f"  experiments  {plan.public_url}/services/detlab/",
        f"  slots        {view.slots_total} on {view.agents} {'agent' if view.agents == 1 else 'agents'}",
        f"  warm pool    {warm_pool_promise(cluster.folder, plan)}",
        f"  state        {cluster.folder}",
    ]
    if plan.fingerprint:
        lines.append(f"  certificate  {plan.fingerprint}")
    if sys.stdout.isatty():
        lines.insert(4, f"               (kept in {cluster.password_file})")
    lines += [
        f"  {user:<12} password in {cluster.folder.password_file(user, plan.operator)}" for user in plan.extra_users
    ]
    if os.getuid() == 0:
        lines += [
            "You are root: notebook servers and tasks run under a uid of each user's own, never as root",
            "  (which: det user uids).",
        ]
    if (first := open_first(cluster.folder, plan)) is not None:
        lines += [f"To begin: log in, and open {first} in the file browser"]
    if view.is_copy:
        lines += [line.format(where) for line in _COPY]
    lines += [f"To stop it: {'Ctrl-C, or elsewhere ' if attached else ''}det down{where}"]
    click.echo("\n".join(lines))


@click.command()
@_found_dir_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds that running trials may take to save.",
)
def down(folder: Path | None, timeout: float) -> None:
    """Stop the cluster. Running trials save a checkpoint and resume at the next `det up`; no restart is counted."""
    from detlab.errors import ClusterGuessed
    from detlab.pasted import word
    from detlab_hub.embedded import inspection, lifecycle
    from detlab_hub.embedded.state import StateFolder

    folder, guessed = inspection.meant(folder, click.get_current_context().obj)
    if guessed is not None and guessed.folder == folder:
        raise ClusterGuessed(
            f"nothing here names the cluster to stop; {guessed.url} is a guess ({guessed.guess})",
            hint=f"If it is the right one: det down --dir {word(folder)}",
        )
    ending = lifecycle.down(StateFolder(folder), timeout, click.echo)
    if not ending.was_running:
        click.echo(f"No cluster runs on {folder}.")
        return
    if ending.left:
        raise DetlabError(
            f"stopped, but {ending.left} {'task' if ending.left == 1 else 'tasks'} had not left in time",
            hint="They are taken over, or started again from their last checkpoint, at the next det up.",
        )
    click.echo("Stopped. Experiments that were running continue at the next det up.")


@click.command()
@_found_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(folder: Path | None, as_json: bool) -> None:
    """Show the parts of the cluster, its slots and its experiments; exit 0 only if it is healthy."""
    from detlab_hub.embedded import inspection
    from detlab_hub.embedded.state import StateFolder

    folder, guessed = inspection.meant(folder, click.get_current_context().obj)
    if guessed is not None:
        click.echo(inspection.guess_line(folder, guessed), err=True)
    found = inspection.status(StateFolder(folder))
    if as_json:
        data = dataclasses.asdict(dataclasses.replace(found, view=None))
        data |= {"healthy": found.healthy, "view": found.view.model_dump(mode="json") if found.view else None}
        click.echo(json.dumps(data, indent=1))
    else:
        _print_status(found)
    sys.exit(0 if found.healthy else 1)


def _print_status(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if found.url and any(part.pid for part in found.parts):
        table = Table("part", "state", "pid", "up", "restarts", box=None, pad_edge=False)
        for part in found.parts:
            table.add_row(part.name, part.state, str(part.pid or ""), _span(part.uptime), str(part.restarts))
        console.print(table)
    if found.view is not None:
        view = found.view
        console.print(f"url          {found.url}", markup=False, soft_wrap=True)
        if found.fingerprint:
            console.print(f"certificate  {found.fingerprint}", markup=False, soft_wrap=True)
        console.print(f"slots        {view.slots_used} of {view.slots_total} in use, {view.agents} connected agents")
        console.print(f"experiments  {view.experiments_active} active" + (", draining" if view.draining else ""))
        if view.is_copy:
            lines = "\n".join(_COPY).format(f" --dir {word(found.folder)}")
            console.print(lines, markup=False, soft_wrap=True)
    if found.warm_pool:
        console.print(f"warm pool    {found.warm_pool}", markup=False)
    if found.problem:
        console.print(f"Not healthy: {found.problem}.", markup=False, soft_wrap=True)
        console.print(f"Next: {found.advice}", markup=False, soft_wrap=True)
    else:
        console.print("healthy")


def _span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
