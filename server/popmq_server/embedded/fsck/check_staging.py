"""`popmq check` of staged messages.

staged → stage       a stage has all its messages and bytes, and each block its checksum
publish → stage      a stage in the list has blocks left
stage → either       each block belongs to one stage: committed or not, never both
"""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.rules.sending import staging
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import PUBLISH_KEY, STAGE_KEY
from popmq_server.embedded.store.lmdb import Transaction


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant of stages and their blocks."""
    messages, size = Counter[int](), Counter[int]()
    yield from _check_blocks(kv, messages, size)
    used: Counter[int] = Counter()
    for _, raw in kv.scan("staged"):
        one = staging.Staged(*staging.STAGED.unpack_from(raw))
        used[one.number] += 1
        found = messages[one.number], size[one.number]
        if found != (one.messages, one.bytes):
            yield f"stage {one.number} has {found} messages and bytes, counted {(one.messages, one.bytes)}"
    for key, raw in kv.scan("publish"):
        number, _, _ = staging.PUBLISH.unpack(raw)
        used[number] += 1
        if number not in size:
            yield f"stage {number} is to be published, and has no messages left"
        if max(number, PUBLISH_KEY.unpack(key)[0]) >= state.counters[""].stage_id:
            yield f"stage {number} has a number that was never assigned"
    for number in size.keys() | used.keys():
        if used[number] != 1:
            yield f"the blocks of stage {number} belong to {used[number]} stages"


def _check_blocks(kv: Transaction, messages: Counter[int], size: Counter[int]) -> Iterator[str]:
    """Adds up the messages and bytes of each stage on the way."""
    for key, raw in kv.scan("stage"):
        number, piece, block = STAGE_KEY.unpack(key)
        found = staging.read_block(bytes(raw))
        size[number] += len(raw)
        if found is None:
            yield f"block {block} of piece {piece} of stage {number} does not match its checksum"
        else:
            messages[number] += len(found)
