"""An open store and rows to hang metrics on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from detlab_hub.store import Store
from testbed.databases.store_rows import add_experiment, add_trial


@pytest.fixture
def store(db_url: str) -> Iterator[Store]:
    opened = Store.open(db_url, holder="test")
    yield opened
    opened.close()


@pytest.fixture
def experiment_id(store: Store) -> int:
    return store.write_sync(add_experiment)


@pytest.fixture
def trial_id(store: Store, experiment_id: int) -> int:
    return store.write_sync(lambda s: add_trial(s, experiment_id))


@pytest.fixture
def new_trial(store: Store, experiment_id: int) -> Callable[[], int]:
    return lambda: store.write_sync(lambda s: add_trial(s, experiment_id))
