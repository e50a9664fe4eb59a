"""A second implementation of SQL92 filters: random expressions as trees, written as text, and evaluated slowly.

Nothing here is shared with the server: logic is looked up in tables written out by hand, numbers are exact fractions,
and text is made from the tree with as few parentheses as the precedence of the grammar asks for.

    tree = ("and", ("order", ">", ("property", "a"), ("number", "5")), …)     text = "a > 5 AND …"
"""

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
Value = Any  # str, Fraction, True, False, or None

NOT = {True: False, False: True, None: None}
AND = {
    (True, True): True,
    (True, False): False,
    (True, None): None,
    (False, True): False,
    (False, False): False,
    (False, None): False,
    (None, True): None,
    (None, False): False,
    (None, None): None,
}
OR = {
    (True, True): True,
    (True, False): True,
    (True, None): True,
    (False, True): True,
    (False, False): False,
    (False, None): None,
    (None, True): True,
    (None, False): None,
    (None, None): None,
}
#: Precedence of each form; an operand of lower precedence needs parentheses.
LEVEL = {"or": 1, "and": 2, "equal": 3, "null": 3, "order": 4, "between": 4, "in": 4, "search": 4, "not": 5, "minus": 5}
PRIMARY = 6

NAMES = ("a", "b", "c", "Or1", "_x")
TEXTS = (
    "",
    "x",
    "y",
    "xy",
    "it's",
    "5",
    "5.0",
    "-5",
    "0.5",
    "1e1",
    "10",
    "true",
    "FALSE",
    "NaN",
    "5 ",
    "9007199254740993",
)
NUMBERS = ("0", "5", "10", "0.5", ".5", "5.", "1E1", "5e-1", "7L", "0.0", "9007199254740993")


# ── What an expression means ─────────────────────────────────────────────────────────────────────────────────────────


def judge(tree: Tree, message: dict[str, str]) -> Value:
    """The value of a tree for a message."""
    kind, *rest = tree
    return JUDGES[kind](message, *rest)


def decision(tree: Tree, message: dict[str, str]) -> Value:
    """As a condition, a property that exists is FALSE: its text is not a condition."""
    value = judge(tree, message)
    return False if tree[0] == "property" and value is not None else value


def exact(text: str) -> Fraction | None:
    """The number that a text says: digits, at most one point, at most one exponent, at most one sign on each."""
    body, point, exponent = text.lower(), "", "0"
    if "e" in body:
        body, _, exponent = body.partition("e")
        digits = exponent.lstrip("+-")
        if len(exponent) - len(digits) > 1 or not (digits.isascii() and digits.isdigit()):
            return None
    unsigned = body[1:] if body[:1] in ("+", "-") else body
    whole, point, part = unsigned.partition(".")
    if not (whole + part).isascii() or not (whole + part).isdigit():
        return None
    # A number that is not written as a whole number is a double, so it has a double's value.
    return Fraction(float(text)) if point or "e" in text.lower() else Fraction(int(text))


