"""Which slots of an agent a task gets where devices are shared: few devices, and those first that are begun."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from detlab.errors import Conflict
from detlab.schemas.shares import device_of, devices_of, divide, fractions, share_number
from detlab.schemas.wire import Hello, SlotView
from detlab_hub.backends.base import Node
from detlab_hub.core.scheduling import read_pools
from detlab_hub.core.scheduling.fit.slot_choice import pick
from detlab_hub.services.base.offers import usable, with_shares


def names(devices: int, parts: int) -> list[str]:
    return [slot.id for slot in divide([SlotView(id=f"cuda{number}") for number in range(devices)], parts)]


def fewest(free: list[str], count: int) -> int:
    """By trying: how many devices it takes."""
    left = Counter(map(device_of, free))
    return next(n for n in range(len(left) + 1) if any(sum(some) >= count for some in combinations(left.values(), n)))


def test_names() -> None:
    assert names(2, 1) == ["cuda0", "cuda1"]
    assert names(2, 2) == ["cuda0.0", "cuda0.1", "cuda1.0", "cuda1.1"]
    assert [device_of(slot) for slot in ("cuda0", "cuda0.1", "my.gpu", ".1", "a.b.12")] == [
        "cuda0",
        "cuda0",
        "my.gpu",
        ".1",
        "a.b",
    ]
    assert devices_of(["b.1", "a.0", "b.0"]) == ["b", "a"]
    assert [share_number(slot) for slot in ("cuda7", "cuda7.3")] == [0, 3]


def test_a_share_has_its_part_of_the_memory_and_says_of_what_it_is() -> None:
    (first, *_, last) = divide([SlotView(id="cuda0", kind="cuda", name="H200", uuid="GPU-1", memory=100)], 4)
    assert (first.id, first.device, first.shares, first.memory, first.uuid) == ("cuda0.0", "cuda0", 4, 25, "GPU-1")
    assert last.id == "cuda0.3"


def test_whole_devices_are_given_in_their_order_as_before() -> None:
    free = names(6, 1)
    assert pick(free, 4) == free[:4]
    assert pick(free, 0) == []


def test_shares_come_of_one_device_and_first_of_one_that_is_begun() -> None:
    free = [slot for slot in names(3, 4) if slot not in {"cuda1.0", "cuda1.2"}]
    assert pick(free, 1) == ["cuda1.1"]
    assert pick(free, 2) == ["cuda1.1", "cuda1.3"]
    assert pick(free, 3) == ["cuda0.0", "cuda0.1", "cuda0.2"], "three of one, not two and one"
    assert pick(free, 6) == ["cuda0.0", "cuda0.1", "cuda0.2", "cuda0.3", "cuda1.1", "cuda1.3"]


def test_tasks_that_come_and_go_never_have_more_than_the_shares_there_are_on_as_few_devices_as_can_be() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        parts, every = rng.randint(1, 5), names(rng.randint(1, 4), 1)
        every = [slot.id for slot in divide([SlotView(id=name) for name in every], parts)]
        held: dict[int, list[str]] = {}
        for step in range(40):
            taken = {slot for slots in held.values() for slot in slots}
            free = [slot for slot in every if slot not in taken]
            if held and rng.random() < 0.4:
                del held[rng.choice(list(held))]
                continue
            count = rng.randint(0, len(free))
            held[step] = pick(free, count)
            assert len(held[step]) == len(set(held[step])) == count
            assert set(held[step]) <= set(free)
            assert len(devices_of(held[step])) == fewest(free, count)
            used = Counter(device_of(slot) for slots in held.values() for slot in slots)
            assert all(number <= parts for number in used.values())


def test_how_much_of_each_device_is_had() -> None:
    assert fractions(["cuda0", "cuda1"], [1, 1]) == []
    assert fractions(["cuda0.1", "cuda0.3"], [4, 4]) == [0.5]
    assert fractions(["cuda1.0", "cuda1.1", "cuda0.1"], [2, 2, 2]) == [1.0, 0.5]
    assert fractions(["cuda1.0", "cuda1.1"], [2, 2]) == []
    assert fractions([], []) == []


def test_the_setting_is_a_whole_number_from_1_to_64() -> None:
    pools, mistakes = read_pools({"small": {"slots_per_device": 4}, "plain": {}})
    assert (mistakes, pools.shares_in("small"), pools.shares_in("plain")) == ([], 4, 1)
    assert pools.shares_in("unknown") == 1
    for wrong in (0, 65, 2.0, True, "4", None):
        _, mistakes = read_pools({"small": {"slots_per_device": wrong}})
        assert mistakes == [
            f"pools['small']['slots_per_device']: must be a whole number from 1 to 64, not {wrong!r}",
        ]


def test_devices_of_an_older_agent_are_left_whole_and_no_agent_may_name_a_slot_like_a_share() -> None:
    pools, _ = read_pools({"default": {"slots_per_device": 2}})
    hello = Hello(uids={}, agent_id="a", slots=[SlotView(id="cuda0")])
    assert [slot.id for slot in with_shares(hello, pools).slots] == ["cuda0"]
    new = hello.model_copy(update={"shares": True})
    assert [slot.id for slot in with_shares(new, pools).slots] == ["cuda0.0", "cuda0.1"]
    assert [slot.id for slot in with_shares(new, read_pools({})[0]).slots] == ["cuda0"]
    with pytest.raises(Conflict, match=r"cannot call a slot 'cuda0.1'"):
        with_shares(Hello(uids={}, agent_id="a", slots=[SlotView(id="cuda0.1")]), pools)


def test_a_device_that_is_held_as_it_was_divided_before_is_nobodys_and_a_closed_one_stays_closed() -> None:
    node = Node("a", tuple(names(3, 2)))
    (left,) = usable([node], {}, [("a", ["cuda1"]), ("a", ["cuda0.1"]), ("gone", ["cuda2"])])
    assert left.slots == ("cuda0.0", "cuda0.1", "cuda2.0", "cuda2.1")
    (left,) = usable([node], {"a": ["cuda0", "cuda2.1"]}, [])
    assert left.slots == ("cuda1.0", "cuda1.1", "cuda2.0")
    whole = Node("a", tuple(names(2, 1)))
    assert usable([whole], {}, [("a", ["cuda0.0", "cuda0.3"])])[0].slots == ("cuda1",)
