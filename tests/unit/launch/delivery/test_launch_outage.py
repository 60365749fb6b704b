"""An hour without a master for the launcher's own delivery, in compressed time: real spools, its own periods."""

import json

from detlab.core.metrics.spool import Spool
from detlab.launch.delivery.sender import Deliverer, Mode, SpoolSource, TransportError
from detlab.launch.delivery.shipping import StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.delivery.tokens import TokenKeeper

HOUR = 3600.0
LEAVES = 100.0
LIFE = 3600.0


class Marks:
    def committed(self, shipper, reader):
        pass

    def damaged(self, shipper, reader):
        raise AssertionError(reader.damage)

    def refused(self, refusals):
        raise AssertionError(refusals)


class World:
    """A master that leaves for an hour, and a trial that reports each second; time passes by pauses only."""

    def __init__(self, folder):
        self.now = 0.0
        self.spool = Spool(folder, clock=lambda: self.now)
        self.token, self.expires_at = "dttask_0", LIFE
        self.taken = []
        self.batches = []
        self.attempts = 0
        self.renewals = []
        self.steps = 0
        self.deliverer = None

    def pause(self, seconds):
        self.now += 10 * seconds
        while self.steps < self.now and self.now < LEAVES + HOUR + 60:
            self.steps += 1
            self.spool.append("metrics", {"group": "training", "steps_completed": self.steps, "metrics": {"loss": 0.5}})
        if self.now > LEAVES + HOUR + 60:
            self.deliverer.ask(Mode.FINISH)

    def post(self, path, body, token):
        if LEAVES < self.now < LEAVES + HOUR:
            self.attempts += 1
            raise TransportError("refused")
        if path == "task/token":
            assert token == self.token, "an expired one may still renew itself"
            self.token, self.expires_at = f"dttask_{self.now:.0f}", self.now + LIFE
            self.renewals.append(self.now)
            return 200, json.dumps({"token": self.token, "expires_at": self.expires_at}).encode()
        if token != self.token or self.now > self.expires_at:
            return 401, b'{"code": "auth.denied", "message": "it has expired"}'
        records = json.loads(body)["records"]
        self.batches.append((self.now, len(records)))
        self.taken += [record["seq"] for record in records]
        return 200, json.dumps({"acked": self.taken[-1], "refused": []}).encode()

    def close(self):
        pass


def test_an_hour_of_reports_waits_in_the_spool_and_arrives_once_in_order_with_a_token_that_has_expired(tmp_path):
    world = World(tmp_path / "spool")
    path = tmp_path / "spool" / "metrics.jsonl"
    given = []
    world.deliverer = Deliverer(
        lambda: world,
        "task/records",
        [SpoolSource(SpoolReader(lambda: open_regular(path)), StreamShipper("metrics"))],
        TokenKeeper(world.token, LIFE, 0.0),
        Marks(),
        renew_path="task/token",
        on_token=given.append,
        clock=lambda: world.now,
        wall=lambda: world.now,
        pause=world.pause,
    )
    world.deliverer.run()
    assert world.steps > HOUR
    assert world.taken == list(range(1, world.steps + 1))
    late = [count for at, count in world.batches if at >= LEAVES + HOUR]
    assert late[:4] == [1, 1000, 1000, 1000], "the batch that was under way, then what has waited, in large ones"
    first = next(at for at, _ in world.batches if at >= LEAVES + HOUR)
    assert first - (LEAVES + HOUR) < 75, "back-off of records at most 15 s, that of a renewal at most 60 s"
    assert world.attempts < 2 * HOUR / 7.5, "it knocks every few seconds, not more"
    assert len(world.renewals) == 1
    assert given == [world.token]
    # An hour of a report a second: half a megabyte of disk. Only the disk limits it (0002-spool-on-disk-not-memory).
    assert path.stat().st_size < 600_000
