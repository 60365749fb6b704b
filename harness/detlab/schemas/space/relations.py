"""Relations between hyperparameters: a small expression language, of which nothing is ever executed as Python.

    width % heads == 0
    optimizer.name != "sgd" or 0 < lr <= 0.1
    log(depth, 2) + len(blocks) < 8

The text is parsed by `ast`, and each node must be one of those listed here: numbers, texts, lists of both, names and
dotted names of hyperparameters, arithmetic, comparisons, `and`, `or`, `not`, `in`, and five functions. Length, depth
and the size of numbers are bounded, so that judging a point costs microseconds whatever was written.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 500
"""Of a relation."""
MAX_DEPTH = 30
_MAX_EXPONENT = 64
_MAX_BITS = 512
"""Of an integer that comes up while a relation is judged."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "len": len, "log": math.log}
FUNCTIONS = tuple(_FUNCTIONS)
_FAULTS = (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError)


_ASSIGNED = re.compile(r"(?<![=<>!:])=(?!=)")


class RelationError(ValueError):
    """A text that is no relation."""


@dataclass(frozen=True)
class Relation:
    """A condition that each point of a space must meet.

    Attributes:
        text: As it was written.
        names: The hyperparameters that it names, dotted, in the order of their first use.
    """

    text: str
    names: tuple[str, ...]
    _tree: ast.expr

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether a point meets it.

        A relation that names a hyperparameter which the point does not have does not apply, so it holds. One that
        cannot be computed (division by zero, a text compared with a number) does not hold.

        Args:
            values: The point, flat: dotted names to values.
        """
        return self.fault(values) is None

    def fault(self, values: Mapping[str, Any]) -> str | None:
        """Return why a point does not meet it, in a few words; None if it does."""
        if any(name not in values for name in self.names):
            return None
        try:
            return None if _value(self._tree, values) else "is false"
        except _FAULTS as error:
            return f"cannot be computed: {error}"


def parse_relation(text: str) -> Relation:
    """Parse a relation.

    Raises:
        RelationError: It is not an expression of the language; the message says what is not.
    """
    if len(text) > MAX_CHARS:
        raise RelationError(f"has {len(text):,} characters; a relation may have {MAX_CHARS}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RelationError(f"is not an expression: {_reason(text, error)}") from error
    names: dict[str, None] = {}
    _inspect(tree, names, MAX_DEPTH)
    if not names:
        raise RelationError("names no hyperparameter, so it holds for every point or for none")
    return Relation(text, tuple(names), tree)


def _reason(text: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        if _ASSIGNED.search(text):
            return "write `==` to compare"
        return str(error.msg)
    return "it cannot be parsed" if isinstance(error, ValueError) else "it is nested too deeply"


def _inspect(node: ast.expr, names: dict[str, None], depth: int) -> None:
    """Refuse every node that is not of the language, and collect the names."""
    if depth == 0:
        raise RelationError("is nested too deeply")
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            pass
        case ast.Name() | ast.Attribute():
            names.setdefault(_name(node))
        case ast.BinOp(op=op) if type(op) not in _BINARY:
            raise RelationError(f"uses an operator that is not available: {_shown(node)}")
        case ast.UnaryOp(op=op) if not isinstance(op, ast.USub | ast.UAdd | ast.Not):
            raise RelationError(f"uses an operator that is not available: {_shown(node)}")
        case ast.Compare(ops=ops) if any(type(op) not in _COMPARE for op in ops):
            raise RelationError("compares with `is`: write `==`")
        case ast.Call(func=ast.Name(id=called), keywords=[]) if called in _FUNCTIONS:
            for argument in node.args:
                _inspect(argument, names, depth - 1)
        case ast.Call():
            raise RelationError(f"calls {_shown(node.func)}: the functions are {', '.join(FUNCTIONS)}")
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.List() | ast.Tuple():
            for inner in _operands(node):
                _inspect(inner, names, depth - 1)
        case _:
            raise RelationError(f"uses what relations do not have: {_shown(node)}")


def _shown(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:60]
    except RecursionError:  # of Python's own writer: it is judged before the depth is
        return "something nested deeply"


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    return (inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.expr))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{_name(inner)}.{name}"
        case _:
            raise RelationError(f"is no name of a hyperparameter: {_shown(node)}")


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name() | ast.Attribute():
            return values[_name(node)]
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(op=op, operand=operand):
            found = _number(_value(operand, values))
            return -found if isinstance(op, ast.USub) else found
        case ast.BoolOp(op=op, values=parts):
            return _either(parts, values, until=isinstance(op, ast.Or))
        case ast.Compare():
            return _compared(node, values)
        case ast.Call(func=ast.Name(id=called), args=arguments):
            return _FUNCTIONS[called](*(_value(argument, values) for argument in arguments))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, values) for part in parts]
        case _:
            raise TypeError(f"what is {_shown(node)}")


def _either(parts: list[ast.expr], values: Mapping[str, Any], *, until: bool) -> bool:
    return any(_value(part, values) for part in parts) if until else all(_value(part, values) for part in parts)


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _value(node.left, values)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, values)
        if not _COMPARE[type(op)](left, right):
            return False
        left = right
    return True


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def _arithmetic(op: ast.operator, left: Any, right: Any) -> int | float:
    left, right = _number(left), _number(right)
    if isinstance(op, ast.Pow) and abs(right) > _MAX_EXPONENT:
        raise ValueError(f"the exponent {right} is larger than {_MAX_EXPONENT}")
    found = _BINARY[type(op)](left, right)
    if isinstance(found, int) and found.bit_length() > _MAX_BITS:
        raise OverflowError("a number is too large")
    return _number(found)
