"""What clients hand back to a gateway: any text is read as it was signed, or refused as typed; none passes for another.

read    any text, as a handle, a transaction id and a recall handle, in any group
bent    a handle of this gateway with one byte, or its end, replaced: it is the same text again, or refused
made    a handle, or a transaction id, of any numbers and names: read as it was written, or refused when written
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from popmq_remoting.errors import BadFormat
from popmq_remoting.pops import handles as pop_handles
from popmq_remoting.requests.sending import HalfPlace
from popmq_server.cluster.signed import recalls, transactions
from popmq_server.cluster.signed.handles import Handles, SignedDelivery
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.errors import Refused
from tests.fuzz.target import Running

T = TypeVar("T")
SECRETS = Secrets([b"the secret of this gateway", b"the one before it"])
GROUP, TOPIC = "shop%bill", "shop%orders"
HANDLES = Handles(SECRETS)
POPPED = pop_handles.read("100 5000 60000 3 0 broker-a 2 104")
DELIVERY = SignedDelivery(TOPIC, POPPED, 2)
GOOD = HANDLES.write(DELIVERY, GROUP).decode()
GOOD_TRANSACTION = transactions.write(SECRETS, SignedHalf("a", HalfPlace("t", "g", "i", "i", 5, 9), False))


def _outcome(read: Callable[[], T]) -> T | Refused:
    """What was read, or the refusal, which always says what to do."""
    try:
        return read()
    except Refused as refused:
        if not refused.action:
            raise
        return refused


def _read(raw: bytes) -> None:
    """Nobody guesses a signature of 8 bytes: what is read must have been signed here."""
    group, _, text = raw.decode("latin-1").partition("\n")
    delivery = _outcome(lambda: HANDLES.read(text, group))
    assert isinstance(delivery, Refused) or (text, group) == (GOOD, GROUP)
    half = _outcome(lambda: transactions.read(SECRETS, text))
    assert isinstance(half, Refused) or text == GOOD_TRANSACTION
    _outcome(lambda: recalls.read(text, TOPIC))
    (each,) = HANDLES.each([text], group, lambda broker: 0)
    assert isinstance(each, Refused) == isinstance(delivery, Refused)


def _bent(raw: bytes) -> None:
    if len(raw) < 2:
        return
    at = raw[0] % len(GOOD)
    text = f"{GOOD[:at]}{chr(raw[1])}{GOOD[at + 1 :]}" if raw[1] % 2 else GOOD[:at] + raw[2:].decode("latin-1")
    found = _outcome(lambda: HANDLES.read(text, GROUP))
    if isinstance(found, Refused):
        assert found.code == "INVALID_HANDLE"
    else:
        assert (text, found) == (GOOD, DELIVERY)


def _made(raw: bytes) -> None:
    numbers = [int.from_bytes(raw[at : at + 9], "big", signed=True) for at in range(0, 45, 9)]
    names = raw[45:].decode("utf-8", "replace").split("\n")
    broker, topic, group, one, two = [name or "x" for name in (*names, "a", "t", "g", "i", "j")][:5]
    handle = pop_handles.PopHandle(
        numbers[0], numbers[1], numbers[2], numbers[3] % 70_000, str(numbers[4] % 3), broker, 7, numbers[0] + 5
    )
    delivery = SignedDelivery(topic, handle, 1 + numbers[1] % 300)
    try:
        text = HANDLES.write(delivery, group).decode()
    except BadFormat:
        pass
    else:
        assert HANDLES.read(text, group) == delivery._replace(attempt=min(delivery.attempt, 255))
    half = SignedHalf(broker, HalfPlace(topic, group, one, two, numbers[0], numbers[1]), bool(numbers[2] % 2))
    try:
        text = transactions.write(SECRETS, half)
    except BadFormat:
        return
    assert transactions.read(SECRETS, text) == half


@contextmanager
def signed_texts() -> Iterator[Running]:
    """All three, by the first byte."""

    def run(raw: bytes) -> None:
        (_read, _bent, _made)[(raw[0] if raw else 0) % 3](raw[1:])

    other = Handles(Secrets([b"the secret of another gateway"])).write(DELIVERY, GROUP).decode()
    texts = (f"shop%bill\n{text}" for text in (GOOD, other, GOOD[:-3], f"{GOOD}A", GOOD_TRANSACTION))
    seeds = [
        *(b"\x00" + text.encode() for text in texts),
        b"\x01\x05\x01",
        b"\x01\x20\x02" + GOOD[32:].encode(),
        b"\x02" + bytes(45) + b"broker-a\nshop%orders\ng\nid\ntx",
        b"\x02" + b"\x01" * 45 + "b\nth\u00e8me\ng\n\n".encode(),
    ]
    yield Running(run, seeds)
