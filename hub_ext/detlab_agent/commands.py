"""`det agent run`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click
import platformdirs

from detlab.errors import DetlabError
from detlab.launch.identity import DEFAULT_RANGE, IdentityError, parse_range
from detlab_agent.daemon import AgentError, AgentSettings, default_agent_id, read_user_map, run_agent
from detlab_agent.endpoints import UnsafeMaster, find_endpoints
from detlab_agent.slots import GpuError


def _range(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    try:
        return parse_range(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


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
@click.option("--slots", type=click.IntRange(min=0), help="CPU slots, or the most GPUs to offer.")
@click.option("--name", default=default_agent_id, show_default="the machine's name", metavar="ID")
@click.option("--enrolment-token-file", type=_FILE, help="Needed for the first connection.")
@click.option(
    "--uid-range",
    default="{}-{}".format(*DEFAULT_RANGE),
    show_default=True,
    callback=_range,
    metavar="A-B",
    help="uids that an agent run by root gives to hub users.",
)
@click.option("--user-map", type=_FILE, help='JSON: hub user to uid, such as {"alice": 1005}.')
@click.option("--users-file", type=_FILE, help="Where allocated uids are kept [default: DIR/users.json].")
@click.option("--serves-user", metavar="NAME", help="The hub user of an agent that is not run by root.")
@click.option("--insecure-http", is_flag=True, help="Send the token over plain http to another machine.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING"]))
def run(
    *,
    master: str,
    directory: Path,
    slots: int | None,
    name: str,
    enrolment_token_file: Path | None,
    uid_range: tuple[int, int],
    user_map: Path | None,
    users_file: Path | None,
    serves_user: str | None,
    insecure_http: bool,
    log_level: str,
) -> None:
    """Offer this machine's slots to a cluster and run its tasks.

    The agent dials out and listens on nothing. Its tasks survive its end and are taken up again at its next start.
    """
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        settings = AgentSettings(
            endpoints=find_endpoints(master, insecure_http=insecure_http),
            directory=directory,
            agent_id=name,
            slots=slots,
            enrolment_token_file=enrolment_token_file,
            users_file=users_file,
            uid_range=uid_range,
            user_map=read_user_map(user_map) if user_map else None,
            serves_user=serves_user,
        )
        asyncio.run(run_agent(settings))
    except (AgentError, IdentityError, GpuError, UnsafeMaster, DetlabError) as error:
        raise click.ClickException(str(error)) from error
