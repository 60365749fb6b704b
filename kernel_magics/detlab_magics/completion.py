"""Tab completion of the magics: options, experiment ids, files, configuration keys, metric names."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from detlab.errors import DetlabError

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession

_MAGIC = re.compile(r"\s*%{1,2}(det\w*)\s(?:.*\s)?(\S*)$")
_METRIC = re.compile(r"\s*metric:\s*(\S*)$")
_KEY = re.compile(r"(\w*)$")
_REMEMBER_SECONDS = 10.0
_ACTS = frozenset({"det_pause", "det_activate", "det_kill"})
_EVEN_ENDED = frozenset({"det_compare", "det_fork", "det_plot", "det_watch", "det_tensorboard"})
_BY_ID = _ACTS | _EVEN_ENDED
_OF_VARIABLES = ("--in", "-i", "--out", "-o")


class Completion:
    """What Tab offers in lines of detlab's magics. Asks the cluster only once a magic has connected to it.

    Args:
        session: Knows the connection.
        options: Magic name -> its options.
        variables: Returns the names of the notebook's variables.
    """

    def __init__(
        self,
        session: KernelSession,
        options: dict[str, list[str]],
        variables: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self._session = session
        self._options = options
        self._variables = variables
        self._known: tuple[float, list[Any]] = (-1e9, [])

    def matcher(self) -> Callable[[CompletionContext], SimpleMatcherResult]:
        """Return the matcher to give to IPython."""

        @context_matcher()
        def detlab_matcher(context: CompletionContext) -> SimpleMatcherResult:
            lines = context.full_text.split("\n")[: context.cursor_line]
            word, offers = self.offers(lines, context.line_with_cursor[: context.cursor_position])
            # IPython replaces its own last token, which may begin in the middle of our word.
            skip = len(word) - len(context.token) if word.endswith(context.token) else 0
            found = sorted({o for o in offers if o.startswith(word) and o != word})
            completions = [SimpleCompletion(text=o[skip:], type="detlab") for o in found]
            return SimpleMatcherResult(completions=completions, suppress=bool(completions))

        return detlab_matcher

    def offers(self, above: list[str], line: str) -> tuple[str, list[str]]:
        """Return (the word being typed, what it could become).

        Args:
            above: The lines of the cell above.
            line: The line up to the cursor.
        """
        magic = _MAGIC.match(line)
        if magic:
            return magic.group(2), list(self._for_magic(magic.group(1), magic.group(2), line))
        if above and above[0].startswith("%%det_experiment"):
            metric, key = _METRIC.match(line), _KEY.match(line)
            if metric:
                return metric.group(1), [e.view.metric for e in self._experiments() if e.view.metric]
            if key:
                return key.group(1), _config_keys()
        return "", []

    def _for_magic(self, magic: str, word: str, line: str) -> Iterable[str]:
        if magic == "det_search":
            return self._for_search(line.removesuffix(word).split()[1:], word)
        if magic == "det_model":
            from detlab_magics import modelacts

            return modelacts.offers(line.removesuffix(word).split()[1:], word)
        if magic == "det_report":
            return self._for_report(line.removesuffix(word).split()[-1], word)
        if magic == "det_governance" and line.removesuffix(word).split()[1:2] != ["plan"]:
            from detlab_magics import governancemagics

            return governancemagics.offers(line.removesuffix(word).split()[1:], word)
        if word.startswith("-"):
            return self._options.get(magic, [])
        if magic == "det_plot" and line.removesuffix(word).split()[1:] == []:
            return _figures()
        if magic in _BY_ID:
            return [str(e.id) for e in self._experiments() if magic in _EVEN_ENDED or not e.state.terminal]
        if magic == "det_logs":
            return self._trials()
        if magic == "det_run":
            return self._for_run(word, line.removesuffix(word).split()[-1:])
        if magic == "det_experiment":
            folders = line.rstrip(word).rstrip().endswith(("--context", "-c"))
            return _paths(word, lambda p: p.is_dir() or (not folders and p.suffix in {".yaml", ".yml"}))
        return []

    def _for_run(self, word: str, before: list[str]) -> Iterable[str]:
        """Variables after --in and --out, folders after --context, else the caller's borrowed cells."""
        if before and before[0] in _OF_VARIABLES:
            others = word[: word.rfind(",") + 1]
            return [others + name for name in self._variables() if not name.startswith("_")]
        if before and before[0] in {"--context", "-c"}:
            return _paths(word, lambda path: path.is_dir())
        if before and before[0] == "--runtime":
            return ["process", "docker"]
        if before and before[0] == "--pool":
            return self._pools()
        return self._cells() if before and before[0].lstrip().startswith("%") else []

    def _for_report(self, before: str, word: str) -> Iterable[str]:
        from click.shell_completion import ShellComplete

        from detlab.cli.commands.finding.report import report

        if word.startswith("-"):
            return [item.value for item in ShellComplete(report, {}, "det_report", "").get_completions([], word)]
        if before == "--experiment":
            return [str(e.id) for e in self._experiments()]
        return _paths(word, lambda path: True) if before in {"--notes", "-o", "--output"} else []

    def _for_search(self, before: list[str], word: str) -> Iterable[str]:
        from detlab_magics import searchacts

        return searchacts.offers(before, word, [str(e.id) for e in self._experiments()], self._trials())

    def _cells(self) -> list[str]:
        """List the caller's borrowed cells, which %det_run can follow again."""
        if self._session.connected is None:
            return []
        try:
            return [task.id for task in self._session.connected.list_tasks(kind="cell", limit=20)]
        except DetlabError:
            return []

    def _pools(self) -> list[str]:
        """List the resource pools, except those whose names contain spaces."""
        if self._session.connected is None:
            return []
        try:
            return [pool.name for pool in self._session.connected.list_pools() if len(pool.name.split()) == 1]
        except DetlabError:
            return []

    def _experiments(self) -> list[Any]:
        at, known = self._known
        if self._session.connected is not None and time.monotonic() - at > _REMEMBER_SECONDS:
            try:
                known = self._session.connected.list_experiments(limit=30)
            except DetlabError:
                known = []
            self._known = (time.monotonic(), known)
        return known

    def _trials(self) -> list[str]:
        latest = next((e for e in self._experiments() if e.id == self._session.latest), None)
        try:
            return [str(trial.id) for trial in latest.list_trials(limit=200)] if latest is not None else []
        except DetlabError:
            return []


def _figures() -> list[str]:
    from detlab.viz.kinds import KINDS

    return list(KINDS)


def _config_keys() -> list[str]:
    from detlab.schemas.expconf import ExperimentConfig

    return [f"{name}:" for name in ExperimentConfig.model_fields]


def _paths(word: str, wanted: Callable[[pathlib.Path], bool]) -> list[str]:
    folder, _, _ = word.rpartition("/")
    here = pathlib.Path(folder or ("/" if word.startswith("/") else "."))
    try:
        found = [p for p in here.iterdir() if not p.name.startswith(".") and wanted(p)]
    except OSError:
        return []
    prefix = word[: word.rfind("/") + 1]
    return [f"{prefix}{p.name}{'/' if p.is_dir() else ''}" for p in found]
