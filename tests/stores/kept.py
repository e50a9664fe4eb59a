"""The kept stores of earlier formats, and one with sparse runs."""

import lzma
from pathlib import Path

STORES = Path(__file__).parent
#: Format number → packed data file.
KEPT = {int(path.name.split(".")[0].removeprefix("format-")): path for path in sorted(STORES.glob("format-*.mdb.xz"))}

#: A store of format 4 whose CheckPoints and blocks of history have sparse runs.
SPARSE = STORES / "sparse.mdb.xz"


def put(folder: Path, number: int) -> None:
    """Creates a data folder with the kept store of a format."""
    put_packed(folder, KEPT[number])


def put_packed(folder: Path, path: Path) -> None:
    """Creates a data folder with a packed data file."""
    folder.mkdir()
    (folder / "popmq.mdb").write_bytes(lzma.decompress(path.read_bytes()))
