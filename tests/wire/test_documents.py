"""docs/protocol.md is true: its examples run, and its tables are those of the contract and of the code."""

import re

import pytest

from harness.broker_process import ROOT
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import options
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import sessions
from popmq_server.contract.promises import PROMISES
from popmq_server.embedded.loop import heartbeats, long_poll
from popmq_server.embedded.rules.delivery import lease, token_pop
from popmq_server.embedded.rules.sending import dedup, stages, transaction
from popmq_server.embedded.state import owners
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import RETRYABLE
from popmq_server.protocols import entries, server, validation
from popmq_server.protocols.access import request_size
from popmq_server.protocols.native import admin, pulling, requests
from popmq_server.values import limits, message, records
from popmq_server.values.filters.errors import TEXT_BYTES_MAX
from popmq_server.values.filters.parts import LIST_MAX
from popmq_server.values.filters.sql92 import DEPTH_MAX, WORDS_MAX
from tests.wire.contract import PAGE, documented, errors_of_contract, errors_of_page, table

EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def count(number: int) -> str:
    return f"{number:,}"


def size(number: int) -> str:
    return f"{number >> 20} MiB" if number >> 20 else f"{number >> 10} KiB"


SECONDS = (validation.INVISIBLE_MS_MIN // 1_000, validation.INVISIBLE_MS_MAX // 3_600_000)
LIMITS = {
    "name of a topic, of a group": f"{message.TOPIC_NAME_MAX}, {message.GROUP_NAME_MAX} characters",
    "messages in a Send, in a Stage": f"1–{count(validation.ENTRIES_MAX)}, {size(validation.SEND_BYTES_MAX)} in all",
    "body": f"1 byte – {size(message.BODY_BYTES_MAX)}",
    "message id": f"{message.MESSAGE_ID_BYTES_MAX} bytes",
    "tag": f"{message.TAG_BYTES_MAX} bytes",
    "keys": f"{message.KEYS_MAX} of 1–{message.KEY_BYTES_MAX} bytes",
    "properties": f"{message.PROPERTIES_MAX}, names of 1–{message.KEY_BYTES_MAX} bytes, "
    f"{size(message.PROPERTIES_BYTES_MAX)} in all",
    "producer id, attempt id, owner": f"{requests.PRODUCER_ID_BYTES_MAX} bytes",
    "client id, sink, stage id": f"{max(validation.CLIENT_ID_BYTES_MAX, requests.SINK_BYTES_MAX)} bytes",
    "messages in a Pop": f"1–{count(validation.ENTRIES_MAX)}, default {requests.POP_MESSAGES}",
    "`lite_topics` of a Pop": f"1–{count(requests.LITE_TOPICS_MAX)} names",
    "name of a lite topic": f"{message.LITE_TOPIC_BYTES_MAX} letters, digits",
    "bytes in a Pop": f"{size(requests.POP_BYTES_MAX)}, default {size(requests.POP_BYTES)}",
    "handles in an Ack, changes in a ChangeInvisibleTime, messages in a SendBack": f"1–{count(validation.ENTRIES_MAX)}",
    "a Settle": f"1–{count(validation.ENTRIES_MAX)} deliveries, at most {lease.MOVES_MAX} of them released or "
    f"{lease.MOVES_MAX // lease.MOVES['reject']} rejected",
    "a result, its content type; results in an Ack or a Settle; in a StoreResults": (
        f"{size(message.RESULT_BYTES_MAX)}, "
        f"{message.CONTENT_TYPE_BYTES_MAX} bytes; one for each handle; 1–{count(validation.ENTRIES_MAX)}; "
        f"{size(validation.SEND_BYTES_MAX)} in all"
    ),
    "message ids in a GetResults or ForgetResults; bytes in its answer": f"1–{count(validation.ENTRIES_MAX)}; "
    f"{size(requests.POP_BYTES_MAX)}, default {size(requests.POP_BYTES)}",
    "results are kept": f"{limits.KEEP_MS_MIN // 60_000} min – {limits.KEEP_MS_MAX // (365 * 86_400_000)} years",
    "queues in a Pop, UpdateOffsets, ResetOffsets, LockQueues": f"1–{count(pulling.QUEUES_MAX)}",
    "invisible time, lease of an owner": f"{SECONDS[0]} s – {SECONDS[1]} h",
    "filter": f"{size(TEXT_BYTES_MAX)}, {WORDS_MAX} words, {DEPTH_MAX} levels, {LIST_MAX} texts in a list",
    "wait": f"0–{requests.WAIT_MS_MAX // 1_000} s",
    "delay of a release": f"0–{SECONDS[1]} h",
    "snoozes of a message by a group": f"1–{count(limits.SNOOZES_LIMIT_MAX)}, default {count(records.SNOOZES_MAX)}",
    "reason of a release or reject": size(message.REASON_BYTES_MAX),
    "transactions in an EndTransaction, stages in a CommitBatch or DropStages": f"1–{count(validation.ENTRIES_MAX)}",
    "delay of a message": f"0–{entries.DELAY_MS_MAX // (365 * 86_400_000)} years",
    "ttl of a message": f"1 ms – {message.TTL_MS_MAX // (365 * 86_400_000)} years",
    "checks of a half message": f"{transaction.CHECKS_MAX}: after {transaction.FIRST_CHECK_MS // 1_000} s, "
    f"then every {transaction.CHECK_EVERY_MS // 1_000} s",
    "kept: the outcome of a transaction, an uncommitted stage, the last batch of a sink": (
        f"{transaction.DONE_KEEP_MS // 60_000} min, {stages.STAGE_KEEP_MS // 3_600_000} h, "
        f"{stages.BATCH_KEEP_MS // 86_400_000} days"
    ),
    "queues of a topic": f"1–{count(limits.QUEUES_MAX)}, default {limits.QUEUES_DEFAULT}",
    "lite topics of a topic": f"1–{count(limits.LITE_TOPICS_MAX)}, default {count(limits.LITE_TOPICS_DEFAULT)}",
    "an idle lite topic stays": f"{limits.LITE_TTL_MS_MIN // 60_000} min – "
    f"{limits.KEEP_MS_MAX // (365 * 86_400_000)} years, default {limits.LITE_TTL_MS_DEFAULT // 3_600_000} h",
    "retention": f"{limits.KEEP_MS_MIN // 60_000} min – {limits.KEEP_MS_MAX // (365 * 86_400_000)} years, "
    f"default {limits.KEEP_MS_DEFAULT // 3_600_000} h",
    "bytes that a topic keeps": f"from {size(limits.BYTES_MAX_MIN)}",
    "time in which message ids are unique": f"0–{limits.UNIQUE_IDS_MS_MAX // 3_600_000} h",
    "body that a quota allows": f"0–{size(message.BODY_BYTES_MAX)}",
    "priority": f"0–{count(message.PRIORITY_MAX)}",
    "attempts of a group": f"1–{count(requests.MAX_ATTEMPTS_MAX)}, default {limits.MAX_ATTEMPTS_DEFAULT}",
    "backoff table": f"1–{admin.DELAYS_MAX} delays",
    "share number": f"0–{count(limits.SHARE_NUMBER_MAX)}",
    "topics in a Heartbeat": count(validation.ENTRIES_MAX),
    "leased to a group in a queue, to an owner": f"{count(records.IN_FLIGHT_MAX)}, {count(token_pop.OWNED_MAX)}",
    "parked calls of a group on a topic, Pulls of a queue": count(long_poll.WAITERS_PER_KEY_MAX),
    "request numbers are remembered": f"{dedup.DEDUP_KEEP_MS // 60_000} min",
    "a session without a heartbeat, a lock of a queue": f"{heartbeats.SESSION_MS // 1_000} s, "
    f"{sessions.LOCK_MS // 1_000} s",
    "kept without a call: an owner, a subscription": f"{owners.OWNER_KEEP_MS // 86_400_000} days, "
    f"{limits.EXPIRY_MS_MIN // 3_600_000} h – {limits.EXPIRY_MS_MAX // (365 * 86_400_000)} years by the group "
    f"(default {records.SUBSCRIPTION_EXPIRY_MS // 86_400_000} days; 0 = kept)",
    "a request on the wire": f"{size(server.MESSAGE_BYTES)}, then the transport "
    f"refuses it; {size(request_size.BYTES_MAX)} if it has no bodies, reasons or stacks (CommitBatch, DropStages: "
    f"{size(request_size._LARGER['CommitBatchRequest'])}); "
    f"{count(request_size.ELEMENTS_MAX)} elements, counted above {size(request_size.FREE_BYTES)}",
}


@pytest.mark.promise("redelivery")
@pytest.mark.slow
def test_the_examples_run(broker: EmbeddedBroker) -> None:
    names: dict[str, object] = {}
    examples = EXAMPLE.findall(PAGE.read_text())
    assert len(examples) == 6
    for example in examples:
        exec(example.replace(f"{options.HOST}:{options.PORT}", broker.endpoint), names)
    names["channel"].close()  # type: ignore[attr-defined]


def test_every_code_stands_in_the_table_with_its_status() -> None:
    rows = [row for row in table("Errors") if row[0] != "Code"]
    assert {code: status for code, status, *_ in rows} == documented()
    assert {code for code, _, retry, _ in rows if retry == "yes"} == RETRYABLE
    assert all(len(row) == 4 and row[3] for row in rows)


def test_every_call_of_the_contract_stands_in_the_table_of_calls() -> None:
    services = pb.DESCRIPTOR.services_by_name
    assert set(errors_of_page()) == {method.name for name in ("Broker", "Admin") for method in services[name].methods}


@pytest.mark.parametrize("call", errors_of_page())
def test_the_page_names_every_error_that_the_contract_names(call: str) -> None:
    assert errors_of_contract()[call] <= errors_of_page()[call]


@pytest.mark.parametrize("what", LIMITS)
def test_a_limit_is_the_codes_limit(what: str) -> None:
    told = {row[0]: row[1] for row in table("Limits")}
    assert told[what].startswith(LIMITS[what])


def test_every_limit_of_the_page_is_compared() -> None:
    assert [row[0] for row in table("Limits") if row[0] != "What"] == list(LIMITS)


def test_the_page_of_capabilities_lists_each_with_what_to_use_instead_and_each_promise() -> None:
    lines = (ROOT / "docs" / "capabilities.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    capabilities = [f"| `{name}` | {each.what} | {each.instead} |" for name, each in CAPABILITIES.items()]
    assert rows == [*capabilities, *(f"| `{name}` | {what} |" for name, what in PROMISES.items())]
