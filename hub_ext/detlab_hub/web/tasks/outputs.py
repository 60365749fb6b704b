"""Routes of the output files of user tasks."""

from __future__ import annotations

from pathlib import Path

from detlab.errors import DetlabError
from detlab.schemas.taskwire import OutputList, OutputView
from detlab_hub.core.rights import Action
from detlab_hub.services.usertasks.outputs import Outputs as OutputsService
from detlab_hub.services.usertasks.outputs import OutputsTooLarge
from detlab_hub.services.views.pages import in_part
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.uploads import Upload


@route("task/outputs/{name}")
class TaskOutput(Upload):
    """One file of the calling task."""

    def initialize(self) -> None:
        """Take the operator's limit."""
        super().initialize()
        self.body_limit = self.services.settings.outputs_limit

    @property
    def folder(self) -> Path:
        """Beside the stored files."""
        return self.services.settings.outputs_dir

    def too_large(self) -> DetlabError:
        """Return the refusal with the quota."""
        return OutputsTooLarge(
            f"the file is larger than the {self.body_limit // 1024 // 1024} MB that a task may hold",
            hint="write large results to storage that your notebook reads, too",
        )

    @needs("task", cross_site="token", action=Action.ATTEMPT_REPORT, accepts="application/octet-stream")
    async def put(self, name: str) -> OutputView:
        """Hand over a file; one of the same name is replaced."""
        return await self.services[OutputsService].put(self.task, name, await self.uploaded())


@route("tasks/{task_id}/outputs", relayed=True)
class Outputs(Guarded):
    """All files of a task."""

    @needs("read", cross_site="xsrf")
    async def get(self, task_id: str, query: PartQuery) -> OutputList:
        """Return the output files that a task has uploaded so far."""
        return in_part(await self.services[OutputsService].list(self.person, task_id), query.skip)


@route("tasks/{task_id}/outputs/{digest}", relayed=True)
class OutputBytes(Download):
    """One of them."""

    @needs("read", cross_site="link", media="application/octet-stream")
    async def get(self, task_id: str, digest: str) -> None:
        """Download an output file of a task."""
        await self.send_file(
            self.services[OutputsService].open(self.person, task_id, digest), "application/octet-stream"
        )
