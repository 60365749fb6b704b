"""Make a forked interpreter look like a new one, and run the program in it.

The state of a new `python3 train.py` is set up here: its environment, directory, `sys.argv`, `sys.path`, `__main__`,
signals, descriptors, random numbers and threads. What cannot be made (options, variables that libraries read when
they are loaded, files that shadow what is imported already) is refused by `check`, and the program is started cold.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import site
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import all_suffixes
from pathlib import Path

from detlab.launch.entrypoint import EntrypointCommand
from detlab.launch.python_program import Program, StartCold, check_environment
from detlab.warm import fresh
from detlab.warm.running import ReadyProgram
from detlab.warm.title import Title, set_environment


@dataclass(frozen=True)
class Interpreter:
    """What the zygote was when it was started.

    Attributes:
        env: Its environment, without what its agent told it.
        path: Its `sys.path`, without the place of the program.
        executable: Which interpreter it is.
        mask: Signals that it blocks: none, unless its agent does.
        oom_score: How gladly the kernel would have ended it for want of memory.
        names: Top-level names of what it has imported.
        read: Variables of the environment that were looked up meanwhile.
    """

    env: Mapping[str, str]
    path: tuple[str, ...]
    executable: str
    mask: frozenset[int]
    oom_score: str
    names: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    @classmethod
    def remember(cls) -> Interpreter:
        """Look at this process."""
        mask = frozenset(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return cls(dict(os.environ), tuple(sys.path), sys.executable, mask, fresh.oom_score())

    def knowing(self, names: frozenset[str], read: frozenset[str]) -> Interpreter:
        """Return the same, with these names imported, for which these variables were looked up."""
        return replace(self, names=names, read=read)

    # --- may it be? ---------------------------------------------------------------------------------------

    def check(self, program: Program, entry: EntrypointCommand) -> None:
        """Check that a fork of this process can stand in for a new interpreter.

        Raises:
            StartCold: It cannot; the message says why.
        """
        check_environment(entry.env, self.env, self.read)
        executable = self._find(program, entry)
        if not self._is_ours(executable):
            raise StartCold(f"{executable or program.words[0]} is not the warm interpreter {self.executable}")
        if user_site := _user_site(entry.env):
            raise StartCold(f"packages of the user's own in {user_site}")
        folder = entry.cwd
        if program.kind == "script":
            script = entry.cwd / program.target
            if not script.is_file() or not os.access(script, os.R_OK):
                raise StartCold(f"no file {script}")
            folder = script.resolve().parent
        if shadowed := _names_in(folder) & self.names:
            raise StartCold(f"{folder} has its own {', '.join(sorted(shadowed)[:3])}")

    @staticmethod
    def _find(program: Program, entry: EntrypointCommand) -> str | None:
        word = program.words[0]
        if "/" in word:
            return str(entry.cwd / word)
        return shutil.which(word, path=entry.env.get("PATH", ""))

    def _is_ours(self, executable: str | None) -> bool:
        """Whether it is this interpreter, in this environment (which Python finds by where it was called)."""
        try:
            return (
                executable is not None
                and Path(executable).parent.resolve() == Path(self.executable).parent.resolve()
                and Path(executable).samefile(self.executable)
            )
        except OSError:
            return False

    # --- be it --------------------------------------------------------------------------------------------

    def become(self, program: Program, entry: EntrypointCommand, title: Title) -> ReadyProgram:
        """Make this process, just forked and with all signals blocked, a new interpreter with this program."""
        os.chdir(entry.cwd)
        env = dict(entry.env)
        if program.shell:
            env["PWD"] = str(entry.cwd)
        set_environment(env)
        title.write(program.words, env)
        fresh.reset_signals()
        gc.collect()  # what is left of the launcher closes its files now, not when their numbers are somebody else's
        fresh.keep_only((0, 1, 2))
        sys.executable = self._find(program, entry) or self.executable
        ready = ReadyProgram(program, str(entry.cwd), self.path)
        ready.set_up()
        fresh.forget_start(str(entry.cwd))
        fresh.draw_seeds()
        fresh.set_threads(env.get("OMP_NUM_THREADS"))
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        return ready


def _user_site(env: Mapping[str, str]) -> str | None:
    """Return the folder of packages that a new interpreter would find in the user's home."""
    if site.ENABLE_USER_SITE is False:
        return None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(env.get("HOME", "/")) / ".local" / "lib" / version / "site-packages"
    return str(path) if path.is_dir() else None


def _names_in(folder: Path) -> set[str]:
    """Return what can be imported from a folder: no `logging.yaml`, and no folder `json` of data."""
    try:
        return {name for path in folder.iterdir() for name in _importable(path)}
    except OSError:
        return set()


def _importable(path: Path) -> Iterator[str]:
    if path.is_dir():
        # One that is no package gives way to a module that is found later, but adds to packages that have no file.
        module = sys.modules.get(path.name)
        spread = module is not None and getattr(module, "__file__", None) is None and hasattr(module, "__path__")
        if spread or any((path / f"__init__{suffix}").exists() for suffix in all_suffixes()):
            yield path.name
        return
    yield from (path.name.removesuffix(suffix) for suffix in all_suffixes() if path.name.endswith(suffix))
