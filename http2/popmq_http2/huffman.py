"""Huffman decoding of header strings (RFC 7541, appendix B).

The code is canonical, so the code lengths of the symbols define it: codes of one length are consecutive numbers in the
order of their symbols, and the first code of a length follows from the last one of the length before.

The decoder consumes four bits at a time. A state is an inner node of the code's tree; a step from a state with four
bits yields the next state, the completed symbols (at most one: the shortest code has five bits), and whether the string
may end there: the rest must be at most seven one-bits, the start of EOS.
"""

import functools
from collections.abc import Callable

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
Pay = Callable[[int], object]


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


def decode(raw: bytes, pay: Pay) -> bytes:
    """Decodes a string. Raises ValueError for EOS inside, or invalid padding.

    `pay` gets its size before it is decoded, unless it is in the cache: no other part of a block costs as much.
    """
    if (known := _known.get(raw)) is not None:
        return known
    pay(len(raw))
    text, state, may_end, steps = bytearray(), 0, True, _steps()
    for byte in raw:
        state, symbol, _ = steps[state][byte >> 4]
        text += symbol
        state, symbol, may_end = steps[state][byte & 15]
        text += symbol
        if state < 0:
            raise ValueError("EOS in a Huffman string")
    if not may_end:
        raise ValueError("a Huffman string has wrong padding")
    found = bytes(text)
    if len(raw) <= _KNOWN_BYTES:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[raw] = found
    return found
