"""Routes of an experiment's code, file by file."""

from __future__ import annotations

from detlab.schemas.taskwire import CodeList
from detlab_hub.services.experiments.code import Code
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("experiments/{experiment_id}/code", relayed=True)
class CodeFiles(Guarded):
    """The files of an experiment's code."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: PartQuery) -> CodeList:
        """List the files of the experiment's code with their digests."""
        return in_part(await self.services[Code].list(self.person, experiment_id), query.skip)


@route("experiments/{experiment_id}/code/{digest}", relayed=True)
class CodeText(Guarded):
    """One file of an experiment's code, by its digest."""

    @needs("read", cross_site="link", media="text/plain")
    async def get(self, experiment_id: int, digest: str) -> None:
        """Download one file; at most a megabyte, always as an attachment of plain text."""
        data = await self.services[Code].file(self.person, experiment_id, digest)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", "attachment")
        self.finish(data)
