"""The part of the asynchronous client that reads runs which no cluster started."""

from __future__ import annotations

from detlab.client.operations.runs import runs
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.runs import RunPoints, RunView


class AsyncRunCalls:
    """Runs of scripts anywhere: `detlab.init` begins one."""

    session: AsyncSession

    async def list_runs(
        self, project: str = "", *, group: str = "", job_type: str = "", status: str = "", limit: int | None = None
    ) -> list[RunView]:
        """List the runs of a project, the newest first; without a project your own, wherever they are.

        Args:
            project: `NAME` of your own workspace, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`.
            group: Only those of this group.
            job_type: Only those of this type.
            status: Only `RUNNING`, `FINISHED`, `FAILED` or `KILLED` ones.
            limit: Return at most this many; None: all.
        """
        call = runs.runs(project, group=group, job_type=job_type, status=status, limit=limit)
        return await self.session.run(call)

    async def get_run(self, run_id: str) -> RunView:
        """Fetch a run by its id, or by the word that your script has named it by."""
        return await self.session.run(runs.run(run_id))

    async def get_run_metric(self, run_id: str, name: str) -> RunPoints:
        """Fetch all values of a metric of a run, by step and time."""
        return await self.session.run(runs.run_points(run_id, name))

    async def get_run_output(self, run_id: str, *, tail: int | None = None, search: str | None = None) -> list[LogLine]:
        """Fetch what a run has printed: all of it, or its last lines.

        Args:
            run_id: The run.
            tail: Only this many of the last lines.
            search: Only lines with this text.
        """
        return await self.session.run(runs.run_output(run_id, tail=tail, search=search))

    async def delete_run(self, run_id: str) -> RunView:
        """Mark a run as deleted: lists leave it out. Nothing of it is removed."""
        return await self.session.run(runs.delete_run(run_id))
