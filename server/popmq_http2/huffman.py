"""Huffman decoding of header strings (RFC 7541, appendix B).

The code is canonical, so the code lengths of the symbols define it: codes of one length are consecutive numbers in the
order of their symbols, and the first code of a length follows from the last one of the length before.

The decoder consumes a byte at a time, in two steps of four bits that are joined when they first occur. A state is an
inner node of the code's tree; a step from a state with four bits yields the next state, the completed symbols (at most
one: the shortest code has five bits), and whether the string may end there: the rest must be at most seven one-bits,
the start of EOS.
"""

import functools

#: Code length of each byte, and of EOS, which comes last.
_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b0806060605050506060606"
    "06060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f05060506050606060507070606"
    "060506070605050607070707070f0b0e0d1c14161414161616171617171717171817181816171817171717151617161717181615141616"
    "1717151716161815161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a"
    "1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
_EOS = 256
#: Decoded strings in the cache, and their maximum length: header values repeat, and a look-up is 20 times faster.
_KNOWN_MAX, _KNOWN_BYTES = 4096, 128


#: (next state, completed symbols, whether the string may end here). State -1: EOS, which no string may contain.
Step = tuple[int, bytes, bool]


def _codes() -> dict[tuple[int, int], int]:
    """(length, code) → symbol. The first code of a length is the successor of the last shorter one, shifted."""
    found: dict[tuple[int, int], int] = {}
    code = length = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol)):
        code <<= _LENGTHS[symbol] - length
        length = _LENGTHS[symbol]
        found[length, code] = symbol
        code += 1
    return found


@functools.cache
def _steps() -> list[tuple[Step, ...]]:
    """The steps of each state, built when the first string is decoded (20 ms).

    States are prefixes of codes, numbered in the order of discovery.
    """
    codes = _codes()
    prefixes: list[tuple[int, int]] = [(0, 0)]
    numbers = {(0, 0): 0}

    def step(prefix: tuple[int, int], bits: int) -> Step:
        length, code = prefix
        symbol = b""
        for place in (3, 2, 1, 0):
            length, code = length + 1, code << 1 | bits >> place & 1
            if (done := codes.get((length, code))) is not None:
                if done == _EOS:
                    return -1, b"", False
                symbol += bytes((done,))
                length = code = 0
        if (length, code) not in numbers:
            numbers[length, code] = len(prefixes)
            prefixes.append((length, code))
        return numbers[length, code], symbol, length < 8 and code == (1 << length) - 1

    found: list[tuple[Step, ...]] = []
    while len(found) < len(prefixes):
        found.append(tuple(step(prefixes[len(found)], bits) for bits in range(16)))
    return found


_known: dict[bytes, bytes] = {}
#: The step of a byte from a state, by both (state << 8 | byte): the next state << 8, and the completed symbols. At most
#: 256 for each of the 256 states.
_byte_steps: dict[int, tuple[int, bytes]] = {}


def _byte_step(place: int) -> tuple[int, bytes]:
    """Joins the two steps of a byte. Raises ValueError for EOS."""
    steps = _steps()
    state, first, _ = steps[place >> 8][place >> 4 & 15]
    state, second, _ = steps[state][place & 15] if state >= 0 else (state, b"", False)
    if state < 0:
        raise ValueError("EOS in a Huffman string")
    found = _byte_steps[place] = state << 8, first + second
    return found


@functools.cache
def _ends() -> frozenset[int]:
    """The states << 8 in which a string may end: the start, and up to seven one-bits after a symbol."""
    steps = _steps()
    return frozenset({0} | {state << 8 for step in steps for state, _, may_end in step if may_end})


def decode(raw: bytes) -> bytes:
    """Decodes a string. Raises ValueError for EOS inside, or invalid padding."""
    if (known := _known.get(raw)) is not None:
        return known
    parts, state, steps = [], 0, _byte_steps
    for byte in raw:
        state, symbols = steps.get(state | byte) or _byte_step(state | byte)
        parts.append(symbols)
    if state not in _ends():
        raise ValueError("a Huffman string has wrong padding")
    found = b"".join(parts)
    if len(raw) <= _KNOWN_BYTES:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[raw] = found
    return found
