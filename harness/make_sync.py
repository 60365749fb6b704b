"""Makes the modules of the blocking client from those of the asynchronous one, which alone are written by hand.

    python harness/make_sync.py           write those that are not current
    python harness/make_sync.py --check   exit 1 and name the modules that are not current
    python harness/make_sync.py --watch   write them anew whenever their sources change

They are not committed: each build and installation makes them (`harness/build_hook.py`), and so do the targets of the
Makefile. `detlab.client` refuses a checkout where one is missing or was made from other sources: the first line of each
has a digest of what it was made from. The two ways to send a request are not made from one another: both are in
`detlab/client/transport/session.py`.

It needs the standard library alone, and writes the same in each Python: line by line what its source says.
"""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

CLIENT = Path(__file__).parent / "detlab" / "client"
MODULES = {
    "aclient.py": "client.py",
    "aresources.py": "resources.py",
    "asearch.py": "search.py",
    "atasks.py": "tasks.py",
    "artifacts/acalls.py": "artifacts/calls.py",
    "artifacts/alogged.py": "artifacts/logged.py",
    "parts/aalerts.py": "parts/alerts.py",
    "parts/abatches.py": "parts/batches.py",
    "parts/acollection.py": "parts/collection.py",
    "parts/aedits.py": "parts/edits.py",
    "parts/afiles.py": "parts/files.py",
    "parts/afinding.py": "parts/finding.py",
    "parts/aoutput.py": "parts/output.py",
    "parts/aruns.py": "parts/runs.py",
    "parts/aschedules.py": "parts/schedules.py",
    "projects/acalls.py": "projects/calls.py",
    "projects/aworkspaces.py": "projects/workspaces.py",
    "registry/acalls.py": "registry/calls.py",
    "registry/amodels.py": "registry/models.py",
    "transport/afeeds.py": "transport/feeds.py",
    "transport/alines.py": "transport/lines.py",
}
"""By the written module the one that is made from it."""
MOST_COLUMNS = 120
REPLACEMENTS = (
    (r"^import asyncio\n", ""),
    (r"\bawait asyncio\.sleep\(", "time.sleep("),
    (r"\bawait asyncio\.to_thread\((\s*)([\w.]+),\s*", r"\2(\1"),
    (r", in_thread=True\)", ")"),
    # `(await call(...)).name` needs no parentheses without the await.
    (r"\(await ([\w.]+\((?:[^()]|\([^()]*\))*\))\)(?=[.\[])", r"\1"),
    (r"\bawait ", ""),
    (r"\basync (?=def|for|with)", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (
        r"\ba(alerts|batches|calls|client|collection|edits|files|finding|lines|logged|models|output|resources|runs|schedules|search|tasks|feeds|workspaces)\b",
        r"\1",
    ),
    (r"\ba(read|iter_bytes)\b", r"\1"),
    (r"\b([Aa])n asynchronous\b", r"\1 blocking"),
    (r"\basynchronous\b", "blocking"),
)
LEFT_OVER = r"\b(async|await|asyncio|\w*Async[A-Z]\w*)\b"


def sync_source(source: str, origin: str) -> str:
    """Return the blocking module for an asynchronous one.

    Args:
        source: Text of the asynchronous module.
        origin: Its file name, for the note at the head and for errors.

    Raises:
        ValueError: Something asynchronous is left that no replacement knows, or the module is no Python.
    """
    text = source
    for pattern, new in REPLACEMENTS:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    left = re.search(LEFT_OVER, text)
    if left is not None:
        line = text.count("\n", 0, left.start()) + 1
        raise ValueError(f"{origin}: no replacement for {left[0]!r} (about line {line}); add one to {__file__}")
    try:
        text = _without_unused_imports(text)
    except SyntaxError as error:
        raise ValueError(f"{origin}: no Python (about line {error.lineno}): {error.msg}") from error
    return f"{_head(source, origin)}\n{text}"


def stale() -> list[str]:
    """Return the sources whose modules are missing or say that they were made from others."""
    return [origin for origin, name in MODULES.items() if _first_line(CLIENT / name) != _head(_source(origin), origin)]


def make() -> list[Path]:
    """Write the modules that differ from what their sources say, each at once; return them.

    Raises:
        ValueError: A source has no blocking form; the modules before it are written.
    """
    written = []
    for path, text in _different():
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
        written.append(path)
    return written


def _different() -> Iterator[tuple[Path, str]]:
    for origin, name in MODULES.items():
        path, text = CLIENT / name, sync_source(_source(origin), origin)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


def _source(origin: str) -> str:
    return (CLIENT / origin).read_text(encoding="utf-8")


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline().rstrip("\n")
    except FileNotFoundError:
        return ""


def _head(source: str, origin: str) -> str:
    made_of = zlib.crc32(source.encode(), _rules())
    return f"# Made from {origin} ({made_of:08x}) by harness/make_sync.py: edit that one, not this."


@cache
def _rules() -> int:
    return zlib.crc32(Path(__file__).read_bytes())


def _without_unused_imports(text: str) -> str:
    """Remove names that are imported twice, or that only what was replaced used."""
    import ast

    tree, lines = ast.parse(text), text.split("\n")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {"annotations"}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: node.lineno, reverse=True):
        names = [ast.unparse(alias) for alias in node.names]
        bound = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        kept = sorted({name for name, known in zip(names, bound, strict=True) if known in used})
        if len(kept) < len(names):
            start = f"from {node.module} import" if isinstance(node, ast.ImportFrom) else "import"
            lines[node.lineno - 1 : node.end_lineno] = [_import(" " * node.col_offset, start, kept)] if kept else []
    return "\n".join(lines)


def _import(indent: str, start: str, names: Sequence[str]) -> str:
    line = f"{indent}{start} {', '.join(names)}"
    if len(line) <= MOST_COLUMNS:
        return line
    return f"{indent}{start} (\n" + "".join(f"{indent}    {name},\n" for name in names) + f"{indent})"


def watch(seconds: float = 0.2) -> None:
    """Make the modules anew whenever a source has changed; never returns."""
    refused = ""
    while True:
        try:
            made, refused = (make() if stale() else []), ""
        except (OSError, ValueError) as error:
            if str(error) != refused:  # a file that is being written: said once
                refused = str(error)
                print(refused, file=sys.stderr)
        else:
            for path in made:
                print(path, file=sys.stderr)
        time.sleep(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the modules, or check them; return the exit status."""
    import argparse  # not for `stale`, which each import of `detlab.client` in a checkout calls

    parser = argparse.ArgumentParser(description="Make the blocking client from the asynchronous one.")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--check", action="store_true", help="write nothing; fail if a module is not current")
    ways.add_argument("--watch", action="store_true", help="go on, and write them anew when their sources change")
    parser.add_argument("-q", "--quiet", action="store_true", help="name no modules that were written")
    options = parser.parse_args(arguments)
    try:
        if options.watch:
            watch()
        found = [path for path, _ in _different()] if options.check else make()
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in found:
        if options.check or not options.quiet:
            print(f"{path} is not current: python {__file__}" if options.check else path, file=sys.stderr)
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
