"""`det dev …`: for people who write programs against the master's API."""

from __future__ import annotations

import json
import sys

import click

from detlab.cli.invocation import Invocation, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import say
from detlab.client.operations.cluster import master as operations
from detlab.client.transport.calls import Method
from detlab.errors import DetlabError

COMMANDS = {"dev": "For programmers: call any route of the API, print the token."}


@click.group(cls=LazyGroup)
def dev() -> None:
    """Call the API by hand. Its description: det dev curl openapi.json.

    \b
    Examples:
      det dev curl experiments/1
      det dev auth-token
    """


@dev.command()
@click.argument("path")
@click.option("-X", "--method", type=click.Choice(operations.METHODS), help="HTTP verb.  [default: GET; POST with -d]")
@click.option("-d", "--data", metavar="JSON", help="The body; `-` reads it from standard input.")
@pass_invocation
def curl(invocation: Invocation, path: str, method: Method | None, data: str | None) -> None:
    """Send a request to a route of the API, with your token, and print the answer.

    PATH is below /services/detlab/api/v1/, with or without that; it may have a query.

    \b
    Examples:
      det dev curl me
      det dev curl 'experiments?limit=2'
      det dev curl experiments/1/pause -d '{}'
    """
    text = sys.stdin.read() if data == "-" else data
    try:
        body = None if text is None else json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is no JSON: {error}", param_hint="--data") from None
    verb: Method = method or ("GET" if body is None else "POST")
    reply = invocation.client.session.run(operations.any_call(verb, path, body))
    if reply.body:
        say(operations.text_of(reply))


@dev.command()
@pass_invocation
def auth_token(invocation: Invocation) -> None:
    """Print the token that commands use now. Whoever has it can do all that you can.

    \b
    Example:
      curl -H "Authorization: token $(det dev auth-token)" http://127.0.0.1:8642/services/detlab/api/v1/me
    """
    token = invocation.client.address.token
    if token is None:
        raise DetlabError("no token is stored for this cluster", hint="det login URL")
    say(token)
