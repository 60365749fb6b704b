"""What code a run is of: the commit, what differs from it, the script, the installed packages.

Names of files that say that they hold secrets are left out, and so are passwords in addresses and arguments.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from detlab.schemas.bundles import holds_secrets
from detlab.schemas.expconf.raw.secret_keys import MASK, is_secret_option

UNFINISHED = ".new."
"""What the names of files begin with that are being written."""
DIFF_BYTES, SCRIPT_BYTES, NAMED = 10 * 1024 * 1024, 2 * 1024 * 1024, 2000
GIT_SECONDS = 30.0
# No program that a repository names is run, and nothing of it is changed.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-optional-locks")
_OPTION = re.compile(r"--?([\w.-]+)(?:=(.*))?", re.DOTALL)


def gather(folder: Path, script: str, files: Path, argv: Sequence[str] = ()) -> dict[str, str]:
    """Write files of the code that runs, and return tags of it.

    Args:
        folder: Where the script was started.
        script: Its path; empty: it is none, as in a notebook.
        files: Where to write.
        argv: Its command line.
    """
    tags = {
        "mlflow.source.type": "LOCAL" if script else "NOTEBOOK",
        "mlflow.source.name": script,
        "detlab.host": socket.gethostname(),
        "detlab.python": platform.python_version(),
        "detlab.platform": platform.platform(),
        "detlab.command": " ".join(masked(argv)),
        "detlab.folder": str(folder),
    }
    files.mkdir(parents=True, exist_ok=True)
    _write(files / "requirements.txt", "".join(f"{line}\n" for line in packages()))
    if script and not holds_secrets(script) and Path(script).is_file() and Path(script).stat().st_size <= SCRIPT_BYTES:
        target = _made(files / "code" / Path(script).name)
        new = target.with_name(f"{UNFINISHED}{target.name}")
        shutil.copyfile(script, new)
        new.replace(target)
    return {key: value for key, value in {**tags, **_of_git(folder, files)}.items() if value}


def packages() -> list[str]:
    """Return the installed packages, as a file of requirements has them."""
    found = {(one.metadata["Name"] or "", one.version) for one in importlib.metadata.distributions()}
    return sorted((f"{name}=={version}" for name, version in found if name), key=str.casefold)


def masked(argv: Sequence[str]) -> list[str]:
    """Return a command line without the values of options whose names are those of secrets."""
    found: list[str] = []
    hides_next = False
    for word in argv:
        option = _OPTION.fullmatch(word)
        if hides_next and option is None:
            found.append(MASK)
            hides_next = False
            continue
        secret = option is not None and is_secret_option(option[1])
        if option is not None and secret and option[2] is not None:
            found.append(f"{word.partition('=')[0]}={MASK}")
        else:
            found.append(word)
        hides_next = secret and option is not None and option[2] is None
    return found


def without_password(url: str) -> str:
    """Return the address of a repository without user and password."""
    parts = urlsplit(url)
    if not parts.scheme or not parts.netloc:
        return url.rpartition("@")[2] if "://" not in url and "@" in url and ":" in url.partition("@")[0] else url
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _of_git(folder: Path, files: Path) -> dict[str, str]:
    commit = _git(folder, "rev-parse", "HEAD").strip()
    if not commit:
        return {}
    top = Path(_git(folder, "rev-parse", "--show-toplevel").strip() or folder)
    changed = [name for name in _git(top, "diff", "--name-only", "-z", "HEAD").split("\0") if name]
    kept = [name for name in changed if not holds_secrets(name)]
    if kept:
        options = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--")
        diff = _git(top, *options, *(f":(literal){name}" for name in kept[:NAMED]))
        cut = diff.encode(errors="replace")[:DIFF_BYTES]
        _write(files / "code" / "diff.patch", cut.decode(errors="ignore"))
    untracked = [name for name in _git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0") if name]
    if untracked:
        _write(files / "code" / "untracked.txt", "".join(f"{name}\n" for name in untracked[:NAMED]))
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD").strip()
    return {
        "mlflow.source.git.commit": commit,
        "mlflow.source.git.branch": "" if branch == "HEAD" else branch,
        "mlflow.source.git.repoURL": without_password(_git(folder, "remote", "get-url", "origin").strip()),
        "detlab.git.changed": str(len(changed)) if changed else "",
    }


def _git(folder: Path, *words: str) -> str:
    """Return what git prints; nothing where there is no git, no repository, or it takes too long."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [*_GIT, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write(path: Path, text: str) -> None:
    """Write a file that is there as a whole, or not at all: another process may be sending it."""
    new = _made(path).with_name(f"{UNFINISHED}{path.name}")
    new.write_text(text, encoding="utf-8", errors="replace")
    new.replace(path)


def command_line_of(pid: int) -> list[str]:
    """Return the command line of a process of this machine; nothing where that is not known."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")
