"""`det master …`: the master itself."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import get_args

import click

from detlab.cli.commands.master.support import cluster_bundle
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, facts, moment, note, say, say_json, table
from detlab.cli.spans import span
from detlab.client.operations.cluster import master as operations
from detlab.schemas.wire.cluster.master import ClusterMessageReply, LogLevel, MasterLogLine

COMMANDS = {"master": "The master: what it is, its log, its settings, its message to everybody."}
_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
PAUSE = 1.0
"""Seconds between two looks at the log."""
PAGE = 1000


@click.group(cls=LazyGroup)
def master() -> None:
    """Look at the master, and tell everybody something.

    \b
    Examples:
      det master info
      det master logs --follow --level warning
      det master cluster-message set "Maintenance on Friday at 18:00"
    """


master.add_command(cluster_bundle)


@master.command()
@json_option
@pass_invocation
def info(invocation: Invocation) -> None:
    """Show the master's version and address, since when it runs, and what the cluster does.

    \b
    Example:
      det master info
    """
    view = invocation.client.session.run(operations.cluster())
    if invocation.as_json:
        say_json(view)
        return
    facts(
        [
            ("version", view.version),
            ("address", view.url),
            ("cluster", view.cluster_id),
            ("started", moment(view.started_at)),
            ("agents", view.agents),
            ("slots", f"{view.slots_used} of {view.slots_total} in use"),
            ("running", f"{view.tasks_running} trials and tasks"),
            ("experiments", f"{view.experiments_active} active"),
            ("draining", "yes: nothing new starts until it is restarted" if view.draining else None),
            ("message", None if view.message is None else clean(view.message.text)),
        ]
    )


@master.command()
@click.option("-f", "--follow", is_flag=True, help="Wait for further lines until interrupted.")
@click.option("-n", "--tail", type=click.IntRange(1, PAGE), default=100, show_default=True, help="How many lines.")
@click.option("--level", type=click.Choice(_LEVELS), default="debug", help="Only lines of this level, and above.")
@click.option("--search", default="", metavar="TEXT", help="Only lines with this text, whatever its case.")
@json_option
@pass_invocation
def logs(invocation: Invocation, follow: bool, tail: int, level: LogLevel, search: str) -> None:
    """Show the newest lines of the master's log, since it started (administrators). It keeps 10,000.

    \b
    Examples:
      det master logs -n 500
      det master logs -f --level warning
      det master logs --search webhook
    """
    page = invocation.client.session.run(operations.logs(limit=tail, level=level, search=search))
    if invocation.as_json and not follow:
        say_json(page)
        return
    _print(page.items, as_json=invocation.as_json)
    while follow:
        time.sleep(PAUSE)
        after = page.last
        page = invocation.client.session.run(operations.logs(after=after, limit=PAGE, level=level, search=search))
        if page.last < after:  # it has started anew
            note("The master has been restarted.")
            page = invocation.client.session.run(operations.logs(after=0, limit=PAGE, level=level, search=search))
        _print(page.items, as_json=invocation.as_json)


def _print(lines: list[MasterLogLine], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            say(line.model_dump_json())
        else:
            text = "\n".join(map(clean, line.text.split("\n")))
            say(f"{moment(line.at)} {line.level.upper()} {clean(line.logger)}: {text}")


@master.group(cls=LazyGroup)
def config() -> None:
    """Show the settings of the master, as its configuration files have them, below c.DetHub.

    \b
    Examples:
      det master config show
      det master config set --log-level debug
    """


@config.command()
@click.option("--all", "everything", is_flag=True, help="Also those that nobody has set.")
@csv_option
@json_option
@pass_invocation
def show(invocation: Invocation, everything: bool) -> None:
    """Show what is set, with secrets masked (administrators).

    \b
    Examples:
      det master config show
      det master config show --all --json
    """
    found = invocation.client.session.run(operations.config())
    wanted = [one for one in found.settings if everything or not one.is_default]
    if invocation.as_json:
        say_json({"log_level": found.log_level, "settings": [one.model_dump(mode="json") for one in wanted]})
        return
    rows = [(one.name, json.dumps(one.value, ensure_ascii=False), "" if one.is_default else "yes") for one in wanted]
    if wanted or invocation.as_csv:
        table(("Setting", "Value", "Set"), rows)
    else:
        say("All settings are the usual ones: det master config show --all")
    if not invocation.as_csv:
        note(f"The level of the log is {found.log_level} now.")


@config.command(name="set")
@click.option("--log-level", type=click.Choice(_LEVELS), required=True, help="Write lines of this level, and above.")
@json_option
@pass_invocation
def set_config(invocation: Invocation, log_level: LogLevel) -> None:
    """Change the level of the log, until the master's next start (administrators).

    All other settings are in its configuration file, which it reads when it starts.

    \b
    Example:
      det master config set --log-level debug
    """
    found = invocation.client.session.run(operations.set_log_level(log_level))
    if invocation.as_json:
        say_json({"log_level": found.log_level})
    else:
        say(f"The master writes lines of level {found.log_level} and above, until its next start.")


@master.group(cls=LazyGroup)
def cluster_message() -> None:
    """Tell everybody something at the top of all pages and of JupyterLab's panel.

    \b
    Examples:
      det master cluster-message set "Maintenance on Friday at 18:00" --duration 2d
      det master cluster-message clear
    """


@cluster_message.command(name="set")
@click.argument("text")
@click.option("--start", metavar="TIME", help='From when on: "2030-01-31T18:00", in your time zone.  [default: now]')
@click.option("--end", metavar="TIME", help="Until when.  [default: until it is cleared]")
@click.option("--duration", metavar="SPAN", help='Instead of --end: "2h", "3d".')
@json_option
@pass_invocation
def set_message(invocation: Invocation, text: str, start: str | None, end: str | None, duration: str | None) -> None:
    """Tell everybody something, instead of what was told before (administrators).

    \b
    Examples:
      det master cluster-message set "New GPUs are there" --duration 3d
      det master cluster-message set "Down for an hour" --start 2030-01-31T18:00 --end 2030-01-31T19:00
    """
    if end and duration:
        raise click.UsageError("give --end, or --duration, not both")
    begins = None if start is None else _time(start, "--start")
    ends = None if end is None else _time(end, "--end")
    if duration is not None:
        ends = (time.time() if begins is None else begins) + span(duration, "--duration")
    reply = invocation.client.session.run(operations.set_message(text, begins_at=begins, ends_at=ends))
    _show_message(invocation, reply)


@cluster_message.command(name="get")
@json_option
@pass_invocation
def get_message(invocation: Invocation) -> None:
    """Show what everybody is told.

    \b
    Example:
      det master cluster-message get
    """
    _show_message(invocation, invocation.client.session.run(operations.message()))


@cluster_message.command(name="clear")
@json_option
@pass_invocation
def clear_message(invocation: Invocation) -> None:
    """Take away what everybody is told (administrators).

    \b
    Example:
      det master cluster-message clear
    """
    reply = invocation.client.session.run(operations.clear_message())
    if invocation.as_json:
        say_json(reply)
    else:
        say("There was no message." if reply.message is None else f"Cleared: {clean(reply.message.text)}")


def _show_message(invocation: Invocation, reply: ClusterMessageReply) -> None:
    if invocation.as_json:
        say_json(reply)
        return
    said = reply.message
    if said is None:
        say("No message.")
        return
    say(clean(said.text))
    until = "it is cleared" if said.ends_at is None else moment(said.ends_at)
    note(f"set by {clean(said.set_by)} {moment(said.set_at)}, from {moment(said.begins_at)} until {until}")


def _time(text: str, option: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{clean(text)!r} is no time: write 2030-01-31T18:00", param_hint=option) from None
