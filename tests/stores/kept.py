"""The kept stores of earlier formats."""

import lzma
from pathlib import Path

STORES = Path(__file__).parent
#: Format number → packed data file.
KEPT = {int(path.name.split(".")[0].removeprefix("format-")): path for path in sorted(STORES.glob("format-*.mdb.xz"))}


def put(folder: Path, number: int) -> None:
    """Creates a data folder with the kept store of a format."""
    folder.mkdir()
    (folder / "popmq.mdb").write_bytes(lzma.decompress(KEPT[number].read_bytes()))
