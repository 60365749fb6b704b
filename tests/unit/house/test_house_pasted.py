"""What a hint tells to paste into a shell is quoted: a folder with a blank or a `;` in its name is one word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from detlab.client.transport.discovery import ClusterAddress

ROOT = Path(__file__).parents[3]
PASTED = re.compile(
    r"(?:\b(?:df -h|ls -\w+|tail|rm|mv|mkdir -p|chmod [\w+]+)|--dir(?: FOLDER)?|--config|--pool|--master"
    r"|det config check|det -m|det login|det agent disable|DET_URL=) ?\{(?!word\(|' '\.join\(map\(word)[^}]+\}"
)


def test_paths_in_commands_are_quoted() -> None:
    unquoted, files = [], 0
    for file in (
        path for room in ("harness", "hub_ext", "server_ext", "kernel_magics") for path in (ROOT / room).rglob("*.py")
    ):
        files += 1
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if PASTED.search(line):
                unquoted.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert files > 300
    assert unquoted == []


def test_the_command_that_starts_a_cluster_again_has_its_folder_as_one_word() -> None:
    folder = Path("/home/ada/my runs; rm -rf x/.detlab")
    hint = ClusterAddress("http://127.0.0.1:1/", None, "a test", folder).unreachable("refused").hint or ""
    assert shlex.split(hint.partition(": ")[2]) == ["det", "up", "--dir", str(folder)]
