"""A world with rules, hooks and a receiver that notes what it hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from services_scripted import report

from detlab.schemas.wire import AlertRecord
from detlab.schemas.wire.notify.alerts import AlertView, SetAlertRule
from detlab_hub.services.alerts.alerts import Alerts
from detlab_hub.services.alerts.evaluation import AlertEvaluation
from detlab_hub.services.alerts.webhooks import Webhooks
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.outgoing import Allowed, Outgoing
from detlab_hub.services.notify.outbox import WebhookSender
from detlab_hub.store.tables import WebhookRow

ADDRESSES = {"inside.example": "10.1.2.3", "loop.example": "127.0.0.1", "meta.example": "169.254.169.254"}


class Receiver:
    """Receives calls, and answers as it is told."""

    def __init__(self) -> None:
        self.heard: list[httpx.Request] = []
        self.answer = 200

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host=request.headers["Host"])  # it is called at an address
        self.heard.append(request)
        if not self.answer:
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(self.answer, headers={"Location": "http://127.0.0.1/"})


async def resolve(host: str, port: int) -> list[str]:
    return [ADDRESSES.get(host, host if host[0].isdigit() or ":" in host else "93.184.216.34")]


def outgoing(receiver: Receiver) -> Outgoing:
    return Outgoing(Allowed(), resolve=resolve, transport=httpx.MockTransport(receiver))


class Alerted:
    """The services of alerts in a world."""

    def __init__(self, world: Any) -> None:
        self.world, self.receiver = world, Receiver()
        self.renew()

    def renew(self) -> None:
        """Take the services of the master that runs now."""
        services = self.world.services
        self.evaluation = services[AlertEvaluation]
        self.alerts = services[Alerts]
        self.webhooks = Webhooks(services.context, self.evaluation, outgoing(self.receiver))
        self.sender = WebhookSender(services.context, outgoing(self.receiver))

    async def rule(self, caller: Caller, kind: str, **more: Any) -> int:
        made = await self.alerts.set_rule(caller, SetAlertRule(kind=kind, **more))
        await self.evaluate()
        return made.id

    async def evaluate(self) -> None:
        while await self.evaluation.step():
            pass
        await self.evaluation.look()

    async def told(self, caller: Caller) -> list[AlertView]:
        """Evaluate, and return what somebody was told, the oldest first."""
        await self.evaluate()
        return (await self.alerts.list(caller, all_channels=True)).items[::-1]

    async def kinds(self, caller: Caller) -> list[str]:
        return [one.kind for one in await self.told(caller)]

    async def send(self) -> int:
        """Send what is due; return how many calls were heard by then."""
        while await self.sender.step():
            pass
        return len(self.receiver.heard)

    async def calls(self) -> int:
        return await self.world.services.context.read(lambda s: s.query(WebhookRow).count())


def losses(*values: float) -> Any:
    """A script that reports some losses, one validation each."""

    def script(launch: Any) -> Iterator[Any]:
        for step, value in enumerate(values, 1):
            yield report(step, loss=value)
        yield ("exit", 0)

    return script


def failing(launch: Any) -> Iterator[Any]:
    yield ("exit", 1)


async def say(world: Any, *texts: str, level: str = "info", title: str = "said") -> None:
    """Have the first running trial call `alert` with some texts."""
    (task,) = [task for agent in world.agents.values() for task in agent.tasks.values()]
    records = [
        AlertRecord(seq=task._next("metrics"), time=world.now, title=title, text=text, level=level) for text in texts
    ]
    await task.send("metrics", *records)
