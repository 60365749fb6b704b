"""Alerts: what people are told of runs, and the rules by which the cluster tells it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.workspaces import Reference

AlertLevel = Literal["debug", "info", "warn", "error"]
LEVELS: dict[str, AlertLevel] = {
    "debug": "debug",
    "info": "info",
    "warn": "warn",
    "warning": "warn",
    "error": "error",
    "critical": "error",
}
"""What code may call a level -> the level."""
RuleKind = Literal["completed", "failed", "improved", "plateau", "waiting", "budget", "alert", "log"]
"""What a rule waits for: an experiment has completed or failed; its best value has improved by so many percent; so many
validations brought none; nothing of it has run for so many seconds because it waits; so many percent of its
`searcher.budget`, or of its owner's quotas, are used; its code has called `alert`; a trial has printed a line in which
a regular expression is found."""
AlertKind = Literal["completed", "failed", "improved", "plateau", "waiting", "budget", "alert", "log", "test"]
PATTERN_CHARS = 500
TITLE_CHARS, TEXT_CHARS = 200, 4000
DEFAULT_AMOUNTS: dict[str, float] = {"improved": 1.0, "plateau": 20.0, "waiting": 3600.0, "budget": 80.0}
"""Percent, validations, seconds, percent."""
MOST_AMOUNT: dict[str, float] = {"improved": 1e6, "plateau": 1e6, "waiting": 366 * 86400.0, "budget": 100.0}


class AlertView(Wire):
    """Something that its reader was told. Title and text may be anybody's: show them as text."""

    id: int
    kind: AlertKind
    level: AlertLevel = "info"
    title: str = ""
    text: str = ""
    experiment_id: int | None = None
    trial_id: int | None = None
    run_id: str | None = None
    """A run that no cluster started."""
    held_back: int = 0
    """Further ones of the same run or rule that came too fast and are not kept."""
    created_at: float = 0.0
    read: bool = False


class AlertList(Wire):
    """A page of alerts, the newest first."""

    items: list[AlertView]
    unread: int = 0
    """How many the caller has not read, counted up to 100."""
    next: int | None = None
    """`before` of the next page; null: this is the last one."""


class ReadAlerts(PersonRequest):
    """POST alerts/read: marks alerts as read."""

    ids: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(default_factory=list, max_length=1000)
    upto: int | None = Field(None, ge=0, lt=2**63)
    """All up to this one, the newest that the caller has seen."""


class UnreadAlerts(Wire):
    """How many alerts the caller has not read, counted up to 100."""

    unread: int = 0


class SetAlertRule(PersonRequest):
    """POST alerts/rules: tells the caller when something happens to experiments that they may read."""

    kind: RuleKind
    amount: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Percent (`improved`, `budget`), validations (`plateau`), seconds (`waiting`); null: 1, 80, 20, 3600."""
    pattern: str = Field("", max_length=PATTERN_CHARS)
    """Of `log`: a regular expression in RE2's syntax, which is looked for in lines of output."""
    experiment_id: int | None = Field(None, ge=1, lt=2**63)
    workspace: Reference = ""
    project: Reference = ""
    """Only that experiment, or all of that workspace or project; none of them: all experiments of the caller's own."""
    bell: bool = True
    """Whether the caller has its alerts in their list."""
    webhook: int | None = Field(None, ge=1, lt=2**63)
    """A webhook of the caller that gets them, too."""
    email: bool = False
    """Whether they are sent to the caller's confirmed address, too."""

    @model_validator(mode="after")
    def _one_scope(self) -> Self:
        if self.experiment_id is not None and (self.workspace or self.project):
            raise ValueError("name an experiment, or a workspace and a project, not both")
        if (self.kind == "log") != bool(self.pattern):
            raise ValueError("a rule of kind log has a pattern, and no other has one")
        if self.amount is not None and self.kind not in MOST_AMOUNT:
            raise ValueError(f"a rule of kind {self.kind} has no amount")
        if self.amount is not None and self.amount > MOST_AMOUNT[self.kind]:
            raise ValueError(f"amount is at most {MOST_AMOUNT[self.kind]:g} for {self.kind}")
        if not self.bell and self.webhook is None and not self.email:
            raise ValueError("a rule tells something: leave bell on, set email, or name a webhook")
        return self


class AlertRuleView(Wire):
    """A rule of the caller."""

    id: int
    kind: RuleKind
    amount: float | None = None
    pattern: str = ""
    scope: Literal["owner", "experiment", "project", "workspace"] = "owner"
    scope_id: int | None = None
    """The id of that experiment, project or workspace."""
    scope_name: str = ""
    """Its name, as far as the caller may read it."""
    bell: bool = True
    webhook: int | None = None
    email: bool = False
    owner: str = ""
    created_at: float = 0.0


class AlertRuleList(Wire):
    """The rules of the caller, the oldest first."""

    items: list[AlertRuleView]
    next: int | None = None
    """`after` of the next page; null: this is the last one."""


def _level(text: str) -> AlertLevel:
    return LEVELS.get(text.lower(), "info")


SaidLevel = Annotated[str, Field(max_length=20), AfterValidator(_level)]
"""A level as code says it; what is unknown is `info`."""
