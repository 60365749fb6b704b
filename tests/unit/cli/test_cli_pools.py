"""`det pool`, against a scripted master."""

from __future__ import annotations

import pytest

from detlab.schemas.elasticwire import ElasticPoolView, InstanceView, ProviderErrorView
from detlab.schemas.jobwire import JobView
from detlab.schemas.poolwire import BatchSystemView, PoolView
from detlab.schemas.wire import Partition

HOSTILE = "\x1b[31mred\x1b]0;x\x07"


@pytest.fixture(autouse=True)
def two(master) -> None:
    master.pools = [
        PoolView(name="default", scheduler="priority", fitting="best", priority=42, takes=["slots", "no_slots"]),
        PoolView(
            name="gpu", description=HOSTILE, scheduler="fair_share", preemption=True, fitting="worst", priority=30,
            patience=300.0, elastic=True, agents=3, agents_away=1, agents_closed=2, slots_total=8, slots_used=5,
            tasks_running=2, tasks_waiting=4, slots_waiting=9,
        ),
    ]  # fmt: skip
    master.jobs = [JobView(id="7", kind="experiment", owner="a", pool="gpu", state="queued", order=1, priority=1)]


def test_list(det, det_json) -> None:
    shown = det("pool", "list").stdout
    assert "\x1b" not in shown
    assert det("pool", "ls").stdout == shown
    row = next(line for line in shown.splitlines() if line.startswith("gpu"))
    assert row.split() == ["gpu", "fair_share", "yes", "worst", "3", "5", "8", "2", "4", "9", "red,", "elastic"]
    assert [(one["name"], one["slots_total"]) for one in det_json("pool", "list")] == [("default", 0), ("gpu", 8)]


def test_describe(det, det_json) -> None:
    shown = det("pool", "describe", "gpu").stdout
    for said in (
        "3, 1 not connected, 2 disabled for new work",
        "5 of 8 used, 2 tasks run",
        "4 tasks, for 9 slots",
        "30 of what names none",
        "1 job holds slots or waits for some: det job list --pool gpu",
    ):
        assert said in shown
    assert "\x1b" not in shown
    assert "what has slots and what has no slots" in det("pool", "describe", "default").stdout
    told = det_json("pool", "describe", "gpu")
    assert (told["scheduler"], told["agents"], [job["id"] for job in told["jobs"]]) == ("fair_share", 3, ["7"])


def test_describe_shows_the_instances_of_an_elastic_pool_and_what_its_provider_did_not_do(
    det, det_json, master
) -> None:
    master.elastic_pools = [
        ElasticPoolView(
            name="gpu", min_instances=0, max_instances=4, wanted=2,
            held_back="the last launch failed: tried again in 10 s",
            instances=[InstanceView(id="i-1", agent_id="gpu-1", state="running", agent_state="connected")],
            errors=[ProviderErrorView(time=1, times=3, doing="launch", trouble="capacity", message=HOSTILE, hint="h")],
        )
    ]  # fmt: skip
    shown = det("pool", "describe", "gpu").stdout
    assert "Pool gpu: 1 instance (0 to 4), 2 more are wanted" in shown
    assert "waits: the last launch failed: tried again in 10 s" in shown
    assert "launch (3 times): red" in shown
    assert "\x1b" not in shown
    assert "instances" not in det("pool", "describe", "default").stdout
    assert det_json("pool", "describe", "gpu")["instances"]["errors"][0]["trouble"] == "capacity"


def test_of_a_pool_that_a_batch_system_places_the_partitions_are_shown(det, det_json, master) -> None:
    partitions = [
        Partition(name="gpu", default=True, time_limit="2-00:00:00", idle=1, allocated=3, other=2),
        Partition(name=HOSTILE, up=False),
    ]
    batch = BatchSystemView(name="Slurm", slots=24, slots_per_node=4, partitions=partitions)
    master.pools = [
        PoolView(name="slurm", scheduler="priority", fitting="best", priority=42, slots_total=24, batch=batch)
    ]
    row = next(line for line in det("pool", "list").stdout.splitlines() if line.startswith("slurm"))
    assert "placed by Slurm" in row
    shown = det("pool", "describe", "slurm").stdout
    assert "Slurm, in its own queue" in shown
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("gpu")]
    assert line == ["gpu", "(default)", "up", "1", "3", "2", "2-00:00:00"]
    assert "takes no jobs" in shown
    assert "\x1b" not in shown
    assert det_json("pool", "describe", "slurm")["batch"]["partitions"][0]["allocated"] == 3


def test_a_pool_that_is_not_there(det) -> None:
    done = det("pool", "describe", HOSTILE)
    assert done.exit_code == 1
    assert "there is no pool red" in done.stderr
    assert "there are: default, gpu" in done.stderr
    assert "\x1b" not in done.stderr
