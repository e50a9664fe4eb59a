"""manage.py popmq_worker: runs the tasks of a backend, by `popmq work`."""

import importlib.util
import json
import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from popmq_integrations.django.working import GIVEN, worker_of

TARGET = "popmq_integrations.django.working:worker"


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Turns into `popmq work`, in the same process: its signals, probes and processes are those of docs/worker.md."""

    help = "Run the tasks of a PopMQ backend. SIGTERM and Ctrl-C finish what runs; a second signal ends it at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Those of the tasks, and those of `popmq work` that it passes on."""
        parser.add_argument("--backend", default="default", help="Alias in TASKS. [default]")
        parser.add_argument("--queue", action="append", dest="queues", metavar="QUEUE", help="Only this; repeat it.")
        parser.add_argument("--concurrency", type=int, default=8, help="Tasks of a queue at a time, in threads. [8]")
        parser.add_argument("--processes", type=int, default=1, help="Number of processes. [1]")
        parser.add_argument("--drain", metavar="DURATION", help="Wait at most so long for what runs. [no limit]")
        parser.add_argument("--health-port", type=int, metavar="PORT", help="Answer probes: /healthz and /readyz.")
        parser.add_argument("--log-format", choices=("text", "json"), default="text")
        parser.add_argument("--reload", action="store_true", help="Start again when a Python file changes.")

    def handle(self, *_: Any, **given: Any) -> None:
        """Does not return. Raises CommandError for settings that no worker could run with."""
        if importlib.util.find_spec("popmq_cli") is None or importlib.util.find_spec("click") is None:
            raise CommandError('popmq_worker needs: pip install "popmq[django]"')
        ours = {name: given[name] for name in ("queues", "concurrency")}
        try:
            worker_of(given["backend"], **ours)
        except (ImproperlyConfigured, ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        words = ["work", TARGET, "--processes", str(given["processes"]), "--log-format", given["log_format"]]
        for name in ("drain", "health_port"):
            if given[name] is not None:
                words += [f"--{name.replace('_', '-')}", str(given[name])]
        if given["reload"]:
            words.append("--reload")
        path = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, GIVEN: json.dumps({"alias": given["backend"], **ours}), "PYTHONPATH": path}
        sys.stdout.flush()
        program = "from popmq_cli.main import main; main()"
        os.execve(sys.executable, [sys.executable, "-c", program, *words], environment)
