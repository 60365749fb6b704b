"""From a function to the text that defines it elsewhere: what it uses comes along, each line where it was."""

from __future__ import annotations

import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from detlab.remote_functions import FunctionNotShipped, RemoteFunction
from detlab.remote_functions.source import ShippedFunction, ship_function, used_names

Script = Callable[..., types.ModuleType]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Makes a `__main__` of cells, each with a file of its own, as a notebook or a script has them."""
    files: list[str] = []

    def go(*cells: str) -> types.ModuleType:
        module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        for number, cell in enumerate(cells, 1):
            name = f"/tmp/ipykernel_1/{number}.py"
            files.append(name)
            text = textwrap.dedent(cell)
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
        return module

    yield go
    for name in files:
        linecache.cache.pop(name, None)


def call(shipped: ShippedFunction, *args: Any) -> Any:
    """Call it where nothing else is known."""
    namespace = dict(shipped.values)
    exec(compile(shipped.text, shipped.name, "exec", dont_inherit=True), namespace)
    return eval(shipped.called, namespace)(*args)


def test_what_a_function_uses_by_name_comes_along(script: Script) -> None:
    module = script(
        """\
        import math
        import xml
        import xml.etree.ElementTree
        import os.path as osp
        from collections import OrderedDict as OD
        import detlab as det

        LIMIT = 3
        UNUSED = open

        class Point:
            def __init__(self, x):
                self.x = x

        def helper(x):
            return Point(math.sqrt(x)).x + LIMIT

        @det.remote(slots=2)
        def train(n, more=LIMIT):
            tree = xml.etree.ElementTree.fromstring("<a><b/></a>")
            return [helper(v) for v in range(n)], len(tree) + len(OD()) + more, osp.basename("a/b")
        """
    )
    shipped = ship_function(module.train.function)
    assert call(shipped, 2) == ([3.0, 4.0], 4, "b")
    assert shipped.values == {"LIMIT": 3}
    assert "UNUSED" not in shipped.text
    assert "det.remote" not in shipped.text
    lines = shipped.text.split("\n")
    assert lines[18] == "def train(n, more=LIMIT):", "each line is where it was"
    assert lines[14] == "def helper(x):"


def test_definitions_of_other_cells_come_along_behind(script: Script) -> None:
    module = script(
        "def far(x):\n    return near(x) + 1\n",
        "def near(x):\n    return 10 * x\n",
        "import detlab as det\n\n@det.remote\ndef train(x):\n    return far(x)\n",
    )
    shipped = ship_function(module.train.function)
    assert call(shipped, 4) == 41
    assert shipped.text.split("\n")[3] == "def train(x):"


def test_a_function_in_a_function_takes_what_it_closes_over(script: Script) -> None:
    module = script(
        """\
        import detlab as det

        def outer(k):
            import json
            @det.remote()
            def inner(x):
                return json.dumps([x, k])
            return inner
        """
    )
    shipped = ship_function(module.outer(5).function)
    assert shipped.values == {"k": 5}
    assert call(shipped, 1) == "[1, 5]"


def test_other_decorators_stay_and_a_call_of_itself_is_its_own(script: Script) -> None:
    module = script(
        """\
        import functools
        import detlab as det

        @det.remote(
            slots=2,
        )
        @functools.cache
        def fact(n):
            return 1 if n == 0 else n * fact(n - 1)
        """
    )
    shipped = ship_function(module.fact.function)
    assert call(shipped, 5) == 120
    assert "@functools.cache" in shipped.text


def test_annotations_that_nobody_evaluates_need_not_be_there(script: Script) -> None:
    head = "from __future__ import annotations\nimport detlab as det\n"
    module = script(f"{head}\n@det.remote\ndef f(x: Missing) -> None:\n    return x\n")
    assert call(ship_function(module.f.function), 1) == 1


def test_a_decorator_that_is_a_call_of_a_function_leaves_no_free_line(script: Script) -> None:
    module = script("def f(x):\n    return math.sqrt(x)\n", "import math\nimport detlab\ng = detlab.remote(f)\n")
    assert call(ship_function(module.g.function), 4) == 2.0


def test_a_dataclass_of_a_cell_comes_along(script: Script) -> None:
    module = script(
        "from dataclasses import dataclass\n\n@dataclass\nclass Config:\n    lr: float = 0.5\n",
        "import detlab as det\n\n@det.remote\ndef train():\n    return Config().lr\n",
    )
    assert call(ship_function(module.train.function)) == 0.5


def test_another_remote_function_comes_along_as_a_plain_one(script: Script) -> None:
    first = "import detlab as det\n\n@det.remote\ndef a(x):\n    return x + 1\n"
    module = script(f"{first}\n@det.remote\ndef b(x):\n    return a(a(x))\n")
    assert call(ship_function(module.b.function), 1) == 3


def test_other_names_of_a_function_and_of_the_decorator_are_seen_through(script: Script) -> None:
    module = script(
        """\
        import functools
        from detlab import remote as cloud

        def helper(x):
            return 2 * x

        twice = helper

        @cloud(slots=2)
        @functools.cache
        def f(x):
            return helper(x) + twice(x)
        """
    )
    shipped = ship_function(module.f.function)
    assert "cloud" not in shipped.text
    assert "@functools.cache" in shipped.text
    assert call(shipped, 3) == 12


def test_a_decorator_that_is_not_ours_stays_where_remote_is_called_as_a_function(script: Script) -> None:
    module = script(
        "import functools\nimport detlab\n\n@functools.cache\ndef f(x):\n    return x\n\ng = detlab.remote(f)\n"
    )
    shipped = ship_function(module.g.function)
    assert "@functools.cache" in shipped.text
    assert call(shipped, 3) == 3


def test_a_cell_that_begins_with_the_decorator_keeps_its_lines(script: Script) -> None:
    module = script("import math\nimport detlab as det\n", "@det.remote\ndef f(x):\n    return math.sqrt(x)\n")
    shipped = ship_function(module.f.function)
    assert shipped.text.split("\n")[:2] == ["import math", "def f(x):"]
    assert call(shipped, 4) == 2.0


def test_two_values_by_one_name_are_told(script: Script) -> None:
    module = script(
        """\
        import detlab as det
        k = 1

        def helper():
            return k

        def outer(k):
            @det.remote
            def inner():
                return k + helper()
            return inner
        """
    )
    with pytest.raises(FunctionNotShipped, match="two different values by the name 'k'"):
        ship_function(module.outer(5).function)


def test_all_names_that_mean_nothing_here_are_told_at_once(script: Script) -> None:
    module = script("import detlab as det\n\n@det.remote\ndef f(x):\n    return nothing(x) + nowhere + len([x])\n")
    with pytest.raises(FunctionNotShipped) as raised:
        ship_function(module.f.function)
    assert "it uses 'nothing', which is not defined here" in str(raised.value)
    assert "it uses 'nowhere'" in str(raised.value)


def test_a_function_whose_source_is_nowhere_is_refused() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(x):\n    return x", namespace)
    with pytest.raises(FunctionNotShipped, match="the source of f cannot be read"):
        ship_function(namespace["f"])


def in_this_module(x: int) -> int:
    """A function of a module is imported there."""
    return helper_of_this_module(x)


def helper_of_this_module(x: int) -> int:
    return x * 2


def test_a_function_of_a_module_is_imported() -> None:
    shipped = ship_function(in_this_module)
    assert shipped.text.startswith(f"from {__name__} import in_this_module as the_function\n")
    assert call(shipped, 4) == 8
    assert shipped.values == {}


def generates(n: int) -> Iterator[int]:
    yield n


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (3, "a function made by def"),
        (lambda x: x, "a function with a name"),
        (print, "a function made by def"),
        (generates, "is a generator"),
        (RemoteFunction, "a function made by def"),
    ],
)
def test_what_is_no_such_function_is_refused_when_it_is_decorated(thing: Any, words: str) -> None:
    import detlab as det

    with pytest.raises(FunctionNotShipped, match=words):
        det.remote(thing)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(x, y=A):\n    return x + B", {"A", "B"}),
        ("def f():\n    def g():\n        return C\n    return [d for d in D if d.e]", {"C", "D"}),
        ("def f():\n    import json\n    return json.loads(x.y)", {"x"}),
        ("class K(Base):\n    a = E\n    def m(self):\n        return self.a + F", {"Base", "E", "F"}),
        ("def f():\n    global g\n    g = 1", set()),
        ("@deco(H)\ndef f(x: I) -> J:\n    pass", {"deco", "H", "I", "J"}),
        ("async def f():\n    async with K as k:\n        return await k.l()", {"K"}),
        ("def f(n):\n    return f(n - 1) if n else (lambda: M)()", {"M"}),
    ],
)
def test_names_taken_from_around(text: str, names: set[str]) -> None:
    assert used_names(text) == names
