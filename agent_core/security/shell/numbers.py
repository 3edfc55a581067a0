"""The value of an arithmetic expression of numbers, as bash computes it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Final

MAX_EXPRESSION: Final = 200
_MAX_SHIFT: Final = 62
_BASED = re.compile(r"\b(\d{1,2})#(\w{1,40})|\b0[xX]([0-9a-fA-F]{1,40})\b|\b0([0-7]{1,40})\b", re.ASCII)
_NUMERIC = re.compile(r"[\d\s()+*/%&|^~<>-]+", re.ASCII)


def _divided(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _shifted(left: int, right: int) -> int:
    return left << (right & _MAX_SHIFT)


_OPERATIONS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _divided,
    ast.Mod: lambda left, right: left - right * _divided(left, right),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: _shifted,
    ast.RShift: lambda left, right: left >> (right & _MAX_SHIFT),
}
_SIGNS: Final[dict[type[ast.unaryop], Callable[[int], int]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


def computed(expression: str) -> int | None:
    """The expression's value; None when it holds names, or anything that is not computed here."""
    if len(expression) > MAX_EXPRESSION:
        return None
    try:
        decimal = _BASED.sub(_in_decimal, expression).strip()
        if not decimal or "//" in decimal or "**" in decimal or not _NUMERIC.fullmatch(decimal):
            return None
        value = _value(ast.parse(decimal.replace("/", "//"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value if -(2**63) <= value < 2**63 else None


def _in_decimal(found: re.Match[str]) -> str:
    if found[1]:
        return str(int(found[2], int(found[1])))
    return str(int(found[3], 16) if found[3] else int(found[4], 8))


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("the expression is not one of numbers and their operators")
