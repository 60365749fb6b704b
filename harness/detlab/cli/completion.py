"""What the Tab key offers: ids of experiments, names of workspaces and of saved views.

A Tab key is no place to say what is wrong: without an answer within a second there is nothing to offer.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from detlab.cli.invocation import Invocation
from detlab.cli.output.printing import clean
from detlab.schemas.wire.finding import FilteredTable

if TYPE_CHECKING:
    from detlab.client.client import Client

SECONDS = 1.0
MOST = 50
_TABLES: dict[str, FilteredTable] = {"search": "trials", "list": "experiments"}
_log = logging.getLogger(__name__)


def experiment_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ids of the newest experiments, with their names."""
    del param
    return _offered(
        ctx, incomplete, lambda client: ((str(one.id), one.name) for one in client.list_experiments(limit=MOST))
    )


def workspace_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer workspaces in which the user has a role: their own by the name alone, others with the owner."""
    del param

    def named(client: Client) -> Iterable[tuple[str, str]]:
        found = client.list_workspaces()
        mine = {one.view.owner for one in found if one.view.personal}
        return [
            (one.view.name if one.view.owner in mine else one.reference, one.view.description)
            for one in found
            if not one.view.personal
        ]

    return _offered(ctx, incomplete, named)


def view_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the user's saved views: of the table that the command is about, if it is about one."""
    del param
    table = _TABLES.get(ctx.info_name or "")
    return _offered(ctx, incomplete, lambda client: ((one.name, one.filter) for one in client.list_saved_views(table)))


def _offered(
    ctx: click.Context, incomplete: str, ask: Callable[[Client], Iterable[tuple[str, str]]]
) -> list[CompletionItem]:
    """Return words that begin like what is written, quoted for the shell where they have to be."""
    from detlab.client.client import Client
    from detlab.client.transport.calls import Retries

    invocation = ctx.find_object(Invocation) or Invocation()
    try:
        with Client(invocation.master, timeout=SECONDS, backoff=Retries(attempts=0, refused=0)) as client:
            found = list(ask(client))
    except Exception:  # a traceback would end up in the prompt
        _log.debug("nothing to complete", exc_info=True)
        return []
    begun = incomplete.lstrip("'\"")
    return [
        CompletionItem(shlex.quote(word), help=clean(about)[:60])
        for word, about in found
        if word.startswith(begun) and clean(word) == word
    ]
