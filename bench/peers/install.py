"""Installs what the comparison needs into build/bench, without root.

    RocketMQ, Kafka                 Maven, their published jars (rocketmq/pom.xml, kafka/pom.xml)
    NATS, loadgen                   Go modules (nats/go.mod, bench/loadgen)
    Redis, RabbitMQ, PostgreSQL,    Debian packages, unpacked: the system does not have them, and they start no service
    MariaDB
    pgqueuer, honker, simplebroker  PyPI, into a folder that only their load programs have on their path

A redis-server on the PATH, and Debian's PostgreSQL and MariaDB, if they are installed, are used as they are.

A program that cannot be installed raises Missing; the comparison then omits that broker and prints the reason.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.broker_process import ROOT

BENCH = ROOT / "bench"
BUILT = ROOT / "build" / "bench"
DEBIAN = BUILT / "debian"
LIBRARIES = DEBIAN / "usr" / "lib" / "x86_64-linux-gnu"
ROCKETMQ_VERSION, ROCKETMQ_NEWEST = "5.3.3", "5.5.0"
RABBITMQ = DEBIAN / "usr" / "lib" / "rabbitmq" / "lib"
ERLANG = DEBIAN / "usr" / "lib" / "erlang"
#: Where Debian's package has PostgreSQL, below the root of a system.
POSTGRESQL = "usr/lib/postgresql/*/bin"
#: And MariaDB's server.
MARIADB = "usr/sbin/mariadbd"
#: Durable queues that are Python libraries, in the versions that were last measured.
LIBRARY_QUEUES = ("pgqueuer[asyncpg]==1.6.0", "honker==0.2.4", "simplebroker==8.7.2")
#: A first install downloads some 200 MB.
INSTALL_S = 1800.0


class Missing(Exception):
    """A program that this machine does not have and cannot install; the text says which and why."""


def run(
    words: Sequence[str | Path],
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
) -> str:
    """The output of a program, which `user` runs if one is given. Raises Missing with its last words."""
    tool = str(words[0])
    if shutil.which(tool) is None and not Path(tool).exists():
        raise Missing(f"{tool} is not on the PATH")
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        user=user,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Missing(f"{tool} {words[1]} ended with {done.returncode}: {' '.join(last)}")
    return done.stdout


@functools.cache
def loadgen() -> Path:
    """The load generator, built from this tree."""
    folder, program = BENCH / "loadgen", BUILT / "loadgen"
    contracts = max(path.stat().st_mtime for path in (ROOT / "proto").rglob("*.proto"))
    stubs = folder / "stubs" / "popmqv1" / "popmq.pb.go"
    if not stubs.exists() or stubs.stat().st_mtime < contracts:
        run([folder / "generate.sh"], folder, {"PYTHON": sys.executable})
    run(["go", "build", "-o", program, "."], folder)
    return program


def counter() -> Path | None:
    """The library that counts fsyncs of a process; None without a C compiler."""
    library = BUILT / "fsyncs.so"
    try:
        run(["cc", "-shared", "-fPIC", "-O2", "-o", library, BENCH / "peers" / "fsyncs.c", "-ldl"])
    except Missing:
        return None
    return library


def rocketmq(version: str = ROCKETMQ_VERSION) -> Path:
    """The folder of its jars."""
    folder = "rocketmq" if version == ROCKETMQ_VERSION else f"rocketmq-{version}"
    return _jars("rocketmq", f"-Drocketmq={version}", folder=folder)


def kafka() -> Path:
    """The folder of its jars."""
    return _jars("kafka")


def _jars(name: str, *settings: str, folder: str = "") -> Path:
    """The jars that NAME/pom.xml asks for, in a folder of this name under BUILT."""
    return _made(name, settings, BUILT / (folder or name))


def _made(name: str, settings: Sequence[str], folder: Path) -> Path:
    if not folder.joinpath("made").exists():
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}"]
        run(["mvn", "-q", "-B", *settings, *goal], BENCH / "peers" / name)
        folder.joinpath("made").touch()
    return folder / "lib"


def nats() -> Path:
    """nats-server, in the version of nats/go.mod."""
    program = BUILT / "nats" / "nats-server"
    if not program.exists():
        run(["go", "install", "tool"], BENCH / "peers" / "nats", {"GOBIN": str(program.parent)})
    return program


def redis() -> Path:
    """redis-server."""
    if found := shutil.which("redis-server"):
        return Path(found)
    program = DEBIAN / "usr" / "bin" / "redis-check-rdb"  # the same program; redis-server links to it absolutely
    if not program.exists():
        debian("redis-server")
    return program.with_name("redis-server")


def rabbitmq() -> Path:
    """The folder of rabbitmq-server's own scripts, which need `erl` of ERLANG on the PATH."""
    if not RABBITMQ.exists():
        debian("rabbitmq-server")
    script = ERLANG / "bin" / "erl"  # each `debian` unpacks it again, as it was
    script.write_text(script.read_text().replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={ERLANG}"))
    return next(RABBITMQ.glob("rabbitmq_server-*")) / "sbin"


def postgresql() -> Path:
    """The folder of PostgreSQL's programs."""
    if not (found := sorted(Path("/").glob(POSTGRESQL))):
        if not list(DEBIAN.glob(POSTGRESQL)):
            debian("postgresql")
        found = sorted(DEBIAN.glob(POSTGRESQL))
    return found[-1]


def mariadb() -> Path:
    """The root below which MariaDB's programs are: of the system, or of what was unpacked."""
    for root in (Path("/"), DEBIAN):
        if (root / MARIADB).exists():
            return root
    debian("mariadb-server-core")
    debian("mariadb-client-core")
    return DEBIAN


def library_queues() -> Path:
    """The folder of LIBRARY_QUEUES and what they need."""
    folder = BUILT / "library-queues"
    versions = "\n".join(LIBRARY_QUEUES)
    made = folder / "made"
    if not made.exists() or made.read_text() != versions:
        run([sys.executable, "-m", "pip", "--quiet", "install", "--upgrade", "--target", folder, *LIBRARY_QUEUES])
        made.write_text(versions)
    return folder


def debian(package: str) -> None:
    """Unpacks a Debian package and what it depends on that the system does not have."""
    archives = BUILT / "archives"
    archives.joinpath("partial").mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::Cache::archives={archives}", "-oDebug::NoLocking=1", "--no-install-recommends"]
    run(["apt-get", "-q", "-y", "--download-only", *options, "install", package])
    for archive in sorted(archives.glob("*.deb")):
        run(["dpkg", "-x", archive, DEBIAN])
