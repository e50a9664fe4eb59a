"""Tasks of Django over a broker: what is enqueued runs, and its result tells what became of it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from popmq.testing import Broker, FakeClock, Handled

Work = Callable[..., list[Handled]]


def test_a_task_runs_and_its_result_has_the_value(tasks: Any, work: Work) -> None:
    result = tasks.add.enqueue(1, 2)
    found = tasks.add.get_result(result.id)
    assert (found, found.status, found.is_finished, found.attempts) == (result, "READY", False, 0)
    assert [each.outcome for each in work()] == ["acked"]
    result.refresh()
    assert (result.status, result.return_value, result.attempts, result.errors) == ("SUCCESSFUL", 3, 1, [])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at


async def test_a_coroutine_runs_with_keywords_in_the_queue_of_its_task(tasks: Any, work: Work) -> None:
    result = await tasks.write_to.aenqueue("Ann", subject="welcome")
    assert work(queues=["default"]) == []
    (handled,) = work(queues=["mails"])
    await result.arefresh()
    assert (handled.delivery.topic, result.return_value) == ("django-mails", "welcome, Ann")
    found = await tasks.write_to.aget_result(result.id)
    assert (found.task.priority, found.task.queue_name, found.kwargs) == (5, "mails", {"subject": "welcome"})


def test_higher_priorities_run_first_and_the_lowest_still_runs(tasks: Any, work: Work) -> None:
    for priority in (-100, -1, 0, 1, 100):
        tasks.paid.using(priority=priority).enqueue(priority)
    ran = [handled.delivery.json()["args"][0] for handled in work(queues=["default"], concurrency=1)]
    assert ran == [100, 1, 0, -1, -100]


def test_a_task_does_not_run_before_its_time(
    popmq_broker: Broker, popmq_clock: FakeClock, tasks: Any, work: Work
) -> None:
    due = datetime.fromtimestamp(popmq_clock.now() + 3600.000_123, UTC)
    result = tasks.add.using(run_after=due).enqueue(1, 2)
    found = tasks.add.get_result(result.id)
    assert (work(), found, found.status, found.task.run_after) == ([], result, "READY", due)
    popmq_clock.advance(3_600_001)
    assert [each.outcome for each in work()] == ["acked"]
    result.refresh()
    assert result.return_value == 3


def test_a_task_that_raises_has_failed_and_is_a_dead_letter(popmq_broker: Broker, tasks: Any, work: Work) -> None:
    result = tasks.charge.enqueue(7)
    assert [each.outcome for each in work()] == ["rejected"]
    result.refresh()
    assert (result.status, result.is_finished, result.attempts, len(result.errors)) == ("FAILED", True, 1, 1)
    error = result.errors[0]
    assert error.exception_class is tasks.CardRefused
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("tests.integrations.django.shop.tasks.CardRefused: order 7\nwas refused\n")
    assert "popmq_integrations" not in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert popmq_broker.client().dead_letters.redrive("django").redriven == 1
    result.refresh()
    assert (result.status, len(result.errors)) == ("READY", 1)


@pytest.mark.parametrize(("name", "arguments", "class_path", "text"), [
    ("leave", (), "builtins.SystemExit", "SystemExit: left"),
    ("larger_than_a_result", (300_000,), "builtins.ValueError", "262,144 are kept"),
])  # fmt: skip
def test_what_ends_a_task_otherwise_is_its_error_and_not_the_end_of_the_worker(
    tasks: Any, work: Work, name: str, arguments: tuple[Any, ...], class_path: str, text: str
) -> None:
    result = getattr(tasks, name).enqueue(*arguments)
    assert [each.outcome for each in work()] == ["rejected"]
    result.refresh()
    assert (result.status, result.errors[0].exception_class_path) == ("FAILED", class_path)
    assert text in result.errors[0].traceback


def test_with_more_attempts_a_task_that_raises_is_tried_again_and_knows_what_happened(
    popmq_clock: FakeClock, tasks_of: Callable[..., Any], work: Work
) -> None:
    tasks = tasks_of(max_attempts=3)
    result = tasks.on_the_second_attempt.enqueue()
    assert [each.outcome for each in work()] == ["released"]
    result.refresh()
    assert (result.status, len(result.errors), result.attempts) == ("READY", 1, 1)
    popmq_clock.advance(10_001)
    assert [each.outcome for each in work()] == ["acked"]
    result.refresh()
    assert (result.status, result.return_value[:2], result.attempts) == ("SUCCESSFUL", [2, 1], 2)
    assert [each.exception_class for each in result.errors] == [tasks.CardRefused]


def test_a_worker_that_dies_does_not_use_up_the_only_attempt(
    popmq_broker: Broker, popmq_clock: FakeClock, tasks: Any, work: Work
) -> None:
    result = tasks.add.enqueue(1, 2)
    assert len(popmq_broker.client(client_id="dead").pop("django-default", "django")) == 1
    result.refresh()
    assert (result.status, result.worker_ids) == ("RUNNING", ["dead"])
    popmq_clock.advance(60_001)
    assert [each.outcome for each in work()] == ["acked"]
    result.refresh()
    assert (result.status, result.attempts, result.worker_ids[0]) == ("SUCCESSFUL", 2, "dead")


def test_of_several_attempts_too_a_worker_that_dies_uses_up_none_and_a_redrive_begins_anew(
    popmq_broker: Broker, popmq_clock: FakeClock, tasks_of: Callable[..., Any], work: Work
) -> None:
    tasks, client = tasks_of(max_attempts=2), popmq_broker.client()
    result = tasks.charge.enqueue(7)
    assert len(client.pop("django-default", "django")) == 1
    popmq_clock.advance(60_001)
    assert [each.outcome for each in work()] == ["released"]
    popmq_clock.advance(60_001)
    assert [each.outcome for each in work()] == ["rejected"]
    result.refresh()
    assert (result.status, len(result.errors), result.attempts) == ("FAILED", 2, 3)
    client.dead_letters.redrive("django")
    assert [each.outcome for each in work()] == ["released"]
    popmq_clock.advance(60_001)
    assert [each.outcome for each in work()] == ["rejected"]


@pytest.mark.parametrize(
    ("task", "outcome", "status"), [("add", "acked", "SUCCESSFUL"), ("charge", "rejected", "FAILED")]
)
def test_a_receiver_of_a_signal_that_raises_changes_nothing(
    tasks: Any, work: Work, task: str, outcome: str, status: str
) -> None:
    from popmq_integrations.django.seam import task_finished, task_started

    heard = []

    def receiver(signal: Any, **_: Any) -> None:
        heard.append(signal)
        raise LookupError

    for signal in (task_started, task_finished):
        signal.connect(receiver)
    try:
        result = getattr(tasks, task).enqueue(*([1, 2] if task == "add" else [7]))
        assert [each.outcome for each in work()] == [outcome]
    finally:
        for signal in (task_started, task_finished):
            signal.disconnect(receiver)
    assert heard == [task_started, task_finished]
    result.refresh()
    assert (result.status, result.attempts) == (status, 1)


def test_a_task_that_this_code_does_not_have_waits_for_one_that_has_it(
    popmq_broker: Broker, tasks: Any, work: Work
) -> None:
    tasks.add.enqueue(1, 2)
    send = popmq_broker.client().send
    send("django-default", '{"task": "shop.gone", "args": [], "kwargs": {}, "run_after": null}')
    send("django-default", "no task")
    assert sorted(each.outcome for each in work()) == ["acked", "rejected", "released"]


def test_a_result_is_kept_for_as_long_as_the_options_say(
    popmq_clock: FakeClock, tasks_of: Callable[..., Any], work: Work
) -> None:
    from popmq_integrations.django.seam import TaskResultDoesNotExist

    tasks = tasks_of(results_keep="2m")
    result = tasks.add.enqueue(1, 2)
    work()
    popmq_clock.advance(119_000)
    result.refresh()
    popmq_clock.advance(2_000)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_without_time_zones_times_are_naive(popmq_broker: Broker, tasks_of: Callable[..., Any], work: Work) -> None:
    from django.test import override_settings
    from django.utils.timezone import make_aware

    with override_settings(USE_TZ=False):
        tasks = tasks_of()
        result, later = tasks.add.enqueue(1, 2), datetime.now() + timedelta(days=1)
        waiting = tasks.add.using(run_after=later).enqueue(1, 2)
        assert tasks.add.get_result(waiting.id) == waiting
        (delayed,) = popmq_broker.client().messages.list_delayed("django-default").messages
        assert abs(delayed.due_ms - make_aware(later).timestamp() * 1000) <= 1
        work()
        result.refresh()
        assert (result.return_value, result.started_at.tzinfo, result.enqueued_at.tzinfo) == (3, None, None)