def compared(left: Value, right: Value) -> Value:
    """Equality: a text compared with a value of another type is converted to that type."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(right, str):
        return compared(right, left)
    if isinstance(left, str):
        left = {"true": True, "false": False}.get(left.lower()) if isinstance(right, bool) else exact(left)
        return compared(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return None
    return left == right


def as_number(tree: Tree, message: dict[str, str]) -> Fraction | None:
    value = judge(tree, message)
    return exact(value) if isinstance(value, str) else value


def ordered(message: dict[str, str], sign: str, left: Tree, right: Tree) -> Value:
    first, second = as_number(left, message), as_number(right, message)
    if first is None or second is None:
        return None
    return {">": first > second, ">=": first >= second, "<": first < second, "<=": first <= second}[sign]


def between(message: dict[str, str], negated: bool, value: Tree, low: Tree, high: Tree) -> Value:
    if negated:
        return OR[ordered(message, "<", value, low), ordered(message, ">", value, high)]
    return AND[ordered(message, ">=", value, low), ordered(message, "<=", value, high)]


def listed(message: dict[str, str], negated: bool, name: Tree, texts: tuple[str, ...]) -> Value:
    text = judge(name, message)
    return None if text is None else any(text == one for one in texts) is not negated


def searched(message: dict[str, str], negated: bool, word: str, left: Tree, wanted: str) -> Value:
    text = judge(left, message)
    if not isinstance(text, str) or not wanted:
        return False
    places = [place for place in range(len(text)) if text[place : place + len(wanted)] == wanted]
    found = {"CONTAINS": bool(places), "STARTSWITH": 0 in places, "ENDSWITH": len(text) - len(wanted) in places}[word]
    return found is not negated


def chained(table: dict[tuple[Value, Value], Value], message: dict[str, str], parts: tuple[Tree, ...]) -> Value:
    result = decision(parts[0], message)
    for part in parts[1:]:
        result = table[result, decision(part, message)]
    return result


def equality(message: dict[str, str], negated: bool, left: Tree, right: Tree) -> Value:
    result = compared(judge(left, message), judge(right, message))
    return NOT[result] if negated else result


def opposite(message: dict[str, str], inner: Tree) -> Value:
    return -judge(inner, message) if inner[0] in ("number", "minus") else None


JUDGES: dict[str, Any] = {
    "property": lambda message, name: message.get(name),
    "text": lambda message, text: text,
    "number": lambda message, text: exact(text.rstrip("L")),
    "truth": lambda message, value: value,
    "and": lambda message, *parts: chained(AND, message, parts),
    "or": lambda message, *parts: chained(OR, message, parts),
    "not": lambda message, inner: NOT[decision(inner, message)],
    "minus": opposite,
    "equal": equality,
    "null": lambda message, negated, inner: (judge(inner, message) is None) is not negated,
    "order": ordered,
    "between": between,
    "in": listed,
    "search": searched,
}


# ── How it is written ────────────────────────────────────────────────────────────────────────────────────────────────


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Tree, least: int = 1) -> list[str]:
    """The words of a tree, in parentheses if its precedence is below `least`."""
    words = WORDS[tree[0]](*tree[1:])
    return words if LEVEL.get(tree[0], PRIMARY) >= least else ["(", *words, ")"]


def chain_words(word: str, least: int, parts: tuple[Tree, ...]) -> list[str]:
    words = written(parts[0], least)
    for part in parts[1:]:
        words += [word, *written(part, least)]
    return words


def no(negated: bool) -> list[str]:
    return ["NOT"] if negated else []


def list_words(negated: bool, name: Tree, texts: tuple[str, ...]) -> list[str]:
    inner = [word for text in texts for word in (",", quoted(text))][1:]
    return [*written(name, 4), *no(negated), "IN", "(", *inner, ")"]


def between_words(negated: bool, value: Tree, low: Tree, high: Tree) -> list[str]:
    return [*written(value, 4), *no(negated), "BETWEEN", *written(low, 5), "AND", *written(high, 5)]


WORDS: dict[str, Any] = {
    "property": lambda name: [name],
    "text": lambda text: [quoted(text)],
    "number": lambda text: [text],
    "truth": lambda value: ["TRUE" if value else "FALSE" if value is False else "NULL"],
    "and": lambda *parts: chain_words("AND", 3, parts),
    "or": lambda *parts: chain_words("OR", 2, parts),
    "not": lambda inner: ["NOT", *written(inner, 5)],
    "minus": lambda inner: ["-", *written(inner, 5)],
    "equal": lambda negated, left, right: [*written(left, 3), "<>" if negated else "=", *written(right, 4)],
    "null": lambda negated, inner: [*written(inner, 3), "IS", *no(negated), "NULL"],
    "order": lambda sign, left, right: [*written(left, 4), sign, *written(right, 5)],
    "between": between_words,
    "in": list_words,
    "search": lambda negated, word, left, wanted: [*written(left, 4), *no(negated), word, quoted(wanted)],
}

BLANKS = st.sampled_from([" ", " ", "  ", "\n", " /* a > 'comment' */ ", " -- a comment\n"])


@st.composite
def spelled(draw: st.DrawFn, tree: Tree) -> str:
    """A text of the tree: words in any case, any blanks and comments between them."""
    text = ""
    for word in written(tree):
        plain = word.startswith("'") or word in NAMES or word[0].isdigit() or word[0] == "."
        text += (word if plain or draw(st.booleans()) else word.lower()) + draw(BLANKS)
    return text


# ── Random expressions, none of which is refused ─────────────────────────────────────────────────────────────────────

properties = st.builds(lambda name: ("property", name), st.sampled_from(NAMES))
texts = st.builds(lambda text: ("text", text), st.sampled_from(TEXTS))
positive = st.builds(lambda text: ("number", text), st.sampled_from(NUMBERS))
numbers = st.one_of(positive, positive.map(lambda number: ("minus", number)))
truths = st.sampled_from([("truth", True), ("truth", False)])
countable = st.one_of(properties, numbers, properties.map(lambda name: ("minus", name)))
signs = st.sampled_from([">", ">=", "<", "<="])
words = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])


def node(kind: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.tuples(st.just(kind), *parts)


def possible(tree: Tree) -> bool:
    """False for what the parser refuses: bounds in the wrong order, a truth value compared with another literal."""
    if tree[0] == "between":
        low, high = (judge(tree[place], {}) for place in (3, 4))
        both = all(tree[place][0] == "number" or tree[place][1][0] == "number" for place in (3, 4))
        return not both or low <= high
    if tree[0] == "equal":
        left, right = tree[2][0], tree[3][0]
        literal = {"text", "number", "minus", "truth"}
        return not ({left, right} <= literal and (left == "truth") != (right == "truth"))
    return True


def leaves() -> st.SearchStrategy[Tree]:
    anything = st.one_of(properties, properties, texts, numbers, truths)
    return st.one_of(
        node("order", signs, countable, countable),
        node("equal", st.booleans(), anything, anything).filter(possible),
        node("between", st.booleans(), countable, countable, countable).filter(possible),
        node("in", st.booleans(), properties, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map(tuple)),
        node("search", st.booleans(), words, st.one_of(properties, texts), st.sampled_from(TEXTS)),
        node("null", st.booleans(), anything),
        st.sampled_from([("truth", True), ("truth", False), ("truth", None)]),
        properties,
    )


def branches(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    side = st.one_of(inner.filter(lambda tree: tree != ("truth", None)), properties)
    return st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: ("and", *parts)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: ("or", *parts)),
        node("not", inner),
        node("null", st.booleans(), inner),
        node("equal", st.booleans(), side, side).filter(possible),
    )


expressions = st.recursive(leaves(), branches, max_leaves=12)
messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), max_size=len(NAMES))
