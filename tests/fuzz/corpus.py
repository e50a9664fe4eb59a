"""The inputs that are kept: each reached code that those before it did not reach, or once failed.

A file for each target, one input a line as base64, the shortest first, so that changes are small and readable.
"""

import base64
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

KEPT = Path(__file__).with_name("corpus")
#: Bytes of the longest input that is kept, and inputs for a target: what `make test` runs again.
INPUT_BYTES, INPUTS = 2_000, 100


def kept(target: str) -> list[bytes]:
    """The inputs of a target."""
    path = KEPT / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Replaces the inputs of a target; how many are kept."""
    chosen = sorted({raw for raw in inputs if len(raw) <= INPUT_BYTES}, key=lambda raw: (len(raw), raw))
    if len(chosen) > INPUTS:  # of each length, not the short ones only
        chosen = [chosen[place * len(chosen) // INPUTS] for place in range(INPUTS)]
    KEPT.mkdir(exist_ok=True)
    text = "".join(f"{base64.b64encode(raw).decode()}\n" for raw in chosen)
    (KEPT / f"{target}.txt").write_text(text)
    return len(chosen)


def unpack(inputs: Iterable[bytes], folder: Path) -> None:
    """Writes inputs as the files that a fuzzer reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for raw in inputs:
        (folder / sha256(raw).hexdigest()[:16]).write_bytes(raw)


def read(folder: Path) -> list[bytes]:
    """The inputs in a fuzzer's folder."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]
