"""`python -m tests.integrations.frameworks`: frameworks' own tests against a broker, and tables of them in their pages.

Each framework has a name, a page in docs/integrations, and suites; another name runs only those.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.install import Missing
from bench.peers.redis_server import RedisServer
from harness.broker_process import BrokerProcess
from tests.integrations.frameworks import celery_suites, suites


@contextmanager
def redis() -> Iterator[int]:
    """A Redis for what Celery's tasks note; its port, or 0 where there is none: the tests that need it then fail."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = RedisServer(Path(folder))
        except Missing as error:
            print(f"test-frameworks: there is no Redis, so Celery's tests that note in it fail: {error}")
            yield 0
            return
        server.start()
        try:
            yield server.port
        finally:
            server.kill()


def main(names: list[str]) -> int:
    """Runs the suites of these frameworks, or of all; 1 if a test failed."""
    failed = 0
    with redis() as redis_port:
        frameworks = {"celery": celery_suites.suites(redis_port)}
        for name in names or frameworks:
            results = {}
            for suite in frameworks[name]:
                print(f"test-frameworks: {suite.title} {suites.release(suite.package)}")
                with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "data") as broker:
                    results[f"{suite.title} {suites.release(suite.package)}"] = suites.run(suite, broker.endpoint)
            text = suites.table(results)
            suites.write(suites.ROOT / "docs" / "integrations" / f"{name}.md", text)
            print(text)
            failed += sum(outcome.state == "failed" for each in results.values() for outcome in each)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
