"""What a proxy answers in place of the broker, and access keys that no header can carry: no bugs of the broker."""

import pytest

import popmq
from popmq import errors
from popmq._transport.rpc_errors import read_rpc_error
from popmq_http2 import Code
from popmq_http2.client.call import CallFailed, Status


@pytest.mark.parametrize("said", ["the server answers with HTTP status {}", "Received http2 header with status: {}"])
@pytest.mark.parametrize(
    ("http", "kind", "cure"),
    [
        (301, errors.Unavailable, "let the proxy pass gRPC"),
        (400, errors.BadRequest, "let the proxy pass gRPC"),
        (401, errors.Unauthenticated, "let the proxy pass gRPC"),
        (403, errors.PermissionDenied, "let the proxy pass gRPC"),
        (404, errors.Unavailable, "let the proxy pass gRPC"),
        (413, errors.BadRequest, "client_max_body_size"),
        (429, errors.Busy, "try again later"),
        (502, errors.Unavailable, "behind the proxy"),
    ],
)
def test_an_answer_of_a_proxy_has_its_own_error_on_both_transports(
    said: str, http: int, kind: type[errors.PopMQError], cure: str
) -> None:
    error = read_rpc_error(CallFailed(Status(Code.UNKNOWN, said.format(http))), "a:1", "Broker.Send")
    assert type(error) is kind
    assert cure in error.action
    assert f"HTTP status {http}" in str(error)


def test_an_answer_without_a_status_is_no_bug_of_the_broker() -> None:
    error = read_rpc_error(CallFailed(Status(Code.UNKNOWN, "no status")), "a:1", "Broker.Send")
    assert type(error) is errors.Unavailable


@pytest.mark.parametrize("name", ["ops\n", "b\u00fcro", "a b", "a,b"])
def test_an_access_key_that_no_header_can_carry_is_refused_at_once(name: str) -> None:
    with pytest.raises(errors.InvalidField, match="access_key") as refused:
        popmq.Client(access_key=name, secret="x" * 20)
    assert refused.value.field == "access_key"
