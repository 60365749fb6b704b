"""From the changed files to the tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from affected.graph import FRONT_ENDS, Graph, Steps, draw
from affected.repository import PROJECT, Change, all_files

HOUSE = "tests/unit/house/"
DOCS = "tests/docs/"
CLUSTER = "tests/testbed/cluster.py"
QUICK = ("tests/unit/", "tests/integration/services/", "tests/integration/store/")
"""What runs when nothing says which tests a file concerns: QUICK_TESTS of the Makefile."""
EVERYTHING = (PROJECT, "constraints.txt")
"""What any test may depend on, whoever names it."""
NO_CODE = (".md", ".png", ".svg")
LATER = {"soak": "make soak", "kubernetes": "make test-kubernetes", "slurm": "make test-slurm"}
"""Markers of tests that `make affected` leaves to other targets, as `make test` does."""


@dataclass(frozen=True)
class Choice:
    """What to run for a change."""

    graph: Graph
    steps: Steps
    """All that the change reaches."""
    always: frozenset[str]
    """The cheap tests of the house and of the documentation: they look at all files."""
    unknown: tuple[str, ...]
    """Changed files that no test is known to depend on: for these all quick tests run."""

    @property
    def tests(self) -> list[str]:
        """The files of the chosen tests: quick ones first, simulations last."""
        quick = {path for path in self.graph.tests if self.unknown and path.startswith(QUICK)}
        chosen = quick | self.always | (self.steps.keys() & self.graph.tests.keys())
        return sorted(chosen, key=lambda path: (path.startswith("tests/simulation/"), not path.startswith(QUICK), path))

    @property
    def front_ends(self) -> bool:
        """Whether the front ends' own tests are reached."""
        return FRONT_ENDS in self.steps

    def count(self, paths: list[str]) -> int:
        """Return how many test functions some files have."""
        return sum(self.graph.tests[path] for path in paths)

    def why(self, test: str) -> list[str]:
        """Return why a file of tests is chosen: one line for each step towards the change, or one reason."""
        lines: list[str] = []
        node = test
        while node and node in self.steps:
            needed, how = self.steps[node]
            lines.append(f"{node} {how} {needed}".rstrip())
            node = needed
        if lines:
            return lines
        if test in self.always:
            return [f"{test} looks at all files and is cheap: it always runs"]
        if test in self.tests:
            return [f"{test} is quick, and nothing says which tests concern {', '.join(self.unknown)}"]
        return [f"{test} is not chosen: nothing that it depends on has changed"]


def choose(root: Path, change: Change) -> Choice:
    """Return what to run for a change of a repository."""
    graph = draw(root, all_files(root) | {path for path in change.files if path.endswith(".py")})
    changed = dict.fromkeys(change.files, "has changed")
    steps = graph.reached(changed | dict.fromkeys(paths_of(change.targets, root), "has a changed entry point"))
    clusters = graph.reached({CLUSTER: ""})
    always = {
        path
        for path in graph.tests
        if path.startswith(HOUSE) or (path.startswith(DOCS) and path not in clusters and not markers(root, path))
    }
    known = known_by(graph, steps, change)
    unknown = {path for path in change.files - known if not path.endswith(NO_CODE) and not is_deleted_test(root, path)}
    unknown |= change.files & set(EVERYTHING)
    gone = {path for path in graph.tests if not (root / path).is_file()}
    for path in gone:
        del graph.tests[path]
    return Choice(graph, steps, frozenset(always - gone), tuple(sorted(unknown)))


def known_by(graph: Graph, steps: Steps, change: Change) -> set[str]:
    """Return the changed files on which a test, or the front ends, depend."""
    known: set[str] = set()
    for path in change.files:
        alone = graph.reached({path: ""}) if len(change.files) > 1 else steps
        if not alone.keys().isdisjoint({*graph.tests, FRONT_ENDS}):
            known.add(path)
    return known


def paths_of(modules: frozenset[str], root: Path) -> list[str]:
    """Return the files of modules."""
    names = [module.replace(".", "/") for module in modules]
    found = [
        path
        for folder in ("harness", "hub_ext", "kernel_magics", "server_ext")
        for name in names
        for path in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py")
    ]
    return [path for path in found if (root / path).is_file()]


def is_deleted_test(root: Path, path: str) -> bool:
    """Say whether a file of tests is gone: there is nothing to run for it."""
    return Path(path).name.startswith("test_") and not (root / path).is_file()


def markers(root: Path, path: str) -> set[str]:
    """Return which markers of tests that run elsewhere, or start clusters, a file names."""
    there = root / path
    text = there.read_text() if there.is_file() else ""
    return {name for name in (*LATER, "hub", "alone") if f"mark.{name}" in text}
