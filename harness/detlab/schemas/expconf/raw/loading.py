"""YAML text to a raw config, read as Determined reads it, with every mistake placed by line and column.

Determined's command line reads YAML 1.2: `1e-4` is a number (PyYAML, which speaks 1.1, takes it for a text),
`on`, `off`, `yes` and `no` are texts, `010` is ten, and `12:30` is a text. Dates stay texts, because JSON has no
dates. A key given twice is a mistake, never a silent choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

import yaml

from detlab.errors import Problem
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.expconf.raw.syntax import syntax_problem

MAX_TEXT = 400_000
"""Longest config text that is read, in characters: reading takes a second for some 400,000."""

MAX_NODES = 20_000
"""Most values and keys of a text, aliases counted once: composing one takes a tenth of a millisecond."""

MAX_DEPTH = 100
"""Most levels of a text; what a config may have (`structure.MAX_DEPTH`) and some, so that it says it better."""

MAX_MERGES = 200
"""Most mappings that `<<` may pull in."""

_YAML = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0[0-9_]+)|0o[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN)"
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2, texts as keys, and duplicate keys remembered."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.problems: list[Problem] = []
        self.merges = 0
        self.nodes = 0
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, and count it: composing takes most of the time and memory of a hostile text."""
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            what = "nested too deeply" if self.depth > MAX_DEPTH else f"more than {MAX_NODES:,} values and keys"
            raise yaml.composer.ComposerError(None, None, what, self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def find_duplicates(self, node: yaml.Node | None, path: Path = ()) -> None:
        """Remember every key that a mapping gives twice; mappings reached by an alias are judged once."""
        seen_nodes: set[int] = set()
        stack: list[tuple[yaml.Node, Path]] = [(node, path)] if node is not None else []
        while stack:
            current, place = stack.pop()
            if id(current) in seen_nodes:
                continue
            seen_nodes.add(id(current))
            if isinstance(current, yaml.MappingNode):
                self._judge_keys(current, place)
                children = [
                    (value, (*place, key.value)) for key, value in current.value if isinstance(key, yaml.ScalarNode)
                ]
                stack.extend(reversed(children))
            elif isinstance(current, yaml.SequenceNode):
                stack.extend(reversed([(item, (*place, index)) for index, item in enumerate(current.value)]))

    def _judge_keys(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_YAML}merge":
                continue
            line = key.start_mark.line + 1
            if key.value in first:
                message = f"is given twice, in line {first[key.value]} and in line {line}"
                self.problems.append(Problem(render((*path, key.value)), message, "remove one of them"))
            first.setdefault(key.value, line)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """Return a scalar's text; JSON's pairs of escaped halves become the character they stand for."""
        text = str(super().construct_scalar(node))
        if not any("\ud800" <= letter <= "\udfff" for letter in text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise yaml.constructor.ConstructorError(
                None, None, "half of a character (a lone surrogate)", node.start_mark
            ) from None

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Spell out `<<` keys; each key is kept once, so that merges of merges cannot grow without bound."""
        sources = [value for key, value in node.value if key.tag == f"{_YAML}merge"]
        self.merges += sum(len(value.value) if isinstance(value, yaml.SequenceNode) else 1 for value in sources)
        if self.merges > MAX_MERGES:
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {MAX_MERGES} merges (`<<`)", node.start_mark
            )
        super().flatten_mapping(node)
        if sources:
            last = {
                key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value) for key, value in node.value
            }
            node.value = list(last.values())

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping with texts as keys, as JSON has them."""
        self.flatten_mapping(node)
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key that is not a text", key_node.start_mark)
            # pairs of keys such as 1 and true are equal in Python: name them before they meet
            mapping[_key(self.construct_object(key_node))] = self.construct_object(value_node, deep=deep)
        return mapping


def _key(key: Hashable) -> Hashable:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    return "null" if key is None else key


MOST_DIGITS = 1000
"""Characters of a number. Reading a longer one takes time with the square of them (`1:1:1:…` in YAML 1.1), and Python
does not write one of more than 4,300 digits."""


def _digits(loader: _Loader, node: yaml.ScalarNode) -> str:
    """Return the text of a number.

    Raises:
        ConstructorError: It is too long for one.
    """
    if len(node.value) > MOST_DIGITS:
        raise yaml.constructor.ConstructorError(
            None, None, f"a number of {len(node.value):,} characters; at most {MOST_DIGITS:,}", node.start_mark
        )
    return loader.construct_scalar(node)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = _digits(loader, node).replace("_", "").lower()
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    for prefix, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    return sign * int(digits)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = _digits(loader, node).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _register() -> None:
    _Loader.yaml_implicit_resolvers = {}  # the inherited ones are YAML 1.1's
    plain: list[tuple[str, str, str]] = [
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", _INT.pattern, "-+0123456789"),
        ("float", _FLOAT.pattern, "-+0123456789."),
        ("null", r"~|null|Null|NULL|", "~nN\0"),
        ("merge", r"<<", "<"),
    ]
    for name, pattern, first in plain:
        letters = [letter if letter != "\0" else "" for letter in first]
        _Loader.add_implicit_resolver(f"{_YAML}{name}", re.compile(rf"^(?:{pattern})$"), letters)
    _Loader.add_constructor(f"{_YAML}int", _construct_int)
    _Loader.add_constructor(f"{_YAML}float", _construct_float)


class _OlderLoader(_Loader):
    """The same with the scalars of YAML 1.1, as PyYAML reads them; dates stay texts."""


def _register_older() -> None:
    # `=` and dates are left out: the one is a mistake to PyYAML, the other has no counterpart in JSON
    without = (f"{_YAML}timestamp", f"{_YAML}value")
    _OlderLoader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in without]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for name in ("int", "float"):
        _OlderLoader.add_constructor(f"{_YAML}{name}", _bounded(yaml.SafeLoader.yaml_constructors[f"{_YAML}{name}"]))


def _bounded(construct: Callable[[Any, yaml.ScalarNode], Any]) -> Callable[[_Loader, yaml.ScalarNode], Any]:
    """Return one of PyYAML's constructors of numbers that reads none of any length."""

    def made(loader: _Loader, node: yaml.ScalarNode) -> Any:
        text = _digits(loader, node)
        try:
            return construct(loader, node)
        except OverflowError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"{text[:40]!r} is a number that is too large", node.start_mark
            ) from error

    return made


