"""Commands in containers of the fake cluster: `pods/exec` over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from testbed.kubernetes.fake.resources import Object, Refused, forbidden

if TYPE_CHECKING:
    from testbed.kubernetes.fake.cluster import FakeCluster

PROTOCOL = "v4.channel.k8s.io"
_OUTPUT, _ERROR = b"\x01", b"\x03"


class Exec(WebSocketHandler):
    """One command; its output comes on channel 1, how it ended on channel 3."""

    @property
    def cluster(self) -> FakeCluster:
        """The server's state."""
        found: FakeCluster = self.settings["cluster"]
        return found

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Take the one that is spoken here."""
        return PROTOCOL if PROTOCOL in subprotocols else None

    def check_origin(self, origin: str) -> bool:
        """No browser asks."""
        return True

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Refuse what may not be, or begin."""
        namespace, name = args
        cluster = self.cluster
        cluster.requests.append(("GET", self.request.uri or ""))
        try:
            pods = cluster.store.kind("pods")
            user = cluster.users.get(self.request.headers.get("Authorization", "").removeprefix("Bearer "), "")
            if not user:
                raise Refused(401, "Unauthorized")
            if not {"*/*", "*/*;q=0.8"} & {one.strip() for one in self.request.headers.get("Accept", "*/*").split(",")}:
                raise Refused(406, "only the following media types are accepted: */*")
            if not cluster.may(user, "get", pods, namespace, "exec"):
                raise forbidden(user, "get", pods, namespace, name, "exec")
            self.pod = cluster.store.get(pods, namespace, name)
        except Refused as refused:
            self.set_status(refused.code)
            await self.finish(json.dumps(refused.status()))
            return
        await super().get()

    def open(self, *args: str, **kwargs: str) -> None:
        """Run the command."""
        self.running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        container = self.get_query_argument("container", "") or self.pod["spec"]["containers"][0]["name"]
        try:
            code, said = await self.cluster.kubelet.execute(self.pod, container, self.get_query_arguments("command"))
            status = _ended(code)
        except LookupError as error:
            said, status = b"", {"metadata": {}, "status": "Failure", "message": str(error), "reason": "InternalError"}
        with suppress(WebSocketClosedError, StreamClosedError):
            if said:
                await self.write_message(_OUTPUT + said, binary=True)
            await self.write_message(_ERROR + json.dumps(status).encode(), binary=True)
            self.close()

    def on_message(self, message: str | bytes) -> None:
        """Nothing is read: commands have no input."""


def _ended(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: Error executing in Docker Container: {code}"
    details = {"causes": causes}
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": details}
