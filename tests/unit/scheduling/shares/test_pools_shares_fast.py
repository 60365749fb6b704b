"""What makes fair share fast changes nothing that it offers, decides or says."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from plain_shares import PlainShare, plain_fair_share, plain_fill
from pool_snapshots import after, random_snapshot, some_leaving

from detlab_hub.core.scheduling import Agent, Job, Pool, Scheduler, SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.fair_share import _Share, fill
from detlab_hub.core.scheduling.order import place_of_job

WEIGHTS = (1.0, 1.0, 1.0, 3.0, 0.7, 1e-6, 1e6)


def random_shares(seed: int) -> tuple[list[PlainShare], int]:
    """Jobs that hold and want something, many more or far fewer than there are slots; and how many slots there are."""
    draw = random.Random(seed)
    weights = draw.choice([WEIGHTS, (1.0,), (1.0, 2.0)])
    sizes = draw.choice([(8,), (1, 2, 3, 4, 8, 16), (4, 5), (1,)])
    shares = []
    for number in range(draw.choice([1, 3, 10, 40, 90])):
        job = Job(
            f"j{number}",
            weight=draw.choice(weights),
            max_slots=draw.choice([None, None, None, 0, 2, 8, 20]),
            submitted=float(draw.randint(0, 30)),
            position=draw.choice([None, None, None, -1.0, 9.0]),
        )
        share = PlainShare(job)
        tasks = [SchedulerTask(f"{job.id}.{n}", job.id, draw.choice(sizes)) for n in range(draw.choice([1, 1, 2, 5]))]
        for task in tasks:
            if draw.random() < 0.2:
                share.held += task.slots
                share.fixed += draw.choice([0, task.slots])
            else:
                share.pending.append(task)
        shares.append(share)
    held = sum(share.held for share in shares)
    return sorted(shares, key=lambda share: place_of_job(share.job)), draw.randint(0, held + draw.choice([4, 64, 300]))


@pytest.mark.slow
def test_the_fast_filling_offers_what_the_plain_one_does() -> None:
    for seed in range(800):
        plain, capacity = random_shares(seed)
        fast = []
        for share in plain:
            one = _Share(share.job, held=share.held, fixed=share.fixed, given=random.Random(seed).randint(0, 9))
            one.keep(list(share.pending))
            fast.append(one)
        plain_fill(plain, capacity)
        fill(fast, capacity)
        assert [share.offered for share in fast] == [share.offered for share in plain], seed
        assert [share.given for share in fast] == [share.given for share in plain], seed


def many_jobs(seed: int) -> Snapshot:
    """A random pool with many more jobs than others have."""
    draw = random.Random(seed)
    pool = random_snapshot(seed, scheduler=Scheduler.FAIR_SHARE)
    number = draw.choice([20, 60])
    jobs = dict(pool.jobs)
    tasks = list(pool.tasks)
    for n in range(number):
        job = Job(f"m{n}", weight=draw.choice(WEIGHTS), submitted=float(draw.randint(0, 40)))
        jobs[job.id] = job
        sizes = [draw.choice([1, 2, 3, 4, 8]) for _ in range(draw.choice([1, 1, 3]))]
        tasks += [SchedulerTask(f"{job.id}.{k}", job.id, slots, requested=float(k)) for k, slots in enumerate(sizes)]
    more = tuple(Agent(f"b{n}", draw.choice([2, 4, 8])) for n in range(draw.randint(0, 6)))
    return replace(pool, agents=(*pool.agents, *more), jobs=jobs, tasks=tuple(tasks))


@pytest.mark.slow
def test_fast_fair_share_decides_and_says_what_the_plain_one_does() -> None:
    releases = 0
    for seed in range(250):
        for pool in (
            random_snapshot(seed, scheduler=Scheduler.FAIR_SHARE),
            some_leaving(random_snapshot(seed + 5000, scheduler=Scheduler.FAIR_SHARE), seed),
        ):
            assert schedule(pool) == plain_fair_share(pool), seed
    for seed in range(80):
        now = many_jobs(seed)
        for _ in range(3):
            decision = schedule(now)
            assert decision == plain_fair_share(now), seed
            releases += len(decision.release)
            now = after(now, decision)
    assert releases > 20


@pytest.mark.slow
def test_a_pass_over_many_jobs_whose_share_is_too_small_does_not_hold_the_master_up() -> None:
    """800 jobs with a task of 8 slots each, 256 slots: that took more than two seconds of each pass."""
    agents = tuple(Agent(f"a{n}", 8) for n in range(32))
    jobs = {f"j{n}": Job(f"j{n}", submitted=float(n)) for n in range(800)}
    tasks = tuple(SchedulerTask(f"t{n}", f"j{n}", 8, TaskState.PENDING, user=f"u{n}") for n in range(800))
    pool = Snapshot(Pool(Scheduler.FAIR_SHARE, preemption=True), agents, jobs, tasks)
    began = time.process_time()
    decision = schedule(pool)
    fast = time.process_time() - began
    assert set(decision.allocate) == {f"t{n}" for n in range(32)}
    began = time.process_time()
    assert plain_fair_share(pool) == decision
    assert fast < (time.process_time() - began) / 3
