"""Check that a tag, the package, the chart and the changelog say the same version, and print the release's notes.

python deploy/release.py v0.2.0 > notes.md
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def release(tag: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """Return the notes of the release of this tag, and what is wrong with it."""
    version = tag.removeprefix("v")
    said = {"the tag": version, **versions(root)}
    wrong = [f"{where} says {text}, not {version}" for where, text in said.items() if text != version]
    if tag == version:
        wrong.append(f"the tag is {tag}; write v{tag}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|\Z)", changelog, re.M | re.S)
    if found is None:
        wrong.append(f"CHANGELOG.md has no heading `## [{version}] - YEAR-MONTH-DAY`")
    return found[1].strip() if found else "", wrong


def versions(root: Path = ROOT) -> dict[str, str]:
    """Where the version is written down, and what it says there."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = (root / "deploy/helm/detlab/Chart.yaml").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(version|appVersion): *\"?([^\"\n]+)", chart, re.M))
    return {"pyproject.toml": project["version"], **{f"Chart.yaml ({key})": found[key] for key in sorted(found)}}


def main(tag: str) -> int:
    """Print the notes, or what is wrong to standard error; return the exit status."""
    notes, wrong = release(tag)
    print("\n".join(wrong), file=sys.stderr) if wrong else print(notes)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
