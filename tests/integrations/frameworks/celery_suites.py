"""What of kombu's and Celery's own tests runs against a broker, and what is left out, with the reason."""

from pathlib import Path

from tests.integrations.frameworks.suites import Suite

KOMBU_LEFT_OUT = {
    "test_publish_requeue_consume": (
        "expects that a requeued message keeps its priority. A requeue is a retry here: one Pop in five looks at "
        "retries first, the others last"
    ),
}
CELERY_LEFT_OUT = {
    "test_generator": "expects that tasks of a chord's header are sent while the header is still read: with Redis only",
    "test_add_to_chord": "a task adds to the chord that it is in: Celery supports it with Redis only",
    "test_add_chord_to_chord": "as test_add_to_chord",
    "test_chord_on_error": "reads what the Redis backend keeps of a chord",
    "test_trace_log_arguments": (
        "expects the worker's log lines of level INFO, which pytest does not record here: the same assertions fail "
        "with Redis as broker and backend"
    ),
    "(test_error_propagates_from_chord and not test_error_propagates_from_chord2)": (
        "Celery's issue 6437: a group that is joined natively does not see that a task before it failed; with Redis "
        "the test is marked as failing, too"
    ),
    "cancels_subscription": "reads to which channels of Redis a result backend of Redis is subscribed",
    "test_scheduled": "expects that a worker holds tasks with an ETA: the broker holds them until they are due",
}
#: Tests of what not every backend can, such as chords, are skipped unless the backend is Redis.
CLAIM = r"result_backend\.startswith\(['\"]redis['\"]\)"
#: As plugins: the fixtures of Celery, and the URL popmq:// for kombu.
PLUGINS = ("-p", "celery.contrib.pytest", "-p", "popmq_integrations.celery")


def suites(redis_port: int) -> list[Suite]:
    """`redis_port`: of the Redis that Celery's tests note things in; it is not the broker."""
    tests = ("test_tasks", "test_canvas", "test_inspect", "test_group_chains", "test_security", "test_loader")
    return [
        Suite(
            "kombu",
            "kombu: transports",
            ("-o", "python_classes=Test*", "t/integration/test_popmq.py"),
            KOMBU_LEFT_OUT,
            {"t/integration/test_popmq.py": Path(__file__).with_name("kombu_transport.py")},
        ),
        Suite(
            "celery",
            "Celery: integration",
            (*PLUGINS, *(f"t/integration/{name}.py" for name in tests)),
            CELERY_LEFT_OUT,
            replaced={CLAIM: "result_backend.startswith(('redis', 'popmq'))"},
            environment={"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(redis_port)},
        ),
    ]