_register()
_register_older()


def load_yaml(text: str, source_name: str = "config", *, older: bool = False) -> tuple[Any, list[Problem]]:
    """Read YAML (or JSON) text.

    Args:
        text: The text.
        source_name: How messages about the whole text call it, such as a file name.
        older: Whether it is YAML 1.1, as PyYAML reads it: `on` is true, `017` is 15, `12:30:45` is 45045, and `1e-5`
            is a text.

    Returns:
        The raw value and the mistakes of the text itself: syntax by line and column, keys given twice. The
        value is None if the text could not be read.
    """
    if len(text) > MAX_TEXT:
        return None, [Problem("", f"{source_name} is longer than {MAX_TEXT:,} characters")]
    try:
        loader = _OlderLoader(text) if older else _Loader(text)
    except yaml.YAMLError as error:
        return None, [syntax_problem(error, text)]
    try:
        node = loader.get_single_node()
        loader.find_duplicates(node)
        raw = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        return None, [*loader.problems, syntax_problem(error, text)]
    except RecursionError:
        return None, [Problem("", "is nested too deeply")]
    except ValueError as error:
        return None, [*loader.problems, Problem("", f"holds a value that cannot be read: {error}")]
    except (AttributeError, LookupError, TypeError):  # PyYAML's, of a value that is not what its tag says
        wrong = Problem("", "holds a value that is not of the type that its `!!tag` says", "remove the `!!tag`")
        return None, [*loader.problems, wrong]
    finally:
        loader.dispose()
    return raw, loader.problems
