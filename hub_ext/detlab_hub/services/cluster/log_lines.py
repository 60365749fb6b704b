"""The master's own log: how its lines are written, and the newest ones, which administrators may read.

Lines quote what callers sent: no control character of theirs may forge a line or reach a terminal.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from itertools import islice

from detlab.schemas.wire.cluster.master import MasterLogLine, MasterLogPage

KEPT = 10_000
"""Lines of this process that administrators may read."""
LINE_CHARS = 8_000
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """Lines for people."""

    def __init__(self, form: str = _FORMAT) -> None:
        super().__init__(form)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (name of the base class)
        """Return the message with its control characters spelt out; tracebacks stay as they are."""
        return _spelt_out(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """Lines for programs: a JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message and, where there is one, the exception."""
        said = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True)


class RecentLines(logging.Handler):
    """Keeps the newest lines of this process in memory."""

    def __init__(self, most: int = KEPT) -> None:
        super().__init__()
        self.setFormatter(OneLine("%(message)s"))
        self._lines: deque[MasterLogLine] = deque(maxlen=most)
        self._next = 1
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            text = self.format(record)[:LINE_CHARS].encode("utf-8", "backslashreplace").decode()
        except Exception:  # a message that does not fit its arguments: as logging's own handlers do
            self.handleError(record)
            return
        level, name = record.levelname.lower(), _spelt_out(record.name)
        with self._guard:
            self._lines.append(
                MasterLogLine.model_construct(id=self._next, at=record.created, level=level, logger=name, text=text)
            )
            self._next += 1

    def page(self, *, after: int | None = None, limit: int = 100, least: int = 0, search: str = "") -> MasterLogPage:
        """Return lines, oldest first.

        Args:
            after: Only those with larger ids; None: the newest ones.
            limit: How many at most.
            least: Only those of this level of `logging`, and above.
            search: Only those with this text in them, or in the name of their logger, whatever its case.
        """
        with self._guard:
            lines, last = list(self._lines), self._next - 1
        wanted = [line for line in lines if logging.getLevelName(line.level.upper()) >= least]
        if search:
            found_in = search.casefold()
            wanted = [line for line in wanted if found_in in f"{line.logger}: {line.text}".casefold()]
        if after is None:
            found = wanted[-limit:]
        else:
            found = list(islice((line for line in wanted if line.id > after), limit))
        more = found[-1].id if after is not None and len(found) == limit else last
        return MasterLogPage(items=found, last=more, dropped=last - len(lines))


RECENT = RecentLines()
"""Those of this process."""


def write_to_stderr(level: int | str, *, as_json: bool) -> None:
    """Write the log of this process to its standard error, and keep its newest lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else OneLine())
    logging.basicConfig(level=level, handlers=[handler, RECENT])
    # the Hub's XSRF code logs session ids at level INFO
    for chatty in ("alembic", "httpx", "tornado.application"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _spelt_out(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
