"""Routes of the job queue."""

from __future__ import annotations

from detlab.schemas.jobwire import JobList, JobUpdate, JobView, JobWhy
from detlab_hub.core.rights import Action
from detlab_hub.services.queue.jobs import Jobs as JobsService
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class JobsQuery(PartQuery):
    """Which jobs."""

    pool: str | None = None
    """Only those of this resource pool."""
    mine: bool = False
    """Only the caller's own."""


@route("jobs", relayed=True)
class Jobs(Guarded):
    """The jobs that hold slots or wait for some."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: JobsQuery) -> JobList:
        """List jobs by pool, in the order of each pool's queue; other users' jobs have no name."""
        found = await self.services[JobsService].list(self.person, pool=query.pool, mine=query.mine)
        return in_part(found, query.skip)


@route("jobs/{job_id}", relayed=True)
class Job(Guarded):
    """One job: an experiment's number, or a user task's id."""

    @needs("write", cross_site="xsrf", action=Action.JOB_UPDATE)
    async def post(self, job_id: str, body: JobUpdate) -> JobView:
        """Change a job's priority, weight, pool or place; the same change again changes nothing."""
        return await self.services[JobsService].update(self.person, job_id, body)


@route("jobs/{job_id}/why", relayed=True)
class Why(Guarded):
    """Why a job waits."""

    @needs("read", cross_site="xsrf")
    async def get(self, job_id: str) -> JobWhy:
        """Say why each waiting task of a job, or `trial-12` alone, waits and what would let it start now."""
        return await self.services[JobsService].why(self.person, job_id)
