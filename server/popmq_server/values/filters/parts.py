"""Compiles trees of the SQL92 grammar into closures over the properties of a message.

    a > 5 AND b IN ('x', 'y')

    conditions ──▶ every(…)          each node becomes a Part: a function from a message's properties to a value,
    ├─ greater ──▶ │ 5 < number(a)   and data that need no message: the sort of the value, and for literals
    └─ one_of  ──▶ └ b in {x, y}     the value itself

Refuses meaningless expressions, with their place in the text: texts have no order, nothing is equal to NULL.
"""

import math
import operator
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from lark import Token, Tree
from lark.visitors import Interpreter

from popmq_server.errors import Refused
from popmq_server.values.filters import logic
from popmq_server.values.filters.errors import refusal
from popmq_server.values.filters.logic import (
    Decide,
    Known,
    Number,
    Properties,
    Run,
    Truth,
)

#: Maximum number of texts in one IN.
LIST_MAX = 256
_WHOLE_MAX = 1 << 63
#: Longer ones are not read: the time grows with the square, and Python refuses 4,300 digits.
_DIGITS_MAX = len(str(_WHOLE_MAX))

SyntaxTree: TypeAlias = Tree[Token]


class Sort(Enum):
    """The type of a part's value, apart from NULL."""

    PROPERTY = "a property"
    TEXT = "a text"
    NUMBER = "a number"
    TRUTH = "a condition"
    NULL = "NULL"


class Part(NamedTuple):
    """A compiled part of an expression. `value` is valid only if `constant` is set."""

    sort: Sort
    run: Run
    constant: bool = False
    value: Known = None


