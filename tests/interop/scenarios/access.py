"""Connections that need more than an address: TLS, access keys."""

from tests.interop.harness import Line
from tests.interop.scenarios import OPERATOR, Outcome, scenario
from tests.interop.world import World, listened, receive, refusal, send, texts

#: Clients that speak TLS unless they are set not to, and check no certificate.
TLS_BY_DEFAULT = {"java"}
#: `seller` may send to every topic and receive nothing.
KEYS = f"""
operator = {{ secret = "{OPERATOR[1]}", allow = ["*"] }}
seller = {{ secret = "sellers-secret", allow = ["send:*"] }}
"""


@scenario({"came": ["hello"], "heard": ["again"]}, needs=("tls", "push"), wants=("tls",))
def tls(world: World) -> Outcome:
    """Who has TLS by default connects with the defaults; others are given the development certificate as their root."""
    endpoint, certificate = world.target.tls
    driver = world.start(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(certificate))
    topic, group, listeners = world.topic(), world.group(), world.group()
    how: Line = {"endpoint": endpoint, "tls": "default" if world.client in TLS_BY_DEFAULT else True}
    producer = world.producer(driver, topic, **how)
    consumer = world.simple(driver, topic, group, **how)
    send(driver, producer, topic, "hello")
    came = receive(driver, consumer)
    pushed = world.push(driver, topic, listeners, **how)
    send(driver, producer, topic, "again")
    heard = listened(driver, pushed, 2)
    return {"came": texts(came), "heard": texts(e["message"] for e in heard if e["message"]["body"] != came[0]["body"])}


@scenario(
    {
        "sent": "accepted",
        "came": ["hello"],
        "no key": "refused",
        "a wrong secret": "refused",
        "no permission": "refused",
    },
    needs=("access_key",),
    wants=("access_keys",),
    own=True,
    keys=KEYS,
)
def access_keys(world: World) -> Outcome:
    """A signature is asked for; who may send may not receive."""
    driver, topic, group = world.start(), world.topic(), world.group()
    seller: Line = {"access_key": "seller", "secret_key": "sellers-secret"}
    operator: Line = {"access_key": OPERATOR[0], "secret_key": OPERATOR[1]}

    def publish(body: str, **who: str) -> str:
        answer = refusal(lambda: send(driver, world.producer(driver, topic, **who), topic, body))
        return "accepted" if answer == "none" else "refused"

    def take() -> None:
        receive(driver, world.simple(driver, topic, group, **seller), within=5)

    sent = publish("hello", **seller)
    refused = refusal(take)
    return {
        "sent": sent,
        "came": texts(receive(driver, world.simple(driver, topic, group, **operator))),
        "no key": publish("unsigned"),
        "a wrong secret": publish("forged", **{**seller, "secret_key": "guessed"}),
        "no permission": "accepted" if refused == "none" else "refused",
    }
