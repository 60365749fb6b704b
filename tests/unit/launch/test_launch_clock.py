"""A node whose wall clock is put back, or is another one than the master's: reports and tokens do not wait for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from detlab.core.metrics.spool import Spool
from detlab.launch.delivery.sender import Deliverer, Mode, SpoolSource
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.delivery.tokens import TokenKeeper, life_of

LIFE = 600.0
PUT_BACK_AT, BY = 100.0, 7200.0
ENDS = 2000.0


class Node:
    """A trial that reports each second, and a master whose tokens end by a clock that is right."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.spool = Spool(folder, clock=lambda: self.now)
        self.steps = 0
        self.token, self.expires_at = "dttask_0", LIFE
        self.late: list[float] = []
        """Seconds from a report until it is taken."""
        self.renewals: list[float] = []
        reader = SpoolReader(lambda: open_regular(folder / "metrics.jsonl"))
        self.deliverer = Deliverer(
            lambda: self,
            "task/records",
            [SpoolSource(reader, StreamShipper("metrics"), interval=0.2)],
            TokenKeeper(self.token, LIFE, 0.0),
            self,
            renew_path="task/token",
            clock=lambda: self.now,
            wall=lambda: self.now - (BY if self.now > PUT_BACK_AT else 0.0),
            pause=self.pause,
        )

    def pause(self, seconds: float) -> None:
        self.now += 10 * seconds
        while self.steps < min(self.now, ENDS):
            self.steps += 1
            self.spool.append("metrics", {"group": "training", "steps_completed": self.steps, "metrics": {"loss": 0.5}})
        if self.now > ENDS:
            self.deliverer.ask(Mode.FINISH)

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        if self.now > self.expires_at:
            return 401, b'{"code": "auth.denied", "message": "it has expired"}'
        if path == "task/token":
            self.token, self.expires_at = f"dttask_{self.now:.0f}", self.now + LIFE
            self.renewals.append(self.now)
            return 200, json.dumps({"token": self.token, "expires_at": self.expires_at, "life": LIFE}).encode()
        assert token == self.token
        steps = [record["steps_completed"] for record in json.loads(body)["records"]]
        self.late += [self.now - step for step in steps]
        return 200, json.dumps({"acked": steps[-1], "refused": []}).encode()

    def close(self) -> None:
        """Nothing to close."""

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nothing to note."""

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nobody but its writers touches a spool."""
        raise AssertionError(reader.damage)

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        raise AssertionError(refusals)


def test_a_clock_that_is_put_back_holds_up_neither_reports_nor_the_renewal_of_the_token(tmp_path: Path) -> None:
    """The delivery waited until the clock had come to where it was, and the token ended meanwhile (seed 2758)."""
    node = Node(tmp_path)
    node.deliverer.run()
    assert len(node.late) == ENDS
    assert max(node.late) < 2.0
    assert node.renewals
    assert node.renewals[0] < PUT_BACK_AT + LIFE


def test_an_older_master_says_only_when_a_token_ends() -> None:
    assert life_of(None, 5000.0, 4400.0) == 600.0
    assert life_of(600.0, 5000.0, 0.0) == 600.0
