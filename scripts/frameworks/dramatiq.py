"""Dramatiq's own tests against PopMQ: those of its brokers, and those that it runs on a broker in memory.

python -m scripts.frameworks.dramatiq [options of pytest]
"""

import sys
from pathlib import Path

from scripts.frameworks import sdist

FILES = (
    *("test_redis.py", "test_rabbitmq.py", "test_results.py", "test_actors.py", "test_broker.py"),
    *("test_callbacks.py", "test_composition.py", "test_generic_actors.py", "test_messages.py", "test_worker.py"),
)


def complete(folder: Path) -> None:
    """Adds what the archive leaves out: the tests import these two of their own package."""
    (folder / "tests" / "__init__.py").touch()
    (folder / "tests" / "common.py").write_text("from scripts.frameworks.dramatiq_fixtures import *\n")


def main() -> int:
    folder = sdist.unpacked("dramatiq")
    complete(folder)
    files = [f"tests/{name}" for name in FILES]
    return sdist.pytest(folder, "scripts.frameworks.dramatiq_fixtures", files, *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
