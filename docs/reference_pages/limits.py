"""The page of the limits of users, from their definitions."""

from __future__ import annotations

from reference_pages.markdown import page, table


def limits() -> str:
    """The page of the limits of users, from their definitions."""
    from detlab_hub.services.admission.user_limits import settings

    intro = """
What one user may ask of the master, so that nobody stops everybody. The values are far above what people meet. Each is
a setting of the master, in `detlab_config.py` or the master's own configuration file, read when it starts:

    c.UserLimits.queued_jobs = 5000
    c.UserLimits.min_priority = 1            # everybody may give every priority
    c.UserLimits.exempt_users = {"ada"}      # none of these bind her
    c.UserLimits.exempt_groups = {"robots"}  # groups of the Hub

0 is without limit. How many slots somebody may hold is a [quota](../how-to/why-is-my-job-waiting.md#quotas), which is
set while the cluster runs. `det limits` shows the limits, to users with what they use themselves, to administrators
with everybody who is at or near one; so does the hub page, below the quotas.
"""
    rows = [(f"`{name}`", f"{default:,.0f} {unit}", about) for name, default, unit, about in settings()]
    told = """
- A rate (requests, submissions, bytes of a day) is refused with status 429 and a header `Retry-After`; nothing was
  done. A burst may come at once, and the rate comes back with time.
- A number of jobs is refused with status 409: end some first. A priority is refused with status 403.
- The code of a refusal is `limit.NAME`; its text says the limit, what to do, and whom to ask.
- Tasks without slots are not refused: they wait with the reason `at_zero_slot_tasks`. They are counted in each pool.
- Names of metrics beyond the limit are left out of reports, and all other metrics are kept; a warning of the trial says
  so. The metric of the search is never left out.
- Lines beyond the log rate are left out; a line in their place says how many. They count at the times at which they
  were written, so that nothing is lost of what a node could not deliver for hours.
  Each node of a task counts by itself.
- Of the owner of a running task the groups that matter are those at its submission.
- Requests of tasks are counted by task, not as those of their user. Agents and the Hub are not limited.
- Who meets a limit is in the audit log as `limit.reached`, at most once an hour for each user and limit.
- Counters are in memory: a restart of the master begins anew, except for the bytes of the day.
"""
    return page(
        "Limits of users",
        intro,
        table(("setting of `c.UserLimits`", "default", "what it limits"), rows),
        "## What happens at a limit\n" + told,
        "## Shared workers\n" + _SHARED,
        table(
            ("work", "threads", "of one user at a time", "most seconds of one call", "calls of one user that wait"),
            _kinds(),
        ),
    )


_SHARED = """
What users cause runs in threads of its kind, users in turn: behind a hundred calls of one user, others wait for one.
A user is who owns the task or the session; many trials are one user. A call that takes longer than its kind allows
gives its place back, and its user has no other one of that kind until it has ended. What is queued of a task that is
over is not begun. Other work is bounded by what it does: bytes, characters, matches in time that grows with the text.
"""


def _kinds() -> list[tuple[str, ...]]:
    """The rows of the kinds of threads, from their definitions."""
    from detlab_hub.services.base.threads import SHARE, Threads, Workers

    workers = Workers()
    kinds = [kind for kind in vars(workers).values() if isinstance(kind, Threads)]
    workers.close()
    return [
        (kind.what, str(kind.size), str(kind.each), _seconds(kind.seconds), f"{kind.waiting // SHARE:,}")
        for kind in kinds
    ]


def _seconds(seconds: float | None) -> str:
    return "by its size" if seconds is None else f"{seconds:g}"
