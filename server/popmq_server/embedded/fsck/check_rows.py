"""`popmq check` for single rows: each matches its checksum, in a store that has them (datafile/checksums.py)."""

from typing import NamedTuple

from popmq_server.embedded.store.datafile.checksums import corrected, is_usable
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.embedded.store.lmdb import Transaction


class Broken(NamedTuple):
    """Sentences about damaged rows. `readable`: reads correct all of them, so the rest can be checked."""

    sentences: list[str]
    readable: bool


def check(kv: Transaction) -> Broken:
    """Reads every row."""
    sentences, readable = list[str](), True
    for name in DATABASES:
        for key, stored in kv.broken(name):
            found = corrected(key, stored)
            readable &= found is not None and is_usable(name, key, found[0])
            sentences.append(_sentence(name, key, found))
    return Broken(sentences, readable)


def _sentence(name: str, key: bytes, found: tuple[bytes, bytes] | None) -> str:
    row = f"row {key.hex()} of table {name!r} does not match its checksum"
    if found is None:
        return f"{row}: more than one bit is wrong; `popmq check --repair` says what that means"
    where = f"its key, {found[0].hex()}" if found[0] != key else "its value; a broker corrects it when it reads the row"
    return f"{row}: one bit is wrong in {where}; `popmq check --repair` corrects the file"
