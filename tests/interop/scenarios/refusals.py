"""What the server refuses, as the client shows it."""

from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, refusal, send

#: What these raise when they cannot start, as producers and as consumers, without a code.
START_FAILED = {
    "python": ("Exception", "Exception"),
    "node": ("Error", "Error"),
    "go": ("*fmt.wrapError", "*errors.errorString"),
}


@scenario(
    {"producer": 40402, "consumer": 40402},
    but={client: {"producer": kinds[0], "consumer": kinds[1]} for client, kinds in START_FAILED.items()},
)
def unknown_topic(world: World) -> Outcome:
    """Topics are made by operators: a name that nobody made is refused, at the start or at the first use.

    Some clients keep the code to themselves when they cannot start.
    """
    driver, group = world.start(), world.group()

    def publish() -> None:
        topic = world.name("nowhere")
        send(driver, world.producer(driver, topic), topic, "lost")

    def consume() -> None:
        consumer = world.simple(driver, world.name("nowhere"), group)
        driver.call("receive", name=consumer, max=1, invisible_ms=10_000)

    return {"producer": refusal(publish), "consumer": refusal(consume)}


@scenario({"code": 40403})
def unknown_group(world: World) -> Outcome:
    """Groups too."""
    driver, topic = world.start(), world.topic()

    def consume() -> None:
        consumer = world.simple(driver, topic, world.name("nobody"))
        driver.call("receive", name=consumer, max=1, invisible_ms=10_000)

    return {"code": refusal(consume)}


@scenario({"fifo to a normal topic": "refused", "normal to a fifo topic": "refused"})
def wrong_type(world: World) -> Outcome:
    """A message that is not of its topic's type is refused, by the client itself or by the server."""
    driver, normal, fifo = world.start(), world.topic(), world.topic("FIFO")
    producer = world.producer(driver, normal)
    other = world.producer(driver, fifo)
    ordered = refusal(lambda: send(driver, producer, normal, "x", group="g"))
    plain = refusal(lambda: send(driver, other, fifo, "x"))
    return {
        "fifo to a normal topic": "accepted" if ordered == "none" else "refused",
        "normal to a fifo topic": "accepted" if plain == "none" else "refused",
    }


@scenario({"code": 40007})
def reserved_property(world: World) -> Outcome:
    """Names of properties that the protocol keeps for itself."""
    driver, topic = world.start(), world.topic()
    producer = world.producer(driver, topic)
    return {"code": refusal(lambda: send(driver, producer, topic, "x", properties={"KEYS": "k"}))}


@scenario({"code": 40011})
def long_lease(world: World) -> Outcome:
    """A lease of more than 12 hours."""
    driver, topic, group = world.start(), world.topic(), world.group()
    consumer = world.simple(driver, topic, group)
    hours_13 = 13 * 3_600_000
    return {"code": refusal(lambda: driver.call("receive", name=consumer, max=1, invisible_ms=hours_13))}
