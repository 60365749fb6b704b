"""`make affected`: says which tests a change reaches, and writes their names for pytest."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from affected.choosing import LATER, QUICK, Choice, choose, markers
from affected.repository import Change, Unknown, change

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Say what is chosen and why; exit with 2 if git does not know the commit."""
    parser = argparse.ArgumentParser(prog="make affected", description=__doc__)
    parser.add_argument("--since", default="", help="A commit; by default, where the branch left main.")
    parser.add_argument("--why", default="", help="A file of tests: say why it is chosen, and run nothing.")
    parser.add_argument("--only", default="", choices=("", "quick"), help="Leave out what starts more than a database.")
    parser.add_argument("--into", type=Path, help="A folder: its files `tests`, `alone` and `front` say what to run.")
    arguments = parser.parse_args()
    try:
        changed = change(ROOT, arguments.since)
    except Unknown as error:
        print(error, file=sys.stderr)
        return 2
    choice = choose(ROOT, changed)
    tests = [path for path in choice.tests if not arguments.only or path.startswith(QUICK)]
    if arguments.into is not None:
        write(ROOT, arguments.into, [] if arguments.why else tests, front=choice.front_ends and not arguments.why)
    print("\n".join(choice.why(arguments.why) if arguments.why else summary(ROOT, changed, choice, tests)))
    return 0


def summary(root: Path, changed: Change, choice: Choice, tests: list[str]) -> list[str]:
    """Return what was found, in lines."""
    every = list(choice.graph.tests)
    lines = [
        f"{len(changed.files)} files changed since {changed.since[:12]}."
        f" To run: {len(tests)} of {len(every)} files of tests,"
        f" {choice.count(tests):,} of {choice.count(every):,} test functions,"
        f" {'and' if choice.front_ends else 'but not'} the front ends' own.",
        *(f"Nothing says which tests concern {path}: all quick ones run." for path in choice.unknown),
    ]
    for marker, target in LATER.items():
        if left := [path for path in tests if marker in markers(root, path)]:
            lines.append(f"Left to {target}: tests in {len(left)} of these files, such as {left[0]}.")
    return [*lines, "", *(f"  {path}" for path in tests), ""]


def write(root: Path, folder: Path, tests: list[str], *, front: bool) -> None:
    """Write one name a line for each way to run them; a file that is not there means that there is nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    alone = [path for path in tests if "alone" in markers(root, path)]
    for name, paths in {"tests": tests, "alone": alone, "front": ["labextension"] if front else []}.items():
        if paths:
            (folder / name).write_text("".join(f"{path}\n" for path in paths))


if __name__ == "__main__":
    sys.exit(main())
