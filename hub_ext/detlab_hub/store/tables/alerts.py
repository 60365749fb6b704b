"""Tables of alerts: what people were told, the rules by which they are told, webhooks and addresses of users."""

from __future__ import annotations

from sqlalchemy import BigInteger, Double, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class AlertRow(Base):
    """Something that one user was told."""

    __tablename__ = "alerts"
    __table_args__ = (
        Index(None, "owner", "id"),
        Index(None, "owner", "read_at"),
        Index(None, "source", "created_at"),
        Index(None, "created_at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    """Who is told."""
    source: Mapped[str] = mapped_column(CleanText)
    """What tells: `trial 12`, `run 0af3…`, `rule 7`; its rate is limited."""
    kind: Mapped[str] = mapped_column(CleanText)
    """`wire.notify.alerts.AlertKind`."""
    level: Mapped[str] = mapped_column(CleanText, default="info")
    title: Mapped[str] = mapped_column(CleanText, default="")
    text: Mapped[str] = mapped_column(CleanText, default="")
    experiment_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    trial_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    run_id: Mapped[str | None] = mapped_column(CleanText, default=None)
    """A run that no cluster started."""
    held_back: Mapped[int] = mapped_column(default=0)
    """Further ones of its source that came too fast and are not kept."""
    created_at: Mapped[float] = mapped_column(Double)
    read_at: Mapped[float | None] = mapped_column(Double, default=None)


class AlertRuleRow(Base):
    """A rule of a user, about experiments that they may read."""

    __tablename__ = "alert_rules"
    __table_args__ = (Index(None, "owner"), Index(None, "hook_id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    owner_groups: Mapped[list[str]] = mapped_column(Json, default=list)
    """Groups of the Hub that its owner was in when it was made."""
    kind: Mapped[str] = mapped_column(CleanText)
    amount: Mapped[float] = mapped_column(Double, default=0.0)
    scope: Mapped[str] = mapped_column(CleanText, default="owner")
    """`core.alerts.RuleScope`."""
    key: Mapped[int] = mapped_column(BigInteger, default=0)
    bell: Mapped[bool] = mapped_column(default=True)
    """Whether its owner has its alerts in their list."""
    hook_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """The webhook that gets them, too."""
    email: Mapped[bool] = mapped_column(default=False)
    """Whether they are sent to its owner's address, too."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class AlertMarkRow(Base):
    """What a rule remembers of an experiment."""

    __tablename__ = "alert_marks"
    __table_args__ = (Index(None, "experiment_id"),)

    rule_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    experiment_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    """0: of the owner's quotas; below 0: of a run from elsewhere, or a trial: `runs.mark_key`, `alerts.trial_key`."""
    value: Mapped[float | None] = mapped_column(Double, default=None)
    count: Mapped[int] = mapped_column(default=0)
    told: Mapped[bool] = mapped_column(default=False)


class HookRow(Base):
    """A webhook of a user."""

    __tablename__ = "webhooks"
    __table_args__ = (UniqueConstraint("owner", "name"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    name: Mapped[str] = mapped_column(CleanText)
    url: Mapped[str] = mapped_column(CleanText)
    format: Mapped[str] = mapped_column(CleanText, default="default")
    """`default`, `slack` or `teams`."""
    secret: Mapped[str] = mapped_column(CleanText, default="")
    delivered: Mapped[int] = mapped_column(BigInteger, default=0)
    """Calls that went through."""
    delivered_at: Mapped[float | None] = mapped_column(Double, default=None)
    error: Mapped[str] = mapped_column(CleanText, default="")
    """Of the last call, if it failed."""
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class EmailRow(Base):
    """Where a user has alerts sent by e-mail."""

    __tablename__ = "alert_emails"

    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    address: Mapped[str] = mapped_column(CleanText, default="")
    """Confirmed; empty: none is."""
    confirmed_at: Mapped[float | None] = mapped_column(Double, default=None)
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    pending: Mapped[str] = mapped_column(CleanText, default="")
    """The address that waits for its code."""
    code_hash: Mapped[str] = mapped_column(CleanText, default="")
    """Of the last code that was sent there; empty: none was, or it is void."""
    code_until: Mapped[float | None] = mapped_column(Double, default=None)
    code_tries: Mapped[int] = mapped_column(default=0)
    """Wrong codes since it was sent."""
    hour_began: Mapped[float] = mapped_column(Double, default=0.0)
    hour_count: Mapped[int] = mapped_column(default=0)
    """Alerts that were to be sent in the hour that began then."""
    summary_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """The call that will tell how many came beyond, in that hour."""
    delivered: Mapped[int] = mapped_column(BigInteger, default=0)
    """Alerts that the mail server has taken."""
    delivered_at: Mapped[float | None] = mapped_column(Double, default=None)
    error: Mapped[str] = mapped_column(CleanText, default="")
    """Of the last attempt, if it failed."""


class EmailCodeRow(Base):
    """A code that was asked for; kept for a day, so that their number is bounded."""

    __tablename__ = "alert_email_codes"
    __table_args__ = (
        Index(None, "owner", "asked_at"),
        Index(None, "mailbox", "asked_at"),
        Index(None, "asked_at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText)
    mailbox: Mapped[str] = mapped_column(CleanText)
    """The address without what providers do not tell apart."""
    asked_at: Mapped[float] = mapped_column(Double)
