"""Makes the Python stubs of every .proto below this folder, and says whether the committed ones are true.

    python proto/generate.py            write proto/popmq_proto
    python proto/generate.py --check    write nothing; exit 1 when a committed stub differs from its .proto

protoc would write `popmq/v1/popmq_pb2.py`, which the installed SDK (package `popmq`) hides. The stubs therefore live in
`popmq_proto`, and the import prefix is rewritten; the protobuf package stays `popmq.v1` for all languages.

The names of apache.rocketmq.v2 are also those of the official Python client. A process that has that client and a
broker of ours would define them twice, which protobuf refuses: ours live in a descriptor pool of their own. So do those
of KEDA's external scalers, for a process that also has a scaler of its own.
"""

import argparse
import re
import sys
import tempfile
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from grpc_tools import protoc

# The generator's version is the users' floor of grpcio and protobuf: change it together with pyproject.toml.
GENERATOR = "1.76.0"
SOURCES = Path(__file__).parent
STUBS = SOURCES / "popmq_proto"
# Where the stubs of a source folder live, as a package inside popmq_proto.
PACKAGES = {"popmq/v1": "v1", "popmq/store/v1": "store", "apache/rocketmq/v2": "rocketmq", "keda": "keda"}
# Packages whose names are defined by others too.
SHARED = ("apache/rocketmq/v2", "keda")
POOL = '''"""The descriptor pool of these stubs: see proto/generate.py."""

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
for well_known in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(well_known.DESCRIPTOR.serialized_pb)
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed stubs instead of writing them")
    check: bool = parser.parse_args().check
    if version("grpcio-tools") != GENERATOR:
        print(
            f"proto: needs grpcio-tools {GENERATOR}, found {version('grpcio-tools')}: run make setup", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    return compare(fresh) if check else write(fresh)


def generate(folder: Path) -> dict[Path, str]:
    """The text of every stub, by its path in popmq_proto; `folder` takes protoc's own output."""
    sources = sorted(path for package in PACKAGES for path in (SOURCES / package).glob("*.proto"))
    forgotten = set(SOURCES.rglob("*.proto")) - set(sources)
    if forgotten:
        raise SystemExit(f"proto: add the folder of {min(forgotten)} to PACKAGES")
    out = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    well_known = str(resources.files("grpc_tools") / "_proto")
    if protoc.main(["protoc", f"-I{SOURCES}", f"-I{well_known}", *out, *map(str, sources)]):
        raise SystemExit("proto: protoc failed")
    fresh: dict[Path, str] = {}
    for source in sources:
        package = source.parent.relative_to(SOURCES).as_posix()
        target = Path(PACKAGES[package])
        fresh[target / "__init__.py"] = f'"""Generated from proto/{package} by proto/generate.py."""\n'
        for made in (folder / package).glob(f"{source.stem}_pb2*"):
            if "_grpc" not in made.name or re.search(r"^service ", source.read_text(), re.MULTILINE):
                stub = rewrite(made.read_text())
                fresh[target / made.name] = in_own_pool(stub, target) if package in SHARED else stub
        if package in SHARED:
            fresh[target / "pool.py"] = POOL
    return fresh


def in_own_pool(stub: str, target: Path) -> str:
    """The same stub, defined in the pool of its package."""
    return stub.replace("_descriptor_pool.Default()", "POOL").replace(
        "from google.protobuf import descriptor_pool as _descriptor_pool\n",
        f"from popmq_proto.{target}.pool import POOL\n",
    )


def rewrite(stub: str) -> str:
    """Moves the imports, and the module name that messages are pickled under, from `popmq.v1` to `popmq_proto.v1`."""
    for package, target in PACKAGES.items():
        dotted = re.escape(package.replace("/", "."))
        stub = re.sub(rf"^from {dotted} import", f"from popmq_proto.{target} import", stub, flags=re.MULTILINE)
        stub = re.sub(rf"'{dotted}\.(\w+_pb2)'", rf"'popmq_proto.{target}.\1'", stub)
    return stub


def committed() -> dict[Path, str]:
    paths = [path for target in PACKAGES.values() for path in (STUBS / target).glob("*.py*") if path.is_file()]
    return {path.relative_to(STUBS): path.read_text() for path in paths}


def compare(fresh: dict[Path, str]) -> int:
    old = committed()
    wrong = sorted(path for path in fresh.keys() | old.keys() if fresh.get(path) != old.get(path))
    for path in wrong:
        print(f"proto: popmq_proto/{path} is not what its .proto says: run make proto", file=sys.stderr)
    return 1 if wrong else 0


def write(fresh: dict[Path, str]) -> int:
    """Changes only what differs: another process may be importing the rest."""
    old = committed()
    for path in old.keys() - fresh.keys():
        (STUBS / path).unlink()
    changed = [path for path in fresh if fresh[path] != old.get(path)]
    for path in changed:
        (STUBS / path).parent.mkdir(parents=True, exist_ok=True)
        (STUBS / path).write_text(fresh[path])
    print(f"proto: {len(changed)} of {len(fresh)} stubs changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
