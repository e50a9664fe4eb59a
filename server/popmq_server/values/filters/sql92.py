"""SQL92 filters: text → tree (sql92.lark, an LALR grammar) → nested closures (parts.py), without `eval`.

Mistakes in the text alone are refused when the filter is built, with the place in the text and the words that are
allowed there. An expression over a message's properties is TRUE, FALSE or NULL (logic.py).
"""

import functools
from pathlib import Path

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from popmq_server.errors import Refused
from popmq_server.values.filters.errors import check_bytes, refusal
from popmq_server.values.filters.logic import Decide
from popmq_server.values.filters.parts import Builder, SyntaxTree

#: Maximum nesting of operators and parentheses.
DEPTH_MAX = 64
#: Maximum number of words, signs and texts, not counting commas. A text with as many compiles in 6 ms, and nothing else
#: runs meanwhile.
WORDS_MAX = 512
#: Tokens that `written` keeps as they are; others are words of the grammar.
_EXACT = {"NAME", "TEXT", "WHOLE", "DECIMAL"}
_SHOWN = {
    "NAME": "a property",
    "TEXT": "a text in single quotes",
    "WHOLE": "a number",
    "DECIMAL": "a number",
    "EQUAL": "=",
    "NOT_EQUAL": "<>",
    "MORETHAN": ">",
    "AT_LEAST": ">=",
    "LESSTHAN": "<",
    "AT_MOST": "<=",
    "PLUS": "+",
    "MINUS": "-",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end",
}
_CURES = {
    '"': "write texts in single quotes",
    "!": "write <> for unequal",
    "==": "write one =",
    "LIKE": "use CONTAINS, STARTSWITH or ENDSWITH",
    "*": "there is no arithmetic in filters",
    "%": "there is no arithmetic in filters",
}


@functools.cache
def _parser() -> Lark:
    """Builds the parser at the first SQL filter, in 30 ms.

    The basic lexer splits the text without regard to the grammar, so that `ORb` is a name everywhere.
    """
    grammar = Path(__file__).with_name("sql92.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", propagate_positions=True)


def compiled(text: str) -> Decide:
    """Compiles the decision over a message's properties. Raises Refused FILTER_INVALID with the place in the text."""
    check_bytes("sql92", text)
    _check_words(text)
    tree = _parsed(text)
    _check_depth(text, tree)
    return Builder(text).decision(tree)


def _parsed(text: str) -> SyntaxTree:
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _unexpected(text, error) from None


def _check_words(text: str) -> None:
    """Limits the time to compile a text, before it is parsed."""
    words = 0
    try:
        for token in _parser().lex(text):
            words += token.type != "COMMA"
            if words > WORDS_MAX:
                why = f"the expression has more than {WORDS_MAX} words, signs and texts"
                raise refusal("sql92", text, token.start_pos or 0, why, "write a IN ('x', 'y') for a = 'x' OR a = 'y'")
    except UnexpectedCharacters:
        pass  # the parser reports it, or an earlier mistake


def written(text: str) -> str:
    """The normal form of a valid text: comments, blanks and the case of keywords do not matter."""
    return " ".join(token if token.type in _EXACT else token.upper() for token in _parser().lex(text))


def _unexpected(text: str, error: UnexpectedInput) -> Refused:
    """The found token, the expected ones, and a hint for common mistakes."""
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        return refusal("sql92", text, offset, _odd_character(text, offset), _CURES.get(text[offset], ""))
    assert isinstance(error, UnexpectedToken)
    token: Token = error.token
    allowed = sorted({_SHOWN.get(name, name) for name in error.accepts})
    expected = f"expected {', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else f"expected {allowed[0]}"
    if token.type == "$END":
        return refusal("sql92", text, len(text), f"the text ends here, {expected}")
    cure = _CURES.get(token.upper() if text[offset - 1 : offset + 1] != "==" else "==", "")
    return refusal("sql92", text, offset, f"{str(token)!r} is not allowed here, {expected}", cure)


def _odd_character(text: str, offset: int) -> str:
    if text[offset] == "'":
        return "this text has no closing quote"
    if text.startswith("/*", offset):
        return "this comment has no end"
    return f"{text[offset]!r} has no meaning here"


def _check_depth(text: str, tree: SyntaxTree) -> None:
    """Limits the recursion of the later steps; the parser itself does not recurse."""
    left = [(tree, 1)]
    while left:
        node, depth = left.pop()
        inner = [child for child in node.children if isinstance(child, Tree)]
        if inner and depth > DEPTH_MAX:
            why = f"more than {DEPTH_MAX} operators and parentheses are nested"
            raise refusal("sql92", text, node.meta.start_pos, why)
        left += [(child, depth + 1) for child in inner]
