"""Runs Django's own tests of its tasks, tests/tasks of its source archive, over PopMQ and a broker.

    python -m tests.integrations.django.own_tests FOLDER     FOLDER has Django's package `tasks`

Django tests the two backends that it has. Here their names mean PopMQ: each DummyBackend sends to a broker and tells
what the broker has; each ImmediateBackend does too, runs a worker until the task has ended, and asks the broker again.
The tests stay as they are. Those of EXPECTED fail, each for its reason; the exit code is 1 if another one fails, or if
one of them passes.
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import django
from django.conf import settings

import popmq
import popmq.testing

#: Tests that cannot pass, by class and name → why.
_CLOSED_MEMORY = "changes an object in the memory of DummyBackend, and expects the change in a later answer"
_CAN = "expects that the backend cannot do it; PopMQ can"
_COMMIT = "expects a task of a transaction before the commit; with PopMQ it exists if the transaction commits"
EXPECTED = {
    "DummyBackendTestCase.test_refresh_result": _CLOSED_MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": _CLOSED_MEMORY,
    "DummyBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": _COMMIT,
    "ImmediateBackendTestCase.test_cannot_get_result": _CAN,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _CAN,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _CAN,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "expects KeyboardInterrupt of a task in its caller; with PopMQ the task fails in the worker"
    ),
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": _COMMIT,
}
MODULES = ("test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend")


def configure(folder: Path) -> None:
    """A project with a database in a file. The endpoint is in the environment, since the tests have no options."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db"), "TEST": {"NAME": str(folder / "t")}}
    apps = ["popmq_integrations.django"]
    settings.configure(DATABASES={"default": database}, INSTALLED_APPS=apps, USE_TZ=True, SECRET_KEY="of tests")
    django.setup()


def replace_backends(broker: popmq.testing.Broker) -> None:
    """From now on the names of Django's backends are those of PopMQ's."""
    from django.tasks.backends import dummy, immediate

    from popmq_integrations.django import PopMQBackend, working

    class OnABroker(PopMQBackend):
        """With what DummyBackend has for tests."""

        ids: list[str] = []  # noqa: RUF012 - of all instances: Django makes one for each thread and task

        @property
        def results(self) -> list[Any]:
            return [self.get_result(id) for id in self.ids]

        def clear(self) -> None:
            self.ids.clear()
            for topic in self.process.client.topics.list():
                self.process.client.topics.purge(topic.name)

        def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
            result = super().enqueue(task, args, kwargs)
            self.ids.append(result.id)
            return result

    class RunAtOnce(PopMQBackend):
        """With a worker in `enqueue`."""

        def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
            result = super().enqueue(task, args, kwargs)
            worker = working.worker_of(self.alias, [task.queue_name])
            worker.middleware.clear()  # which makes the table of the outbox: some of these tests allow no query
            broker.work(worker)
            result.refresh()
            return result

    dummy.DummyBackend, immediate.ImmediateBackend = OnABroker, RunAtOnce


class Outcomes(unittest.TextTestResult):
    """Remembers the tests that passed."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.passed = set[str]()

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed.add(name_of(test))


def name_of(test: Any) -> str:
    """Class and name; of a part of a test, those of the test."""
    return ".".join(getattr(test, "test_case", test).id().split(".")[-2:])


def main(folder: str) -> int:
    with tempfile.TemporaryDirectory() as made, popmq.testing.broker() as broker:
        os.environ["POPMQ_ENDPOINT"] = broker.endpoint
        configure(Path(made))
        replace_backends(broker)
        sys.path.insert(0, folder)
        from django.test.runner import DiscoverRunner

        from popmq_integrations.django import processes

        class Runner(DiscoverRunner):  # type: ignore[misc]  # Django has no types
            def get_resultclass(self) -> type[Outcomes]:
                return Outcomes

            def suite_result(self, suite: Any, result: Outcomes, **_: Any) -> Any:
                return result

        result = Runner(verbosity=1).run_tests([f"tasks.{module}" for module in MODULES])
        processes.close_all()
    failed = {name_of(test) for test, _ in (*result.failures, *result.errors)}
    wrong = [f"{name} failed" for name in sorted(failed - EXPECTED.keys())]
    wrong += [f"{name} did not fail" for name in sorted(EXPECTED.keys() - failed)]
    print(
        f"Django {django.__version__}: {len(result.passed)} passed, {len(failed)} failed, of these expected: ", end=""
    )
    print(f"{len(failed & EXPECTED.keys())}; skipped {len(result.skipped)}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
