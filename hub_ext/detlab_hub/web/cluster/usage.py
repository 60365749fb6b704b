"""Route of slot time, as JSON or as a table for spreadsheets."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from detlab.schemas.taskwire import UsageView
from detlab.schemas.wire import Wire
from detlab_hub.services.cluster.usage import Usage as UsageService
from detlab_hub.services.cluster.usage import to_csv
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import Operation, needs

LONGEST = 3660
"""Days of one answer."""
EARLIEST = date(1970, 2, 1)


class UsageQuery(Wire):
    """Which days (UTC); without them the last thirty."""

    first: date | None = Field(None, ge=EARLIEST)
    """YYYY-MM-DD"""
    last: date | None = Field(None, ge=EARLIEST)
    """YYYY-MM-DD, included."""
    format: Literal["json", "csv"] | None = None
    """The format of the reply, for links, which send no Accept of their own; without it `Accept` decides."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first is not None and self.last is not None:
            if self.first > self.last:
                raise ValueError("`first` is after `last`")
            if (self.last - self.first).days >= LONGEST:
                raise ValueError(f"at most {LONGEST} days in one request")
        return self


@route("usage", relayed=True)
class Usage(Guarded):
    """Slot hours by day, user and kind of task."""

    @needs("read", cross_site="link")
    async def get(self, query: UsageQuery) -> UsageView:
        """Return slot hours: of all users for administrators, else the caller's; CSV by `format` or `Accept`."""
        return await self.services[UsageService].view(self.person, query.first, query.last)

    def send(self, operation: Operation, value: Any) -> None:
        """Write JSON, or CSV if the caller asks for it."""
        self.set_header("Vary", "Accept")
        if not isinstance(value, UsageView) or not self._wants_csv():
            super().send(operation, value)
            return
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        name = f"slot-hours_{value.first}_{value.last}.csv"
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(to_csv(value))

    def _wants_csv(self) -> bool:
        chosen = self.get_query_argument("format", None)
        if chosen is not None:
            return chosen == "csv"
        accepted = self.request.headers.get("Accept", "").split(",")
        return any(part.partition(";")[0].strip().lower() == "text/csv" for part in accepted)
