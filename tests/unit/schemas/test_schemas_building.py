"""Models are built when they are first used, by however many threads at once."""

import threading

import pytest

from detlab.schemas.building import ON_FIRST_USE
from detlab.schemas.wire import base


def test_an_import_builds_no_model() -> None:
    class Late(base.Wire):
        number: int

    assert Late.__pydantic_complete__ is not ON_FIRST_USE


@pytest.mark.parametrize("attempt", range(20))
def test_threads_that_use_a_model_first_at_once_all_validate_by_it(attempt: int) -> None:
    class Inner(base.Wire):
        number: int

    class Outer(base.Wire):
        inner: Inner
        name: str = f"of {attempt}"

    found: list[object] = []
    start = threading.Barrier(8)

    def use() -> None:
        start.wait(10)
        try:
            found.append(Outer.model_validate({"inner": {"number": "7"}}).model_dump())
        except Exception as error:  # said below, by the thread of the test
            found.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [{"inner": {"number": 7}, "name": f"of {attempt}"}] * 8
