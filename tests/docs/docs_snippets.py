"""What the tests of the documentation share: the pages, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Attributes:
        page: The file, relative to the project.
        line: Of its opening fence, from 1.
        language: `sh`, `python`, `yaml`, … or nothing.
        text: What is in it, less the fence's indentation.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """All markdown files of the project that people read."""
    found = [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "bench").rglob("*.md"),
    ]
    return sorted(found)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The code blocks of a page in these languages, in order; without languages all of them."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        where = text.count("\n", 0, match.start()) + 1
        found.append(Block(str(page.relative_to(ROOT)), where, match["language"], body))
    return [block for block in found if not languages or block.language in languages]
