"""A Pop whose bytes were read before is not read again; what such a memory keeps is bounded."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.protocols.native import native
from popmq_server.protocols.native.native import KnownPops


def asking(**fields: Any) -> bytes:
    return pb.PopRequest(topic="t", group="g", **fields).SerializeToString()


@pytest.fixture
def pops() -> KnownPops:
    return KnownPops()


def test_the_same_bytes_are_read_once_and_others_mean_something_else(pops: KnownPops) -> None:
    request, command = pops.read(asking(max_messages=7, wait_ms=50))
    again = pops.read(asking(max_messages=7, wait_ms=50))
    assert again[0] is request
    assert again[1] is command
    other = pops.read(asking(max_messages=8, wait_ms=50))
    assert (command.max_messages, other[1].max_messages) == (7, 8)
    assert command == native.read_pop(request)


@pytest.mark.parametrize("fields", [{"attempt_id": "a"}, {"client_id": "c", "queues": range(300)}])
def test_a_request_that_will_not_come_again_is_not_kept(pops: KnownPops, fields: dict[str, Any]) -> None:
    raw = asking(**fields)
    assert pops.read(raw)[0] is not pops.read(raw)[0]


def test_a_refused_request_is_refused_each_time(pops: KnownPops) -> None:
    for _ in range(2):
        with pytest.raises(Refused):
            pops.read(asking(wait_ms=1 << 31))


def test_the_number_of_requests_that_are_kept_is_bounded(pops: KnownPops) -> None:
    for count in range(3000):
        pops.read(asking(max_messages=1 + count))
    assert len(pops) <= KnownPops.MAX


def test_servers_of_one_process_keep_their_own_requests(pops: KnownPops) -> None:
    raw = asking()
    pops.read(raw)
    assert len(KnownPops()) == 0
    assert KnownPops().read(raw)[0] is not pops.read(raw)[0]
