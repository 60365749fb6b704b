"""Where in a cell or file a configuration's mistake is: from `searcher.metric` to its line."""

from __future__ import annotations

import dataclasses
import re

import yaml

from detlab.errors import ConfigError, Problem

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Places:
    """The lines of a YAML text.

    Args:
        text: The text, numbered from line 1.
        where: What it is called in errors: `cell 3` or a file's name.
    """

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            self._root = None

    def line(self, path: str) -> int | None:
        """Return the line of the key at `path`, or of the nearest one above it that the text has."""
        node, line = self._root, None
        for index, key in _STEP.findall(path):
            if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line + 1
                continue
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((k, v) for k, v in pairs if k.value == key), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line

    def explain(self, error: ConfigError) -> ConfigError:
        """Return the error with the place of each mistake."""
        in_order = sorted(error.problems, key=lambda problem: self.line(problem.path) or 0)
        problems = [self._placed(problem) for problem in in_order]
        return ConfigError(problems, f"{self._where}: {error.headline}", hint=error.hint, code=error.code)

    def _placed(self, problem: Problem) -> Problem:
        line = self.line(problem.path)
        return problem if line is None else dataclasses.replace(problem, path=f"line {line}, {problem.path}")
