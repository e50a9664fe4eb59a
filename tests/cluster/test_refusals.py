"""RocketMQ's answers as refusals of the contract, and the table of the documentation."""

import re

import pytest

from popmq_proto.v1 import popmq_pb2 as v1
from popmq_remoting.codes import ResponseCode
from popmq_remoting.errors import (
    BadFormat,
    BrokerRefused,
    ConnectionLost,
    DeadlineOver,
    RemotingError,
    TooBusy,
    Unreachable,
)
from popmq_server.cluster.operating.judging import RULES
from popmq_server.cluster.refusals import ANSWERS, BY_REMARK, NAME_SERVERS, Asked, refusal
from popmq_server.errors import Refused
from scripts import cluster_tables

ASKED = Asked("broker-a", "shop.orders", "bill", "messages[0].body")


def refused(code: int, remark: str = "", asked: Asked = ASKED) -> Refused:
    return refusal(BrokerRefused(code, remark), asked)


@pytest.mark.parametrize(
    "error", [DeadlineOver("late", False), Unreachable("away"), TooBusy("busy", 5), BadFormat("HTTP")]
)
def test_a_refusal_names_the_cluster_where_no_broker_was_asked(error: RemotingError) -> None:
    shown = refusal(error, Asked("", "shop.orders"))
    assert shown.message.startswith("the cluster: ")
    assert "broker " not in f"{shown.message} {shown.action}"


def test_the_pages_have_the_tables_that_gateways_go_by() -> None:
    pages = cluster_tables.written()
    assert {path: path.read_text() for path in pages} == pages, "run python scripts/cluster_tables.py"
    codes, cluster = pages.values()
    assert len(re.findall(r"^\| -?\d+ \| [A-Z_]+ \|", codes, re.MULTILINE)) == len(ANSWERS)
    assert len(re.findall(r"^\| -?\d+ \| `", codes, re.MULTILINE)) == len(BY_REMARK)
    assert [rule.setting for rule in RULES if f"| `{rule.setting}`" not in cluster] == []


def test_each_code_that_the_client_of_brokers_knows_has_a_row_and_each_row_a_code_of_the_contract() -> None:
    assert {int(code) for code in ResponseCode} <= ANSWERS.keys()
    codes = {answer.code for answer in ANSWERS.values()} | {rule.code for rule in BY_REMARK}
    assert codes - {""} <= {*v1.Code.keys()}


@pytest.mark.parametrize("number", [*ANSWERS, 12345])
def test_no_answer_of_a_broker_is_the_client_s_lack_of_a_right_and_each_says_what_to_do(number: int) -> None:
    found = refused(number, "some text")
    assert found.code not in {"PERMISSION_DENIED", "UNAUTHENTICATED", "INTERNAL"}
    assert found.action
    assert "{" not in found.action
    assert found.retryable == (found.retry_after_ms > 0 or found.code == "LITE_TOPIC_QUOTA")


def test_a_right_that_the_gateway_lacks_is_mended_by_the_operator_at_the_broker() -> None:
    found = refused(16, "User gateway has no permission to access Topic")
    assert (found.code, found.retryable) == ("UNAVAILABLE", True)
    assert "--broker-key" in found.action
    assert "broker-a" in found.action


@pytest.mark.parametrize(("used", "code"), [("0.96", "STORAGE_FULL"), ("0.23", "UNAVAILABLE")])
def test_a_disk_is_full_only_if_the_broker_says_how_full(used: str, code: str) -> None:
    remark = f"one of these: the broker's disk is full [CL: {used} CQ: 0.10 INDEX: 0.10], messages are put to the slave"
    assert refused(14, remark).code == code
    assert refused(14, "the broker's disk is full").code == "STORAGE_FULL"


def test_what_a_user_may_change_is_told_to_the_user() -> None:
    assert refused(17).action == "popmq topic create shop.orders"
    assert refused(26).action.startswith("popmq group create bill; with the settings that it has")
    assert refused(16, "the topic[shop%orders] sending message is forbidden").code == "FORBIDDEN"
    assert refused(16, "subscription group no permission, bill").code == "FORBIDDEN"
    assert (refused(29, "bad").code, refused(29, "bad").field) == ("INVALID_FIELD", "messages[0].body")


@pytest.mark.parametrize(
    ("number", "remark", "code", "names"),
    [
        (
            14,
            "service not available now. It may be caused by: the broker's DISK is full",
            "STORAGE_FULL",
            "fileReservedTime",
        ),
        (14, "the broker is stopping", "UNAVAILABLE", "log of broker broker-a"),
        (1, "the number of in-sync replicas is too small", "UNAVAILABLE", "inSyncReplicas"),
        (1, "timer message is under flow control", "BUSY", "timerCongestNumEachSlot"),
        (1, "AclException: check signature failed", "UNAVAILABLE", "--broker-key"),
        (16, "check signature failed.", "UNAVAILABLE", "secret (--broker-key)"),
        (16, "recall failed, operation is forbidden", "UNSUPPORTED", "recallMessageEnable"),
        (11, "", "UNAVAILABLE", "may be stored"),
    ],
)
def test_the_remark_decides_where_one_code_has_several_meanings(
    number: int, remark: str, code: str, names: str
) -> None:
    found = refused(number, remark)
    assert (found.code, names in found.action) == (code, True)


def test_a_message_names_broker_code_and_a_remark_of_bounded_length() -> None:
    message = refused(14, "a\nb" + "x" * 10_000).message
    assert message.startswith("broker broker-a answered 14 (SERVICE_NOT_AVAILABLE): a b")
    assert len(message) < 300


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (TooBusy("too many requests", 350), "BUSY", "retry with backoff"),
        (Unreachable("no connection"), "UNAVAILABLE", "why there is no answer from broker broker-a"),
        (ConnectionLost("cut"), "UNAVAILABLE", "may have been done"),
        (DeadlineOver("late", maybe_done=True), "UNAVAILABLE", "may have been done"),
        (BadFormat("no frame"), "UNAVAILABLE", "what listens at the address of broker broker-a"),
    ],
)
def test_an_error_on_the_way_says_whether_the_broker_may_have_done_it(
    error: RemotingError, code: str, says: str
) -> None:
    found = refusal(error, ASKED)
    assert (found.code, says in found.action, found.retryable) == (code, True, True)
    assert found.retry_after_ms == (350 if isinstance(error, TooBusy) else 200)


def test_name_servers_that_do_not_answer_are_called_no_broker() -> None:
    found = refusal(Unreachable("no connection"), Asked(NAME_SERVERS))
    assert found.message == "the name servers: no connection"
    assert "why there is no answer from the name servers" in found.action
