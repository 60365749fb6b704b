"""A client that was used before a fork: each child has connections of its own, and gets what it asks for."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from detlab import client as module
from detlab.client import singleton
from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from testbed.fake_master.api import FakeMaster

CALLS = 60
FORK = multiprocessing.get_context("fork")
pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
_clients: dict[str, Callable[[int], int]] = {}


def ask(name: str, wanted: int) -> bool:
    return all(_clients[name](number) == number for number in [wanted] * 3)


def check_children(name: str, get: Callable[[int], int]) -> None:
    _clients[name] = get
    assert get(1) == 1
    with ProcessPoolExecutor(4, mp_context=FORK) as pool:
        futures = [pool.submit(ask, name, 1 + number % 8) for number in range(CALLS)]
        mine = [get(1 + number % 8) for number in range(CALLS)]
        right = [future.result(60) for future in futures]
    assert mine == [1 + number % 8 for number in range(CALLS)]
    assert all(right), "a child read an answer that was another one's"


@pytest.fixture
def filled(master: FakeMaster, client: Client) -> FakeMaster:
    for number in range(8):
        client.create_experiment(
            {"name": f"e{number}", "entrypoint": "x", "searcher": {"name": "single", "metric": "l"}}
        )
    return master


@pytest.mark.slow
def test_children_with_the_blocking_client_get_what_they_ask_for(filled: FakeMaster, client: Client) -> None:
    """25 of 40 calls returned another experiment: `.kill()` would have ended somebody else's."""
    check_children("sync", lambda number: client.get_experiment(number).id)


@pytest.mark.slow
def test_children_with_objects_of_the_parent_get_what_they_ask_for(filled: FakeMaster, client: Client) -> None:
    found = {number: client.get_experiment(number) for number in range(1, 9)}
    check_children("objects", lambda number: found[number].reload().id)


@pytest.mark.slow
def test_children_with_the_functions_of_the_module_get_what_they_ask_for(
    filled: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_URL", filled.url)
    monkeypatch.setenv("DET_TOKEN", filled.token)
    try:
        check_children("module", lambda number: module.get_experiment(number).id)
    finally:
        module.logout()


@pytest.mark.slow
def test_children_with_the_asynchronous_client_get_what_they_ask_for(filled: FakeMaster) -> None:
    made = AsyncClient(filled.url, filled.token)
    runner = asyncio.Runner()

    async def get(number: int) -> int:
        return (await made.get_experiment(number)).id

    def in_child(number: int) -> int:
        if multiprocessing.parent_process() is None:
            return runner.run(get(number))
        return asyncio.run(_once(filled, made, number))

    try:
        check_children("async", in_child)
        runner.run(made.close())
    finally:
        runner.close()


async def _once(master: FakeMaster, made: AsyncClient, number: int) -> int:
    try:
        return (await made.get_experiment(number)).id
    finally:
        await made.close()


def test_a_lock_that_a_thread_held_at_the_fork_does_not_stop_the_child(filled: FakeMaster, client: Client) -> None:
    client.get_experiment(1)
    _clients["locked"] = lambda number: client.get_experiment(number).id
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with client.session._lock, singleton._current._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        child = FORK.Process(target=ask, args=("locked", 2))
        child.start()
        child.join(30)
        assert child.exitcode == 0
    finally:
        done.set()
        thread.join()


def test_pickling_an_object_says_what_to_do(filled: FakeMaster, client: Client) -> None:
    experiment = client.get_experiment(3)
    for one in (client, experiment, client.session):
        with pytest.raises(TypeError, match=r"client\.get_experiment\(7\)"):
            pickle.dumps(one)
    assert copy.copy(experiment).id == 3
    assert pickle.loads(pickle.dumps(experiment.view)).id == 3, "plain data can be sent"
