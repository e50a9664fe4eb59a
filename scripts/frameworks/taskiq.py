"""taskiq's own tests with PopMQ in place of its broker in memory.

python -m scripts.frameworks.taskiq [options of pytest]
"""

import sys

from scripts.frameworks import sdist

FILES = (
    *("test_requeue.py", "test_retry_task.py", "test_exceptions_flow.py", "test_kicker.py"),
    *("test_result.py", "brokers/test_inmemory.py", "middlewares/test_task_retry.py", "receiver/test_receiver.py"),
    *("depends/test_progress_tracker.py", "scheduler/test_scheduler.py", "formatters/test_proxy_formatter.py"),
)


def main() -> int:
    folder = sdist.unpacked("taskiq")
    files = [f"tests/{name}" for name in FILES]
    return sdist.pytest(folder, "scripts.frameworks.taskiq_fixtures", files, *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
