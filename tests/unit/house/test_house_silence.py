"""Nothing is silenced without a reason beside it: broad `except`, what linters say, what the type checker says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("docs", "bench", "examples", "tests/simulation", "tests/testbed")
FOLDERS = ("harness", "hub_ext", "kernel_magics", "server_ext", *TOOLS)
BROAD = {"Exception", "BaseException"}
SILENCER = re.compile(r"#\s*(?:ruff:\s*noqa|noqa|type:\s*ignore)\b(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[\w, -]+\])?")


def sources():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def names_of(node):
    """The names of the errors that an `except` or `suppress` takes."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def is_broad(node):
    """Whether a node swallows whatever is raised."""
    if isinstance(node, ast.ExceptHandler):
        last = node.body[-1]
        raises_again = isinstance(last, ast.Raise) and last.exc is None
        return not raises_again and (node.type is None or bool(BROAD & names_of(node.type)))
    called = node.func if isinstance(node, ast.Call) else None
    name = getattr(called, "attr", getattr(called, "id", ""))
    return name == "suppress" and any(BROAD & names_of(argument) for argument in node.args)


def broad_without_reason(text):
    """Numbers of lines that catch everything and say nothing beside it or on the next line."""
    lines = text.splitlines()
    found = [node.lineno for node in ast.walk(ast.parse(text)) if is_broad(node)]
    return [number for number in found if not any("#" in line for line in lines[number - 1 : number + 1])]


def silencers_without_reason(text):
    """Lines that silence ruff or mypy and say nothing after it."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = SILENCER.search(line)
        if match and not re.search(r"\w{2}", SILENCER.sub("", line[match.start() :])):
            found.append(f"{number}: {line.strip()}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("judge", [broad_without_reason, silencers_without_reason])
def test_whatever_is_silenced_says_why(judge):
    found = {str(path.relative_to(ROOT)): judge(path.read_text(encoding="utf-8")) for path in sources()}
    assert len(found) > 300, "the sources were found"
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("body", "silent"),
    [
        ("except Exception:\n    x = 1", True),
        ("except Exception:  # why\n    x = 1", False),
        ("except Exception:\n    # why\n    x = 1", False),
        ("except (OSError, BaseException):\n    x = 1", True),
        ("except:\n    x = 1", True),
        ("except Exception:\n    x = 1\n    raise", False),
        ("except OSError:\n    x = 1", False),
        ("finally:\n    with contextlib.suppress(Exception):\n        x = 1", True),
    ],
)
def test_what_counts_as_silent(body, silent):
    assert bool(broad_without_reason(f"try:\n    f()\n{body}\n")) is silent


@pytest.mark.parametrize(
    ("line", "silent"),
    [
        ("import x  # noqa: F401", True),
        ("import x  # noqa", True),
        ("import x  # noqa: F401, E402  (is it there?)", False),
        ("x = y  # type: ignore[arg-type]", True),
        ("x = y  # type: ignore[arg-type, misc]  # why it is so", False),
        ("# ruff: noqa: F821", True),
        ("x = 1  # a plain comment", False),
    ],
)
def test_what_counts_as_a_silencer_without_reason(line, silent):
    assert bool(silencers_without_reason(line)) is silent
