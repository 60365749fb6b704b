"""Tables of the master itself: lease, agents, tokens, the event log and task output."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, Index
from sqlalchemy.orm import Mapped, mapped_column

from detlab_hub.store.tables.base import Base, BigId, CleanText, Json


class Meta(Base):
    """Small facts about this database."""

    __tablename__ = "meta"

    key: Mapped[str] = mapped_column(CleanText, primary_key=True)
    value: Mapped[str] = mapped_column(CleanText)


class Lease(Base):
    """The one row (id 1) that names the master that may write. Its columns never change: old and new code read it."""

    __tablename__ = "lease"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str] = mapped_column(CleanText)
    process: Mapped[str] = mapped_column(CleanText, default="")
    """Boot id, pid namespace, pid and start time of the holder, to see immediately that it is dead."""
    expires_at: Mapped[float] = mapped_column(Double)


class AgentRow(Base):
    """An agent that has enrolled."""

    __tablename__ = "agents"

    id: Mapped[str] = mapped_column(CleanText, primary_key=True)
    state: Mapped[str] = mapped_column(CleanText, default="")
    slots: Mapped[list[Any]] = mapped_column(Json, default=list)
    serves_user: Mapped[str | None] = mapped_column(CleanText, default=None)
    version: Mapped[str] = mapped_column(CleanText, default="")
    address: Mapped[str] = mapped_column(CleanText, default="")
    enabled: Mapped[bool] = mapped_column(default=True)
    """False: an administrator has disabled new work on it."""
    drain: Mapped[str] = mapped_column(CleanText, default="")
    """What its trials do while it is drained: `leave` or `finish`; empty: it is not drained."""
    drain_until: Mapped[float | None] = mapped_column(Double, default=None)
    """When the remaining tasks are ended."""
    slots_off: Mapped[list[str]] = mapped_column(Json, default=list)
    """Slots that an administrator has disabled for new work, including those that it does not offer now."""
    runtimes: Mapped[list[str]] = mapped_column(Json, default=lambda: ["process"])
    pool: Mapped[str] = mapped_column(CleanText, default="default")
    """Resource pool, as the agent reports it."""
    labels: Mapped[dict[str, str]] = mapped_column(Json, default=dict)
    """The operator's labels, for tasks that request some."""
    max_zero_slot_tasks: Mapped[int] = mapped_column(default=100)
    millicpus: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Thousandths of a CPU that its tasks may request together; NULL: not reported."""
    host_memory: Mapped[int | None] = mapped_column(BigInteger, default=None)
    """Bytes of memory that they may request together; NULL: not reported."""
    enrolled_by: Mapped[str] = mapped_column(CleanText, default="")
    """SHA-256 of the enrolment token that it used."""
    last_seen: Mapped[float] = mapped_column(Double, default=0.0)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class QuotaRow(Base):
    """Slots that a user, or all users of a Hub group together, may hold at a time."""

    __tablename__ = "quotas"

    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user` or `group`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    slots: Mapped[int]
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    set_at: Mapped[float] = mapped_column(Double, default=0.0)


class StorageQuotaRow(Base):
    """Bytes that a user, or all users of a Hub group together, may keep."""

    __tablename__ = "storage_quotas"

    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user` or `group`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    set_at: Mapped[float] = mapped_column(Double, default=0.0)


class UidRow(Base):
    """The uid under which a Hub user's tasks run on all nodes. Rows are never removed: files outlive their users."""

    __tablename__ = "user_uids"

    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    uid: Mapped[int] = mapped_column(BigInteger, unique=True)
    account: Mapped[bool]
    """True: of an account, by the operator's map."""
    since: Mapped[float] = mapped_column(Double)


class TokenRow(Base):
    """A detlab token, by the SHA-256 of its text; the text itself is never stored."""

    __tablename__ = "tokens"
    __table_args__ = (Index(None, "kind", "subject"), Index(None, "expires_at"))

    hash: Mapped[str] = mapped_column(CleanText, primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText)
    """enrol | agent | task | run"""
    subject: Mapped[str] = mapped_column(CleanText)
    expires_at: Mapped[float | None] = mapped_column(Double, default=None)
    created_at: Mapped[float] = mapped_column(Double, default=0.0)


