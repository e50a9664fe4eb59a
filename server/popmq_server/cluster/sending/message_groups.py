"""Message group → queue number: the formula of RocketMQ's own proxy, over the layout instead of the living queues.

It is the jump consistent hash of Guava, of the hash of a Java String. While all brokers live, and a topic's queues were
made at once, a proxy sends a message group to the same queue. While a broker is away its message groups move at a
proxy; here they stay, and their sends are refused until it is back.
"""

_MULTIPLIER, _WORD = 2_862_933_555_777_941_757, (1 << 64) - 1


def queue_of(message_group: str, queues: int) -> int:
    """The queue number, from 0."""
    return jump_hash(string_hash(message_group), queues)


def string_hash(text: str) -> int:
    """String.hashCode of Java: of UTF-16 units, as a signed number of 32 bits."""
    found = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for unit in range(0, len(raw), 2):
        found = (31 * found + (raw[unit] << 8 | raw[unit + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def jump_hash(number: int, buckets: int) -> int:
    """Hashing.consistentHash of Guava: with one bucket more, only 1/buckets of all numbers move, all to the new one."""
    state, candidate = number & _WORD, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _WORD
        following = int((candidate + 1) / (((state >> 33) + 1) / 2**31))
        if following >= buckets:
            return candidate
        candidate = following
