"""Code that imports Determined: said at submit, not when the first trial has failed. Nothing is parsed or executed."""

from __future__ import annotations

import re
from pathlib import Path

from detlab.errors import Problem
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, members, open_bundle

_IMPORT = re.compile(rb"^[ \t]*(?:import[ \t]+determined|from[ \t]+determined)\b", re.MULTILINE)
_RUN = re.compile(rb"-m[ \t]+determined\.\w")
_BY_ENDING = {".py": _IMPORT, ".sh": _RUN}
_OWN = re.compile(r"(?:.*/)?determined(?:\.py|/.*)")
MOST_BYTES = 8 << 20
"""Of all files together that are looked at; of each, its first `FILE_BYTES`."""
FILE_BYTES = 256 << 10
SHOWN = 5
HINT = "the same names are in detlab: `import detlab as det`, `from detlab import pytorch`, `-m detlab.launch.…`"


def imports_of_determined(bundle: Path | None) -> list[Problem]:
    """Return a warning that names the lines of the code which import or run modules of Determined.

    It is no error: a guarded import harms nothing, and an image may have that package. Code with a module `determined`
    of its own is not warned of.

    Args:
        bundle: The code that was sent; None: there is none. What cannot be read is not warned of.
    """
    if bundle is None:
        return []
    found, left = list[str](), MOST_BYTES
    try:
        with open_bundle(bundle) as archive:
            for member, path in members(archive, ArchiveLimits()):
                if _OWN.fullmatch(str(path)):
                    return []
                wanted = _BY_ENDING.get(path.suffix) if member.isfile() and left > 0 else None
                source = archive.extractfile(member) if wanted is not None else None
                if wanted is None or source is None:
                    continue
                text = source.read(min(FILE_BYTES, left))
                left -= len(text)
                if (line := wanted.search(text)) is not None:
                    number = 1 + text.count(b"\n", 0, line.start())
                    found.append(f"{path}, line {number}")
    except (UnsafeBundle, OSError):
        return []  # whoever unpacks it says so
    if not found:
        return []
    more = f" and {len(found) - SHOWN} more files" if len(found) > SHOWN else ""
    return [Problem("", f"the code imports Determined: {'; '.join(found[:SHOWN])}{more}", HINT, "warning")]
