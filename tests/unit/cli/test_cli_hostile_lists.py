"""Whatever text a master tells of jobs, pools, quotas, agents, instances and shares, `det` prints only what is seen."""

from __future__ import annotations

import pytest

from detlab.schemas.elasticwire import ElasticPoolView, InstanceView, ProviderErrorView
from detlab.schemas.jobwire import HintView, JobView, JobWhy, QuotaView, WaitView
from detlab.schemas.poolwire import PoolView
from detlab.schemas.wire import GrantView

HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m[red]evil[/red]\x1b[0m\u202egnp\u2066\u200f\u061c\u200b\xad\x9b2J\x9d0;x\x9c"
    "\u2028\ufeff\U000e0041\b\r\x00\ttab\nsecond <img src=x onerror=alert(1)>"
)


@pytest.fixture(autouse=True)
def told(master) -> None:
    """A master that says it in each of its texts."""
    job = JobView(
        id="7", kind="experiment", name=HOSTILE, owner=HOSTILE, mine=True, pool=HOSTILE, state="queued", order=1,
        priority=42, reason=HOSTILE, max_slots=2, moved=True, slots_wanted=2, tasks_waiting=1,
    )  # fmt: skip
    master.jobs = [job, job.model_copy(update={"id": HOSTILE, "kind": HOSTILE, "state": HOSTILE, "order": 2})]
    hint = HintView(change=HOSTILE, value=HOSTILE, text=HOSTILE)
    wait = WaitView(slots=2, pool=HOSTILE, place=1, reason=HOSTILE, detail=HOSTILE, hints=[hint], task_id=HOSTILE)
    master.whys = {"7": JobWhy(job=master.jobs[1], items=[wait, wait], waiting=4), "8": JobWhy(job=master.jobs[1])}
    master.pools = [
        PoolView(
            name=name,
            description=HOSTILE,
            scheduler=HOSTILE,
            fitting=HOSTILE,
            priority=1,
            elastic=True,
            takes=[HOSTILE],
        )
        for name in ("gpu", HOSTILE)
    ]
    instance = InstanceView(id=HOSTILE, agent_id=HOSTILE, state=HOSTILE, agent_state=HOSTILE, spot=True)
    error = ProviderErrorView(time=1, times=3, doing=HOSTILE, trouble=HOSTILE, message=HOSTILE, hint=HOSTILE)
    master.elastic_pools = [
        ElasticPoolView(
            name=name,
            min_instances=0,
            max_instances=4,
            wanted=2,
            held_back=HOSTILE,
            instances=[instance],
            errors=[error],
        )
        for name in ("gpu", HOSTILE)
    ]
    master.quotas["user", HOSTILE] = QuotaView(kind="user", name=HOSTILE, slots=4, held=6, set_by=HOSTILE, set_at=1.0)
    master.quotas["group", HOSTILE] = QuotaView(kind="group", name=HOSTILE, slots=4, set_by=HOSTILE)
    master.add_agent(
        HOSTILE, version=HOSTILE, address=HOSTILE, serves_user=HOSTILE, pool=HOSTILE, labels={HOSTILE: HOSTILE},
        runtimes=[HOSTILE],
    )  # fmt: skip
    master.add_agent("node1", pool=HOSTILE, labels={HOSTILE: HOSTILE})
    master.add_experiment(HOSTILE, owner=HOSTILE)
    for kind in ("user", "group"):
        grant = GrantView(kind=kind, name=HOSTILE, write=True, granted_by=HOSTILE, granted_at=1.0)
        master.grants.setdefault(1, {})[kind, HOSTILE] = grant


@pytest.mark.parametrize(
    "words",
    [
        ("job", "list"),
        ("job", "list", "--pool", HOSTILE),
        ("job", "why", "7"),
        ("job", "why", "8"),
        ("job", "why", HOSTILE),
        ("job", "update", "7", "--priority", "3"),
        ("job", "update", HOSTILE, "--priority", "3"),
        ("job", "update-batch", HOSTILE),
        ("job", "update-batch", f"7.{HOSTILE}=3"),
        ("job", "update-batch", f"7.weight={HOSTILE}"),
        ("pool", "list"),
        ("pool", "describe", "gpu"),
        ("pool", "describe", HOSTILE),
        ("pool", "describe", "nothing"),
        ("quota", "list"),
        ("quota", "set", "--user", HOSTILE, "--slots", "3"),
        ("quota", "set", "--user", "ada", "--slots", HOSTILE),
        ("quota", "remove", "--group", HOSTILE),
        ("quota", "remove", "--user", f"no {HOSTILE}"),
        ("agent", "list"),
        ("slot", "list"),
        ("agent", "drain", "node1", "--deadline", HOSTILE),
        ("agent", "drain", HOSTILE),
        ("agent", "enable", HOSTILE),
        ("agent", "enable", f"no{HOSTILE}"),
        ("slot", "disable", "node1", HOSTILE),
        ("slot", "disable", HOSTILE, "0"),
        ("cluster", "instances"),
        ("e", "share", "1"),
        ("e", "share", "1", "--user", HOSTILE, "--write"),
        ("e", "share", "1", "--group", f"no {HOSTILE}", "--remove"),
        ("e", "share", HOSTILE),
        ("e", HOSTILE),
        (HOSTILE,),
        ("job", "list", f"--{HOSTILE}"),
    ],
    ids=lambda words: ascii(" ".join(words))[1:40],
)
def test_every_character_of_every_line_can_be_seen(det, words: tuple[str, ...]) -> None:
    done = det(*words)
    assert done.output.strip()
    assert [f"{ord(one):x}" for one in done.output if one not in "\n\t" and not one.isprintable()] == [], done.output
