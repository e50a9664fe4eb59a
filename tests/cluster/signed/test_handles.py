"""Handles, transaction ids and recall handles: they say all, to any gateway with the secret and to nobody else."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages.recall import BrokerRecallHandle
from popmq_remoting.pops.handles import PopHandle
from popmq_remoting.requests.sending import HalfPlace
from popmq_server.cluster.signed import recalls, transactions
from popmq_server.cluster.signed.handles import MADE_MIN, Handles, SignedDelivery
from popmq_server.cluster.signed.secrets import Secrets, random_secrets
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.errors import Refused
from tests.engine.work import calls

SECRET = b"the secret that all gateways share"
names = st.text("abcXYZ019_-%|", min_size=1, max_size=127)
groups = st.text("abcXYZ019_-%|", min_size=1, max_size=120)
offsets = st.integers(0, (1 << 62) - 1)
pop_handles = st.builds(
    PopHandle,
    st.just(0),
    st.integers(0, 1 << 45),
    st.integers(0, 7 * 24 * 3_600_000),
    st.one_of(st.integers(0, 8), st.just(999)),
    st.sampled_from("012"),
    st.text("abc019-_.", min_size=1, max_size=80),
    st.integers(0, 1023),
    offsets,
).flatmap(
    lambda handle: st.integers(max(0, handle.queue_offset - (1 << 20)), handle.queue_offset).map(
        lambda start: handle._replace(ck_start=start)
    )
)
LEASE = PopHandle(40, 1_000_000, 60_000, 3, "0", "broker-a", 2, 42)


def handles() -> Handles:
    """Of another gateway with the same secret each time."""
    return Handles(Secrets([SECRET]))


@given(names, groups, pop_handles)
def test_another_gateway_reads_a_handle_with_all_that_an_ack_needs(topic: str, group: str, handle: PopHandle) -> None:
    delivery = SignedDelivery(topic, handle)
    assert handles().read(handles().write(delivery, group).decode(), group) == delivery


@given(names, pop_handles)
def test_a_handle_has_at_most_150_characters_with_names_of_70_and_334_with_the_longest(
    topic: str, handle: PopHandle
) -> None:
    size = len(handles().write(SignedDelivery(topic, handle), "g"))
    assert size <= (150 if len(topic) + len(handle.broker) <= 70 else 334)


def refusal(text: str, group: str = "g", read_by: Handles | None = None) -> Refused:
    with pytest.raises(Refused) as refused:
        (read_by or handles()).read(text, group, "handles[3]")
    return refused.value


def test_a_handle_that_is_damaged_of_another_group_or_of_another_secret_is_invalid() -> None:
    text = handles().write(SignedDelivery("orders", LEASE), "g").decode()
    for refused in (
        refusal(text[:-1] + ("A" if text[-5] != "A" else "B") * 5),
        refusal(text, "other"),
        refusal(text, read_by=Handles(random_secrets())),
        refusal(""),
        refusal("AAAA"),
        refusal("not one ü"),
        refusal(LEASE.text()),
    ):
        assert (refused.code, refused.field) == ("INVALID_HANDLE", "handles[3]")
        assert "as Pop returned it" in refused.action
    assert "another group" in refusal(text, "other").message
    assert "another secret" in refusal(text, read_by=Handles(random_secrets())).message


def test_a_gateway_finds_the_handles_that_it_made_and_lets_only_their_group_use_them() -> None:
    gateway, delivery = handles(), SignedDelivery("orders", LEASE)
    texts = [gateway.write(delivery._replace(attempt=number), "g").decode() for number in range(1, 100)]
    assert gateway.read(texts[41], "g") == delivery._replace(attempt=42)
    assert calls(lambda: gateway.read(texts[0], "g")) * 3 < calls(lambda: handles().read(texts[0], "g"))
    assert "another group" in refusal(texts[0], "other", gateway).message


def test_an_attempt_that_a_handle_cannot_name_is_the_same_at_every_gateway() -> None:
    gateway = handles()
    text = gateway.write(SignedDelivery("orders", LEASE, 1_000), "g").decode()
    assert gateway.read(text, "g").attempt == handles().read(text, "g").attempt == 255


def test_a_gateway_forgets_the_handles_that_it_made_with_secrets_that_are_replaced() -> None:
    secrets = Secrets([SECRET])
    gateway = Handles(secrets)
    text = gateway.write(SignedDelivery("orders", LEASE), "g").decode()
    secrets.replace(random_secrets())
    assert "another secret" in refusal(text, read_by=gateway).message


def test_a_gateway_remembers_some_thousand_handles_and_reads_older_ones_like_those_of_others() -> None:
    gateway = handles()
    first = gateway.write(SignedDelivery("orders", LEASE), "g").decode()
    for number in range(3 * MADE_MIN):
        gateway.write(SignedDelivery("orders", LEASE._replace(queue_offset=number, ck_start=number)), "g")
    assert len(gateway._made) + len(gateway._made_before) <= 2 * MADE_MIN
    assert gateway.read(first, "g") == SignedDelivery("orders", LEASE)


@dataclass
class BrokerClocks:
    """The clocks of brokers, by name."""

    now: dict[str, int]

    def __call__(self, broker: str) -> int:
        return self.now[broker]


def test_a_delivery_is_over_at_the_end_of_its_lease_by_the_clock_of_its_own_broker() -> None:
    texts = [
        handles().write(SignedDelivery("orders", LEASE._replace(broker=broker)), "g").decode() for broker in ("a", "b")
    ]
    clocks = BrokerClocks({"a": 1_059_999, "b": 1_060_000})
    first, second = handles().each(texts, "g", clocks)
    assert first == SignedDelivery("orders", LEASE._replace(broker="a"))
    assert isinstance(second, Refused)
    assert (second.code, second.field) == ("HANDLE_LAPSED", "handles[1]")


def test_only_its_broker_knows_when_an_ordered_delivery_is_over() -> None:
    ordered = SignedDelivery("orders", LEASE._replace(revive_queue=999))
    text = handles().write(ordered, "g").decode()
    assert handles().each([text], "g", BrokerClocks({"broker-a": 9_000_000})) == [ordered]


def test_a_bad_handle_among_good_ones_is_refused_alone_and_at_its_place() -> None:
    text = handles().write(SignedDelivery("orders", LEASE), "g").decode()
    good, bad, again = handles().each([text, "bad", text], "g", BrokerClocks({"broker-a": 1_000_000}))
    assert good == again
    assert isinstance(bad, Refused)
    assert (bad.code, bad.field) == ("INVALID_HANDLE", "handles[1]")


@pytest.mark.parametrize("change", [{"queue_id": 70_000}, {"pop_ms": -1}, {"invisible_ms": 1 << 33}, {"ck_start": 43}])
def test_a_handle_that_no_broker_gives_is_not_signed(change: dict[str, int]) -> None:
    with pytest.raises(BadFormat, match="no broker gives"):
        handles().write(SignedDelivery("orders", PopHandle(**{**LEASE._asdict(), **change})), "g")


@given(names, groups, names, st.text(min_size=1, max_size=30), st.text(max_size=30), offsets, offsets, st.booleans())
def test_another_gateway_reads_a_transaction_id_with_all_that_its_end_needs(
    topic: str, group: str, broker: str, message_id: str, other_id: str, offset: int, place: int, from_check: bool
) -> None:
    for transaction_id in (message_id, other_id or message_id):
        half = SignedHalf(broker, HalfPlace(topic, group, message_id, transaction_id, offset, place), from_check)
        assert transactions.read(Secrets([SECRET]), transactions.write(Secrets([SECRET]), half)) == half


def test_a_text_that_is_no_transaction_id_of_these_gateways_is_refused() -> None:
    secrets = Secrets([SECRET])
    half = SignedHalf("broker-a", HalfPlace("orders", "orders", "id-1", "id-1", 4, 5), False)
    handle = handles().write(SignedDelivery("orders", LEASE), "").decode()
    for text in (transactions.write(random_secrets(), half), handle, "", "bad", transactions.write(secrets, half)[1:]):
        with pytest.raises(Refused) as refused:
            transactions.read(secrets, text)
        assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "transaction_id")
        assert "as Send or the check returned it" in refused.value.action


def test_names_that_a_transaction_id_cannot_hold_are_not_signed() -> None:
    half = HalfPlace("orders", "orders", "x" * 256, "x", 4, 5)
    with pytest.raises(BadFormat):
        transactions.write(Secrets([SECRET]), SignedHalf("broker-a", half, False))


def test_a_recall_handle_is_the_brokers_own_and_names_its_broker() -> None:
    handle = BrokerRecallHandle("orders", "broker-a", 1_700_000_000_000, "id-1")
    assert recalls.read(handle.text(), "orders") == handle


@pytest.mark.parametrize("text", ["", "bad", BrokerRecallHandle("other", "broker-a", 1, "id-1").text()])
def test_a_recall_handle_that_is_none_or_of_another_topic_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        recalls.read(text, "orders")
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "recall_handle")
