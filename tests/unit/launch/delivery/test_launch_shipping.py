"""The shipper without I/O: order, batches, retries, refusals, fencing; and against a master that misbehaves."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.backoff import Backoff
from detlab.launch.delivery.shipping import (
    MAX_RECORDS,
    Acked,
    Failed,
    Fenced,
    Phase,
    RecordRefusal,
    Rejected,
    StreamShipper,
    Unauthorised,
    judge,
)
from detlab.launch.delivery.spool import SpoolEntry
from detlab.launch.delivery.tokens import TokenKeeper


def entries(*numbers):
    return [SpoolEntry(n, json.dumps({"seq": n}).encode(), n * 10) for n in numbers]


def seqs(batch):
    return [entry.seq for entry in batch.entries]


def test_a_batch_is_sent_acknowledged_and_forgotten():
    shipper = StreamShipper("logs")
    shipper.load(entries(1, 2, 3))
    batch = shipper.poll(0.0)
    assert json.loads(batch.body()) == {"stream": "logs", "records": [{"seq": 1}, {"seq": 2}, {"seq": 3}]}
    assert shipper.poll(0.0) is None, "one batch in flight"
    shipper.settle(Acked(3), 0.0)
    assert (shipper.acked, shipper.acked_end, shipper.phase) == (3, 30, Phase.HUNGRY)


def test_batches_are_cut_at_the_limit_and_keep_their_order():
    shipper = StreamShipper("logs")
    shipper.load(entries(*range(1, MAX_RECORDS + 3)))
    assert len(shipper.poll(0.0).entries) == MAX_RECORDS
    shipper.settle(Acked(MAX_RECORDS), 0.0)
    assert seqs(shipper.poll(0.0)) == [MAX_RECORDS + 1, MAX_RECORDS + 2]


def test_a_failure_sends_the_same_batch_again_after_a_growing_pause():
    shipper = StreamShipper("metrics", backoff=Backoff(first=1.0, cap=8.0, draw=lambda: 1.0))
    shipper.load(entries(1))
    pauses, now = [], 0.0
    for _ in range(6):
        while (batch := shipper.poll(now)) is None:
            now += 0.5
        assert seqs(batch) == [1]
        shipper.settle(Failed("away"), now)
        pauses.append(shipper.resume_at - now)
    assert pauses == [1, 2, 4, 8, 8, 8]
    assert shipper.last_failure == "away"


def test_a_partial_acknowledgement_sends_the_rest():
    shipper = StreamShipper("logs")
    shipper.load(entries(1, 2, 3))
    shipper.poll(0.0)
    shipper.settle(Acked(2), 0.0)
    assert seqs(shipper.poll(0.0)) == [3]


def test_an_acknowledgement_of_nothing_new_waits_instead_of_spinning():
    shipper = StreamShipper("logs")
    shipper.load(entries(5))
    shipper.poll(0.0)
    shipper.settle(Acked(2), 0.0)
    assert shipper.phase is Phase.PAUSED


def test_refused_records_are_handed_over_and_passed():
    shipper = StreamShipper("metrics")
    shipper.load(entries(1, 2))
    shipper.poll(0.0)
    shipper.settle(Acked(2, (RecordRefusal(2, "bad", "no"),)), 0.0)
    assert shipper.refused == [RecordRefusal(2, "bad", "no")]
    assert shipper.phase is Phase.HUNGRY


def test_one_bad_record_is_found_by_halving_and_holds_up_nobody():
    shipper = StreamShipper("metrics")
    shipper.load(entries(*range(1, 101)))
    taken, requests = [], 0
    while (batch := shipper.poll(0.0)) is not None:
        requests += 1
        if 37 in seqs(batch):
            shipper.settle(Rejected("invalid", "bad group"), 0.0)
        else:
            taken += seqs(batch)
            shipper.settle(Acked(batch.entries[-1].seq), 0.0)
    assert taken == [n for n in range(1, 101) if n != 37]
    assert shipper.refused == [RecordRefusal(37, "invalid", "bad group")]
    assert requests < 25


def test_a_fence_drops_everything_and_asks_for_nothing():
    shipper = StreamShipper("logs")
    shipper.load(entries(1))
    shipper.poll(0.0)
    shipper.settle(Fenced("stale"), 0.0)
    assert shipper.phase is Phase.FENCED
    assert shipper.poll(1e9) is None


def test_committed_records_are_not_loaded_again():
    shipper = StreamShipper("logs", acked=2)
    shipper.load(entries(1, 2, 3))
    assert seqs(shipper.poll(0.0)) == [3]


def test_loading_or_settling_out_of_turn_is_a_defect():
    shipper = StreamShipper("logs")
    with pytest.raises(RuntimeError):
        shipper.settle(Acked(1), 0.0)
    shipper.load(entries(1))
    with pytest.raises(RuntimeError):
        shipper.load(entries(2))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"acked": 4}', Acked(4)),
        (
            200,
            b'{"acked": 4, "refused": [{"seq": 3, "code": "c", "message": "m"}]}',
            Acked(4, (RecordRefusal(3, "c", "m"),)),
        ),
        (200, b"<html>a proxy</html>", Failed),
        (409, b'{"code": "stale_attempt", "message": "run 2"}', Fenced("run 2")),
        (409, b'{"code": "other"}', Failed),
        (401, b'{"code": "expired", "message": "old"}', Unauthorised("old")),
        (422, b'{"code": "invalid", "message": "m"}', Rejected("invalid", "m")),
        (413, b"<html>", Rejected("too_large", "status 413")),
        (400, b"<html>a proxy</html>", Failed),
        (404, b"<html>the hub is not up</html>", Failed),
        (500, b"", Failed),
        (503, b"[]", Failed),
    ],
)
def test_what_replies_mean(status, body, expected):
    outcome = judge(status, body)
    assert type(outcome) is expected if isinstance(expected, type) else outcome == expected


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(1, 60),
    bad=st.sets(st.integers(1, 60), max_size=3),
    script=st.lists(st.sampled_from(["ok", "lost", "error", "auth", "part", "crash"]), max_size=60),
)
def test_whatever_the_network_does_every_record_counts_once_and_in_order(count, bad, script):
    """The master keeps a mark per stream; replies are lost, batches fail, the launcher restarts from its mark."""
    spool = entries(*range(1, count + 1))
    committed, mark, now = [], 0, 0.0
    shipper = StreamShipper("metrics", backoff=Backoff(draw=lambda: 0.5))
    cursor = 0
    faults = iter(script)
    refused = set()
    while shipper.acked < count:
        if shipper.phase is Phase.HUNGRY:
            shipper.load(spool[cursor : cursor + 7])
            cursor += 7
            continue
        batch = shipper.poll(now)
        if batch is None:
            now += 1.0
            continue
        fault = next(faults, "ok")
        if fault == "crash":
            shipper, cursor = StreamShipper("metrics", acked=shipper.acked), 0
            continue
        if fault in {"error", "auth"}:
            shipper.settle(Failed("x") if fault == "error" else Unauthorised("x"), now)
            continue
        if bad & set(seqs(batch)):
            shipper.settle(Rejected("invalid", ""), now)
            refused |= {refusal.seq for refusal in shipper.refused}
            continue
        part = batch.entries[:1] if fault == "part" else batch.entries
        committed += [entry.seq for entry in part if entry.seq > mark]
        mark = max(mark, part[-1].seq)
        shipper.settle(Failed("reply lost") if fault == "lost" else Acked(mark), now)
    assert committed == [n for n in range(1, count + 1) if n not in bad]
    assert refused == {n for n in bad if n <= count}


def test_tokens_are_renewed_from_half_of_their_life_on():
    keeper = TokenKeeper("a", expires_at=100.0, issued_at=0.0, backoff=Backoff(10.0, 60.0, lambda: 1.0))
    assert not keeper.due(49.0)
    assert keeper.due(50.0)
    keeper.failed(50.0)
    assert not keeper.due(59.0)
    assert keeper.due(60.0)
    assert keeper.due(5000.0), "an expired token may still ask"
    keeper.renewed("b", 200.0, 60.0)
    assert keeper.token == "b"
    assert not keeper.due(129.0)
    keeper.refused(70.0)
    assert keeper.due(70.0), "a token that was not taken is renewed early"
