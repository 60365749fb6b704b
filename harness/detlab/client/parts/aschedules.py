"""The part of the asynchronous client for schedules: notebooks that run later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.client.atasks import AsyncTask
from detlab.client.bundling.secret_files import secret_warnings
from detlab.client.notebook_runs import prepare_notebook_run
from detlab.client.operations.experiments import new_key
from detlab.client.operations.notebooks import schedules
from detlab.client.submission import ConfigSource
from detlab.client.transport.calls import Progress, valid_request
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import GivenView, ProblemView
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, ScheduleView


@dataclass(frozen=True, slots=True)
class AsyncScheduled:
    """A schedule that was made.

    Attributes:
        schedule: As it is now.
        warnings: Of the master, of the notebook, and of files that hold secrets.
        given: Values that a run would get now, each with where it comes from.
    """

    schedule: ScheduleView
    warnings: list[ProblemView]
    given: list[GivenView] = field(default_factory=list)


class AsyncScheduleCalls:
    """Schedules of the user who is logged in."""

    session: AsyncSession

    async def schedule_notebook(
        self,
        path: str | Path,
        parameters: Mapping[str, Any] | None = None,
        *,
        cron: str = "",
        time_zone: str = "UTC",
        after: int | str | None = None,
        slots: int | None = None,
        config: ConfigSource | None = None,
        name: str | None = None,
        context: str | Path | None = None,
        template: str | None = None,
        progress: Progress | None = None,
    ) -> AsyncScheduled:
        """Have a notebook run by the clock, or once when something has completed.

        The notebook, and the modules that it imports, are uploaded now: later changes of the files change nothing.
        Each run has your rights, quotas and the policies of its time. None starts while the one before goes on.

        Args:
            path: The notebook.
            parameters: Values for variables of its cell tagged `parameters`.
            cron: Five fields (`0 6 * * 1-5`), or `@daily` and the like.
            time_zone: IANA name, such as `Europe/Berlin`, of the clock that they mean.
            after: Instead of `cron`, an experiment's number or a task's id: one run, when that has completed.
            slots: Number of slots; see `run_notebook`.
            config: Task config (`detlab.schemas.taskconf`).
            name: Display name, also of the runs; default: the file's.
            context: Folder to ship; None: the notebook and the modules beside it that it imports.
            template: A template of the master that is laid under the config at each start.
            progress: Called with (bytes sent, bytes in all) while the code is uploaded.

        Raises:
            ConfigError: The expression, the time zone, parameters or config have mistakes.
            BundleError: The file is not a notebook, or the code cannot be packed.
            Conflict: What it is to wait for has failed; or you have too many schedules.
            NotFound: There is no such experiment or task for you.
        """
        run = await asyncio.to_thread(
            prepare_notebook_run, path, parameters, config=config, slots=slots, name=name, context=context
        )
        number = int(str(after)) if str(after).isascii() and str(after).isdigit() else None
        with valid_request():
            wanted = CreateSchedule(
                name=run.name,
                config=run.config,
                template=template,
                bundle=run.bundle.digest,
                notebook=run.source["notebook"],
                parameters=run.parameters,
                cron=cron,
                time_zone=time_zone,
                after_experiment=number,
                after_task=None if number is not None or after is None else str(after),
                idempotency_key=new_key(),
            )
        made = await self.session.run(schedules.create_schedule(wanted, run.bundle, progress))
        warnings = [*run.warnings, *made.warnings, *secret_warnings(run.bundle)]
        return AsyncScheduled(made.schedule, warnings, made.given)

    async def list_schedules(self, *, limit: int | None = None, owner: str | None = None) -> list[ScheduleView]:
        """Return your schedules, the oldest first; to administrators those of everybody.

        Args:
            limit: Return at most this many; None: all.
            owner: Only those of this user.
        """
        return await self.session.run(schedules.schedules(limit, owner))

    async def get_schedule(self, schedule: int) -> ScheduleView:
        """Return one schedule with its next times and its config."""
        return await self.session.run(schedules.schedule(schedule))

    async def pause_schedule(self, schedule: int) -> ScheduleView:
        """Have a schedule start nothing until it is resumed."""
        return await self.session.run(schedules.pause_schedule(schedule))

    async def resume_schedule(self, schedule: int) -> ScheduleView:
        """Let a schedule go on that was paused or disabled; what was due meanwhile is made up for by one run."""
        return await self.session.run(schedules.resume_schedule(schedule))

    async def run_schedule(self, schedule: int) -> AsyncTask:
        """Start a run of a schedule now, whatever its state; return its task.

        Raises:
            Conflict: The run before has not ended.
        """
        return AsyncTask(self.session, await self.session.run(schedules.run_schedule(schedule)))

    async def remove_schedule(self, schedule: int) -> ScheduleView:
        """Remove a schedule; return it as it was. What it has started goes on."""
        return await self.session.run(schedules.remove_schedule(schedule))