class EventRow(Base):
    """One event; `id` is the cursor of the stream and grows for ever, also after a trim."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "experiment_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText)
    time: Mapped[float] = mapped_column(Double, default=0.0)
    experiment_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    trial_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    task_id: Mapped[str | None] = mapped_column(CleanText, default=None)
    data: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)


class EventConsumerRow(Base):
    """The progress of a consumer of the event log: it has processed all events up to `cursor`."""

    __tablename__ = "event_consumers"

    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    cursor: Mapped[int] = mapped_column(BigInteger)
    failures: Mapped[int] = mapped_column(default=0)
    """Number of consecutive failures."""
    error: Mapped[str] = mapped_column(CleanText, default="")
    """Error of the last attempt if it failed; else empty."""
    moved_at: Mapped[float] = mapped_column(Double, default=0.0)


class LogChunk(Base):
    """Some consecutive lines of the output of a trial or a user task, in the order in which they came."""

    __tablename__ = "log_chunks"
    __table_args__ = (
        Index(None, "trial_id", "last"),
        Index(None, "task_id", "last"),
        Index(None, "last_time"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    trial_id: Mapped[int | None] = mapped_column(BigInteger, default=None)
    task_id: Mapped[str | None] = mapped_column(CleanText, default=None)
    run: Mapped[int] = mapped_column(default=0)
    first: Mapped[int] = mapped_column(BigInteger)
    """Id of its first line."""
    last: Mapped[int] = mapped_column(BigInteger)
    """Id of its last line."""
    first_time: Mapped[float] = mapped_column(Double)
    """The earliest time of its lines; they may come out of order."""
    last_time: Mapped[float] = mapped_column(Double)
    """The latest."""
    levels: Mapped[int]
    """Bits of the levels that its lines have."""
    streams: Mapped[int]
    """Bits of the streams that its lines were written to."""
    ranks: Mapped[str] = mapped_column(CleanText)
    """`,0,3,` for those two ranks; `*`: any."""
    lines: Mapped[int]
    size: Mapped[int]
    """Characters of `body`."""
    facts: Mapped[dict[str, Any]] = mapped_column(Json)
    """The columns of each line besides its text."""
    capitals: Mapped[str | None] = mapped_column(CleanText, default=None)
    """Its words that have capital letters (see `logchunks.capitals`); NULL: not known."""
    body: Mapped[str] = mapped_column(CleanText)
    """The lines, joined by line feeds."""


class LogCut(Base):
    """Lines of a trial (`trial:13`) or a user task (`task:notebook-…`) that retention has removed."""

    __tablename__ = "log_cuts"

    holder: Mapped[str] = mapped_column(CleanText, primary_key=True)
    through: Mapped[int] = mapped_column(BigInteger)
    """Id of the last line that was removed."""
    lines: Mapped[int] = mapped_column(BigInteger)
    cut_at: Mapped[float] = mapped_column(Double)


class AuditRow(Base):
    """Who did what, for administrators. Written in the transaction of the action; never changed."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "actor", "id"), Index(None, "subject", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    time: Mapped[float] = mapped_column(Double)
    actor: Mapped[str] = mapped_column(CleanText)
    action: Mapped[str] = mapped_column(CleanText)
    subject: Mapped[str] = mapped_column(CleanText)
    detail: Mapped[str] = mapped_column(CleanText, default="")


class SlotUsageRow(Base):
    """Slot time of ended allocations, by day (UTC), user and kind; it outlives the experiments."""

    __tablename__ = "usage"

    day: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """YYYY-MM-DD"""
    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """trial, or a taskwire.TaskKind"""
    slot_seconds: Mapped[float] = mapped_column(Double, default=0.0)
    cost: Mapped[float] = mapped_column(Double, default=0.0)
    """At the prices that stood when the slots were assigned."""


class FadedUsageRow(Base):
    """Slot time of a user in a pool with shares of users, as of a time: it fades from then on.

    Written in the transaction that ends an allocation; what runs is added when it is read.
    """

    __tablename__ = "faded_usage"

    pool: Mapped[str] = mapped_column(CleanText, primary_key=True)
    owner: Mapped[str] = mapped_column(CleanText, primary_key=True)
    slot_seconds: Mapped[float] = mapped_column(Double, default=0.0)
    at: Mapped[float] = mapped_column(Double, default=0.0)


class ProjectCostRow(Base):
    """What ended allocations of a project's experiments cost, by month (UTC); it outlives the experiments."""

    __tablename__ = "project_costs"

    project_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    month: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """YYYY-MM"""
    cost: Mapped[float] = mapped_column(Double, default=0.0)


class CostCapRow(Base):
    """What a user or a project may cost in a month, or an experiment in all."""

    __tablename__ = "cost_caps"

    kind: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """`user`, `project` or `experiment`."""
    name: Mapped[str] = mapped_column(CleanText, primary_key=True)
    """Of the user, or the number of the project or experiment."""
    amount: Mapped[float] = mapped_column(Double)
    told: Mapped[str] = mapped_column(CleanText, default="")
    """The month for which it was told that the cap is reached; empty: it was not."""
    set_by: Mapped[str] = mapped_column(CleanText, default="")
    set_at: Mapped[float] = mapped_column(Double, default=0.0)
