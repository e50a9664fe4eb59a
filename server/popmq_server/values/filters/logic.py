"""Three-valued logic, and how a text compares with a number or a truth value.

    NOT     AND   T F N     OR    T F N        any comparison with NULL is NULL, on either side
    T → F    T    T F N      T    T T T
    F → T    F    F F F      F    T F N        Values: texts, numbers, True, False, and None for NULL.
    N → N    N    N F N      N    T N N

All properties are texts. Compared with a number, a text is read as a number; compared with a truth value, as a truth
value. If it cannot be read as one, it is NULL, never an error: one odd message must not stop a filter, nor change the
result of the other side of an OR.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Number: TypeAlias = int | float
Truth: TypeAlias = bool | None
Value: TypeAlias = str | Number | Truth
Properties: TypeAlias = Mapping[str, str]
#: A Value, in the code of an operator that its parts were checked for.
Known: TypeAlias = Any
#: A compiled part of an expression: maps a message's properties to a Value, or to TRUE, FALSE or NULL.
Run: TypeAlias = Callable[[Properties], Known]
Decide: TypeAlias = Callable[[Properties], Truth]

# Python accepts more numbers than these ("nan", "1_000", " 5", digits of other scripts); they are texts here. Whole
# numbers of more than 19 digits are read as doubles, like decimals.
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_TRUTHS = {"true": True, "false": False}


def number(text: str) -> Number | None:
    """The number in a text: whole if it is one, else a double; None for anything else."""
    if _WHOLE.match(text):
        return int(text)
    return float(text) if _DECIMAL.match(text) else None


def truth(text: str) -> Truth:
    """`true` or `false` in any case; None for anything else."""
    return _TRUTHS.get(text.lower())


def beside(text: str, other: Value) -> Value:
    """Converts a text so that it can be compared with a value that is not a text."""
    if isinstance(other, bool):
        return truth(text)
    return None if other is None else number(text)


def equal(left: Value, right: Value) -> Truth:
    """`left = right`."""
    if isinstance(left, str) and not isinstance(right, str):
        left = beside(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = beside(right, left)
    if left is None or right is None or isinstance(left, bool) != isinstance(right, bool):
        return None
    return left == right


def opposite(decide: Decide) -> Decide:
    """NOT."""

    def run(properties: Properties) -> Truth:
        value = decide(properties)
        return None if value is None else not value

    return run


def every(parts: Iterable[Decide]) -> Decide:
    """AND of any number of parts, from the left, up to the first FALSE."""
    decided = tuple(parts)

    def run(properties: Properties) -> Truth:
        result: Truth = True
        for decide in decided:
            value = decide(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return run


def some(parts: Iterable[Decide]) -> Decide:
    """OR of any number of parts, from the left, up to the first TRUE."""
    decided = tuple(parts)

    def run(properties: Properties) -> Truth:
        result: Truth = False
        for decide in decided:
            value = decide(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return run
