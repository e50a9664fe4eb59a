"""Tasks of the shop."""

from popmq_integrations.django.seam import task


class CardRefused(Exception):
    """Of a bank."""


@task()
def add(first, second):  # type: ignore[no-untyped-def]
    return first + second


@task(queue_name="mails", priority=5)
async def write_to(name, *, subject="hello"):  # type: ignore[no-untyped-def]
    return f"{subject}, {name}"


@task()
def charge(number):  # type: ignore[no-untyped-def]
    raise CardRefused(f"order {number}\nwas refused")


@task(takes_context=True)
def on_the_second_attempt(context):  # type: ignore[no-untyped-def]
    if context.attempt < 2:
        raise CardRefused("not yet")
    return [context.attempt, len(context.task_result.errors), len(set(context.task_result.worker_ids))]


@task()
def larger_than_a_result(size):  # type: ignore[no-untyped-def]
    return "x" * size


@task()
def leave():  # type: ignore[no-untyped-def]
    raise SystemExit("left")


@task()
def paid(number):  # type: ignore[no-untyped-def]
    """Of an order: each campaign compares these with the rows."""
    return number