class Builder(Interpreter[Token, Part]):
    """Visits trees and returns Parts: one method for each rule of the grammar, with its name."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _refused(self, tree: SyntaxTree, why: str, action: str = "") -> Refused:
        return refusal("sql92", self._text, tree.meta.start_pos, why, action)

    def _part(self, tree: SyntaxTree, index: int = 0) -> tuple[SyntaxTree, Part]:
        """A child of a node, and its compiled Part."""
        child = tree.children[index]
        assert isinstance(child, Tree)
        return child, self.visit(child)

    # ── Conditions ───────────────────────────────────────────────────────────────────────────────────────────────

    def decision(self, tree: SyntaxTree) -> Decide:
        """Compiles a part in the place of a condition: a condition, or a property, which is FALSE, or NULL if absent.

        So a property alone is never TRUE, and `NOT a` means that a is present.
        """
        part: Part = self.visit(tree)
        if part.sort in (Sort.TRUTH, Sort.NULL):
            return part.run
        if part.sort is not Sort.PROPERTY:
            raise self._refused(tree, f"{part.sort.value} is neither a condition nor a property")
        return lambda properties: None if part.run(properties) is None else False

    def _decisions(self, tree: SyntaxTree) -> list[Decide]:
        return [self.decision(child) for child in tree.children if isinstance(child, Tree)]

    def alternatives(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.some(self._decisions(tree)))

    def conditions(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.every(self._decisions(tree)))

    def negation(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.opposite(self._decisions(tree)[0]))

    def inside(self, tree: SyntaxTree) -> Part:
        return self._part(tree)[1]

    # ── Equality ─────────────────────────────────────────────────────────────────────────────────────────────────

    def equal(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, self._equality(tree))

    def unequal(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.opposite(self._equality(tree)))

    def _equality(self, tree: SyntaxTree) -> Decide:
        """Refuses NULL, since nothing is equal to it, and a truth value next to a literal of another sort."""
        sides = [self._part(tree, index) for index in (0, 1)]
        for child, part in sides:
            if part.constant and part.value is None:
                raise self._refused(child, "nothing is equal to NULL", "write IS NULL or IS NOT NULL")
        (_, left), (child, right) = sides
        if left.constant and right.constant and (left.sort is Sort.TRUTH) != (right.sort is Sort.TRUTH):
            raise self._refused(child, f"{left.sort.value} cannot be compared with {right.sort.value}")
        first, second = left.run, right.run
        return lambda properties: logic.equal(first(properties), second(properties))

    def is_null(self, tree: SyntaxTree) -> Part:
        run = self._part(tree)[1].run
        return Part(Sort.TRUTH, lambda properties: run(properties) is None)

    def is_not_null(self, tree: SyntaxTree) -> Part:
        run = self._part(tree)[1].run
        return Part(Sort.TRUTH, lambda properties: run(properties) is not None)

    # ── Order ────────────────────────────────────────────────────────────────────────────────────────────────────

    def greater(self, tree: SyntaxTree) -> Part:
        return self._order(tree, operator.gt)

    def at_least(self, tree: SyntaxTree) -> Part:
        return self._order(tree, operator.ge)

    def less(self, tree: SyntaxTree) -> Part:
        return self._order(tree, operator.lt)

    def at_most(self, tree: SyntaxTree) -> Part:
        return self._order(tree, operator.le)

    def _order(self, tree: SyntaxTree, holds: Callable[[Number, Number], bool]) -> Part:
        return Part(Sort.TRUTH, _ordered(self._number(tree, 0), holds, self._number(tree, 1)))

    def between(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, self._between(tree))

    def not_between(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.opposite(self._between(tree)))

    def _between(self, tree: SyntaxTree) -> Decide:
        value, low, high = (self._number(tree, index) for index in (0, 1, 2))
        if low.constant and high.constant and low.value > high.value:
            why = f"no number is between {low.value} and {high.value}"
            raise self._refused(self._part(tree, 1)[0], why, "write the smaller one first")
        return logic.every((_ordered(value, operator.ge, low), _ordered(value, operator.le, high)))

    def _number(self, tree: SyntaxTree, index: int) -> Part:
        """An operand of `>` and the like: a number, or a property whose text is read as one. Texts have no order."""
        child, part = self._part(tree, index)
        if part.sort is Sort.NUMBER:
            return part
        if part.sort is not Sort.PROPERTY:
            raise self._refused(child, f"{part.sort.value} has no order, expected a number or a property")
        run = part.run
        return Part(Sort.NUMBER, lambda properties: None if (text := run(properties)) is None else logic.number(text))

    # ── Texts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def one_of(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, self._membership(tree))

    def none_of(self, tree: SyntaxTree) -> Part:
        return Part(Sort.TRUTH, logic.opposite(self._membership(tree)))

    def _membership(self, tree: SyntaxTree) -> Decide:
        child, part = self._part(tree)
        if part.sort is not Sort.PROPERTY:
            raise self._refused(child, f"{part.sort.value} cannot be in a list, expected a property")
        run, tokens = part.run, [child for child in tree.children if isinstance(child, Token)]
        if len(tokens) > LIST_MAX:
            why = f"this list has {len(tokens)} texts, at most {LIST_MAX} are allowed"
            raise refusal("sql92", self._text, tokens[LIST_MAX].start_pos or 0, why)
        texts = frozenset(map(_unquoted, tokens))
        return lambda properties: None if (text := run(properties)) is None else text in texts

    def contains(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.__contains__, True)

    def not_contains(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.__contains__, False)

    def starts(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.startswith, True)

    def not_starts(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.startswith, False)

    def ends(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.endswith, True)

    def not_ends(self, tree: SyntaxTree) -> Part:
        return self._search(tree, str.endswith, False)

    def _search(self, tree: SyntaxTree, finds: Callable[[str, str], bool], wanted: bool) -> Part:
        """Both forms are FALSE, not NULL, if the property is absent or the searched text is empty."""
        run, looked_for = self._part(tree)[1].run, _unquoted(str(tree.children[1]))
        if not looked_for:
            return Part(Sort.TRUTH, lambda properties: False)

        def found(properties: Properties) -> Truth:
            text = run(properties)
            return isinstance(text, str) and finds(text, looked_for) is wanted

        return Part(Sort.TRUTH, found)

    # ── Signs and literals ───────────────────────────────────────────────────────────────────────────────────────

    def plus(self, tree: SyntaxTree) -> Part:
        return self._part(tree)[1]

    def minus(self, tree: SyntaxTree) -> Part:
        """Negates a number. A property is a text, which has no negative: NULL."""
        part = self._part(tree)[1]
        if part.constant and part.sort is Sort.NUMBER:
            return _literal(Sort.NUMBER, -part.value)
        return _literal(Sort.NULL, None) if part.constant else Part(Sort.NUMBER, lambda properties: None)

    def property(self, tree: SyntaxTree) -> Part:
        name = str(tree.children[0])
        return Part(Sort.PROPERTY, lambda properties: properties.get(name))

    def text(self, tree: SyntaxTree) -> Part:
        return _literal(Sort.TEXT, _unquoted(str(tree.children[0])))

    def whole(self, tree: SyntaxTree) -> Part:
        digits = str(tree.children[0]).rstrip("lL")
        value = int(digits) if len(digits) <= _DIGITS_MAX else math.inf
        if value > _WHOLE_MAX:
            raise self._refused(tree, "this whole number has more than 64 bits", "write it with a decimal point")
        return _literal(Sort.NUMBER, value)

    def decimal(self, tree: SyntaxTree) -> Part:
        value = float(str(tree.children[0]))
        if math.isinf(value):
            raise self._refused(tree, "this number is larger than a double can be")
        return _literal(Sort.NUMBER, value)

    def true(self, tree: SyntaxTree) -> Part:
        return _literal(Sort.TRUTH, True)

    def false(self, tree: SyntaxTree) -> Part:
        return _literal(Sort.TRUTH, False)

    def null(self, tree: SyntaxTree) -> Part:
        return _literal(Sort.NULL, None)


def _ordered(left: Part, holds: Callable[[Number, Number], bool], right: Part) -> Decide:
    """A comparison of two parts that give numbers."""
    first, second = left.run, right.run

    def run(properties: Properties) -> Truth:
        low, high = first(properties), second(properties)
        return None if low is None or high is None else holds(low, high)

    return run


def _literal(sort: Sort, value: Known) -> Part:
    return Part(sort, lambda properties: value, True, value)


def _unquoted(quoted: str) -> str:
    """Removes the quotes; two quotes inside a text are one."""
    return quoted[1:-1].replace("''", "'")
