"""Makes the modules of the blocking client from those of the asynchronous one, which alone are written by hand.

    python harness/make_sync.py           write them
    python harness/make_sync.py --check   exit 1 and name the modules that are not current

`tests/unit/client/test_client_sync.py` fails when one is not current. The two ways to send a request are not made from
one another: both are in `detlab/client/transport/session.py`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CLIENT = Path(__file__).parent / "detlab" / "client"
MODULES = {
    "aclient.py": "client.py",
    "aresources.py": "resources.py",
    "asearch.py": "search.py",
    "atasks.py": "tasks.py",
    "parts/acollection.py": "parts/collection.py",
    "parts/aedits.py": "parts/edits.py",
    "parts/afiles.py": "parts/files.py",
    "parts/aoutput.py": "parts/output.py",
    "projects/acalls.py": "projects/calls.py",
    "projects/aworkspaces.py": "projects/workspaces.py",
    "registry/acalls.py": "registry/calls.py",
    "registry/amodels.py": "registry/models.py",
    "transport/afeeds.py": "transport/feeds.py",
    "transport/alines.py": "transport/lines.py",
}
"""By the written module the one that is made from it."""
REPLACEMENTS = [
    (re.compile(pattern, re.MULTILINE), new)
    for pattern, new in (
        (r"^import asyncio\n", ""),
        (r"\bawait asyncio\.sleep\(", "time.sleep("),
        (r"\bawait asyncio\.to_thread\(\s*([\w.]+),\s*", r"\1("),
        (r", in_thread=True\)", ")"),
        # `(await call(...)).name` needs no parentheses without the await.
        (r"\(await ([\w.]+\((?:[^()]|\([^()]*\))*\))\)(?=[.\[])", r"\1"),
        (r"\bawait ", ""),
        (r"\basync (?=def|for|with)", ""),
        (r"\bAwaitable\[(\w+)\]", r"\1"),
        (r"\bAsync(?=[A-Z])", ""),
        (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
        (
            r"\ba(calls|client|collection|edits|files|lines|models|output|resources|search|tasks|feeds|workspaces)\b",
            r"\1",
        ),
        (r"\ba(read|iter_bytes)\b", r"\1"),
        (r"\b([Aa])n asynchronous\b", r"\1 blocking"),
        (r"\basynchronous\b", "blocking"),
    )
]
LEFT_OVER = re.compile(r"\b(async|await|asyncio|\w*Async[A-Z]\w*)\b")


def sync_source(source: str, origin: str) -> str:
    """Return the blocking module for an asynchronous one.

    Args:
        source: Text of the asynchronous module.
        origin: Its file name, for the note at the head and for errors.

    Raises:
        ValueError: Something asynchronous is left that no replacement knows.
    """
    text = source
    for pattern, new in REPLACEMENTS:
        text = pattern.sub(new, text)
    left = LEFT_OVER.search(text)
    if left is not None:
        line = text.count("\n", 0, left.start()) + 1
        raise ValueError(f"{origin}: no replacement for {left[0]!r} (about line {line}); add one to {__file__}")
    return _tidied(f"# Made from {origin} by harness/make_sync.py: edit that one, not this.\n{text}")


def _tidied(text: str) -> str:
    """Remove imports that are no longer used, sort the others, write loops that only yield shorter, format."""
    for command in (
        ["check", "--quiet", "--fix", "--unsafe-fixes", "--select=C416,F401,I,UP028"],
        ["format", "--quiet"],
    ):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(CLIENT / "made.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the modules, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the blocking client from the asynchronous one.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a module is not current")
    options = parser.parse_args(arguments)
    stale = 0
    for origin, name in MODULES.items():
        path, text = CLIENT / name, sync_source((CLIENT / origin).read_text(encoding="utf-8"), origin)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if options.check:
            print(f"{path} is not current: python harness/make_sync.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(path, file=sys.stderr)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
