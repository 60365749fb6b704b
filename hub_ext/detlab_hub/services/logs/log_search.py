"""Pages of output for users: filters run in the database, regular expressions in threads, by RE2.

Every search is bounded: a filter reads so many chunks for so much time, an expression is tried on so many lines for so
much time. A page may then be short, or empty, and says where to continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.patterns import BadPattern, check_pattern
from detlab.schemas.wire import LogLine
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.logs.matching import search_lines
from detlab_hub.services.views.pages import PAGE_BYTES, within
from detlab_hub.store.queries.logs import cuts
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.logs.lines import Edges, Holder, Wanted

REGEX_LINES = 5_000
"""Lines that an expression is matched against in one request."""
REGEX_CHARS = 4_000_000
"""Approximate number of characters of these lines."""
REGEX_MOST = 50_000
"""Most lines that an expression is matched against for one page."""
PAGE_SECONDS = 3.0
"""Seconds after which the page of an expression ends, whatever was found."""
MOST_WITH_CONTEXT = 200
"""Most lines of a page that comes with what stands around them."""
_SPECIAL = frozenset(".^$*+?{}[]\\|()")


class BadRegex(DetlabError):
    """A pattern is not a regular expression of RE2."""

    default_code = "logs.regex"


class LogSearch:
    """Reads pages of output."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    async def page(
        self,
        user: str,
        whose: Callable[[Session], Holder],
        wanted: Wanted,
        regex: str | None = None,
        context: int = 0,
    ) -> tuple[list[LogLine], Edges]:
        """Return lines, in order, and where to continue.

        Args:
            user: Who asks: searches of several users take turns.
            whose: Returns whose output is read; called anew in each read, and raises if the caller may not read it.
            wanted: Which lines.
            regex: What must also be found in them; None: nothing.
            context: So many lines before and after each come with it; the edges name them. The page is then shorter.

        Raises:
            BadRegex: It is not a valid regular expression.
            Unavailable: Too many searches wait.
        """
        if context and (regex or wanted.picky):
            count = min(wanted.count, MOST_WITH_CONTEXT)
            asked = replace(wanted, limit=count, tail=None if wanted.tail is None else count)
            lines, edges = await self._page(user, whose, asked, regex, PAGE_BYTES // 2)
            add = partial(_with_context, lines, edges, whose=whose, wanted=wanted, count=context)
            return await self._context.read(add)
        return await self._page(user, whose, wanted, regex, PAGE_BYTES)

    async def _page(
        self, user: str, whose: Callable[[Session], Holder], wanted: Wanted, regex: str | None, most: int
    ) -> tuple[list[LogLine], Edges]:
        if not regex:
            return _fitting(*await self._read(user, whose, replace(wanted, chars=most)), wanted, most)
        _check(regex)
        if not wanted.search and (text := required_text(regex)):
            # Of lines without it nothing need come here; the case is the expression's matter.
            wanted = replace(wanted, search=text)
        return _fitting(*await self._matching(user, whose, wanted, regex), wanted, most)

    async def _matching(
        self, user: str, whose: Callable[[Session], Holder], wanted: Wanted, regex: str
    ) -> tuple[list[LogLine], Edges]:
        backwards, count = wanted.backwards, wanted.count
        if count <= 0:
            return [], Edges()
        found: list[LogLine] = []
        cut = Edges()
        looked, end = 0, time.monotonic() + PAGE_SECONDS
        part = replace(wanted, limit=REGEX_LINES, tail=REGEX_LINES if backwards else None, chars=REGEX_CHARS)
        while True:
            lines, edges = await self._read(user, whose, part)
            edge = edges.older if backwards else edges.next
            way = lines[::-1] if backwards else lines
            hits, tried = await self._context.workers.searches.run(
                user, search_lines, regex, [line.text for line in way], max(0.0, end - time.monotonic())
            )
            matched = [way[at] for at in hits]
            found = [*matched[::-1], *found] if backwards else [*found, *matched]
            if tried < len(way):
                edge = way[tried - 1].id
            cut = edges if edges.removed else cut
            if len(found) >= count or sum(len(line.text) for line in found) >= PAGE_BYTES:
                found = found[-count:] if backwards else found[:count]
                edge = found[0].id if backwards else found[-1].id
                break
            # Fewer lines than were asked for: the database has done all that it does for a question, or they are long.
            looked += REGEX_LINES
            if tried < len(way) or edge is None or looked >= REGEX_MOST or time.monotonic() >= end:
                break
            part = replace(part, before=edge) if backwards else replace(part, after=edge)
        return found, replace(cut, older=edge, next=None) if backwards else replace(cut, older=None, next=edge)

    async def _read(self, user: str, whose: Callable[[Session], Holder], wanted: Wanted) -> tuple[list[LogLine], Edges]:
        if not wanted.picky:
            return await self._context.read(partial(_pick, whose=whose, wanted=wanted))
        async with self._context.searching.of(user):
            return await self._context.read(partial(_pick, whose=whose, wanted=wanted))


def _with_context(
    lines: list[LogLine], edges: Edges, s: Session, *, whose: Callable[[Session], Holder], wanted: Wanted, count: int
) -> tuple[list[LogLine], Edges]:
    """Add what stands around the lines, in order."""
    most = PAGE_BYTES // 2
    beside = within(logs.around(s, whose(s), [line.id for line in lines], count, wanted, most), most)
    both = sorted([*lines, *beside], key=lambda line: line.id)
    return both, replace(edges, context=tuple(line.id for line in beside))


def _fitting(lines: list[LogLine], edges: Edges, wanted: Wanted, most: int) -> tuple[list[LogLine], Edges]:
    """Return those lines that fit into a page, and where to continue."""
    way = lines[::-1] if wanted.backwards else lines
    shown = within(way, most)
    if len(shown) == len(lines):
        return lines, edges
    last = shown[-1].id
    return (shown[::-1], replace(edges, older=last)) if wanted.backwards else (shown, replace(edges, next=last))


def _pick(s: Session, whose: Callable[[Session], Holder], wanted: Wanted) -> tuple[list[LogLine], Edges]:
    holder = whose(s)
    lines, edges = logs.pick(s, holder, wanted)
    cut = None if wanted.after else cuts.of(s, holder)
    return lines, edges if cut is None else replace(edges, removed=cut.lines, removed_at=cut.at)


def required_text(regex: str) -> str | None:
    """Return a text that every match begins with; None if there is no such text, or it is not obvious."""
    if "(?#" in regex:
        return None  # in a comment parentheses need not match
    end = next((at for at, letter in enumerate(regex) if letter in _SPECIAL), len(regex))
    if end < len(regex) and regex[end] in "?*{":
        end -= 1
    return None if end < 1 or _has_branches(regex) else regex[:end][: logs.SEARCH_CHARS]


def _has_branches(regex: str) -> bool:
    """Whether there may be a `|` outside of all groups."""
    depth, escaped = 0, False
    for letter in regex:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == "[":
            return "|" in regex  # what is in a set is nothing to count
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "|" and depth <= 0:
            return True
    return False


def _check(regex: str) -> None:
    try:
        check_pattern(regex)
    except BadPattern as error:
        raise BadRegex(f"{regex[:100]!r} {error}", hint=error.hint) from error
