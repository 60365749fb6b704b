"""Look up each pinned package's known faults, and say so where that cannot be done. Usage: audit.py PIP_AUDIT PINS

pip-audit itself ends with success when its source knows none of the packages, as a mirror without this data does:
here, what was not looked up is no success.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

FOUND, UNKNOWN = 1, 3


def judged(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Return what is to be said of a report's packages, and the exit status."""
    missed = [one["name"] for one in packages if "skip_reason" in one]
    faulty = [(one, fault) for one in packages for fault in one.get("vulns", [])]
    lines = [
        f"{one['name']} {one['version']}: {' '.join([fault['id'], *fault['aliases']])}, "
        f"mended in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for one, fault in faulty
    ]
    lines.append(f"{len(packages) - len(missed)} of {len(packages)} packages looked up, {len(faulty)} known faults")
    if missed or not packages:
        names = ", ".join(missed[:5]) + (", …" if len(missed) > 5 else "")
        lines.append(f"Not looked up, so nothing is known of them: {names or 'all'}.")
        lines.append("  → the package index has no data on faults: run it again where pypi.org can be reached")
    return lines, FOUND if faulty else UNKNOWN if missed or not packages else 0


def main(pip_audit: str, pins: str) -> int:
    """Run pip-audit over the pins, and judge its report."""
    words = [pip_audit, "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "-r", pins]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        told = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"No package was looked up: pip-audit ended with {done.returncode}: {told}", file=sys.stderr)
        print("  → run it again where pypi.org can be reached", file=sys.stderr)
        return UNKNOWN
    lines, status = judged(packages)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
