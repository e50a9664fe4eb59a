"""Calls with an access key, signed as the RocketMQ 5 clients do it or proved; and the file of the keys of tests."""

import contextlib
import hashlib
import hmac
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import Refused
from popmq_server.protocols.access.known_keys import Keys
from tests.wire.stubs import CALL_S, OPTIONS, Stubs

DATE_TIME = "20260101T120000Z"
#: A key for each kind of right, and one that allows nothing; every secret follows from `secret_of`.
KEYS = {
    "root": ["*"],
    "operator": ["admin"],
    "sender": ["send:orders", "send:later", "send:%RESULT%billing", "receive:%RESULT%billing/callers"],
    "reader": ["receive:orders/billing", "receive:feed/readers"],
    "other": ["send:elsewhere*", "receive:elsewhere*/audit*", "receive:orders/audit", "receive:feed/audit"],
    "nothing": [],
}


def secret_of(name: str) -> str:
    return f"the secret of {name}"


def write_keys(path: Path, keys: dict[str, list[str]], secrets: dict[str, str] | None = None) -> None:
    """Replaces the file as a careful operator does; JSON's texts and lists are TOML's."""
    draft = path.with_suffix(".new")
    draft.touch(0o600)
    tables = (
        f"[{name}]\nsecret = {json.dumps((secrets or {}).get(name, secret_of(name)))}\nallow = {json.dumps(allow)}\n"
        for name, allow in keys.items()
    )
    draft.write_text("".join(tables))
    draft.replace(path)


def signed(name: str, secret: str | None = None, date_time: str = DATE_TIME) -> list[tuple[str, str]]:
    """The two headers."""
    key = (secret_of(name) if secret is None else secret).encode()
    signature = hmac.new(key, date_time.encode(), "sha1").hexdigest()
    authorization = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("x-mq-date-time", date_time), ("authorization", authorization)]


def hash_of(secret: str) -> str:
    """A secret as `secret_hash` in the file."""
    return hashlib.sha256(hmac.new(secret.encode(), b"Client Key", "sha256").digest()).hexdigest()


def proved(name: str, secret: str | None = None, date_time: str = DATE_TIME) -> list[tuple[str, str]]:
    """The two headers with the proof of SCRAM-SHA-256."""
    client_key = hmac.new((secret_of(name) if secret is None else secret).encode(), b"Client Key", "sha256").digest()
    return proof(name, client_key, hashlib.sha256(client_key).digest(), date_time)


def proof(name: str, client_key: bytes, stored_key: bytes, date_time: str = DATE_TIME) -> list[tuple[str, str]]:
    mask = hmac.new(stored_key, f"{name},{date_time}".encode(), "sha256").digest()
    shown = (int.from_bytes(client_key, "big") ^ int.from_bytes(mask, "big")).to_bytes(32, "big").hex()
    return [("x-mq-date-time", date_time), ("authorization", f"PopMQ-SCRAM-SHA-256 Credential={name}, Proof={shown}")]


def caller(keys: Keys, headers: list[tuple[str, str]]) -> str:
    """The name of the key that these headers prove, or the code of the refusal."""
    found = dict(headers)
    try:
        return keys.caller(found.get("authorization", ""), found.get("x-mq-date-time", "")).name
    except Refused as refused:
        return refused.code


class _Details(grpc.ClientCallDetails):  # type: ignore[misc, unused-ignore]
    """Of one call, with more metadata."""

    def __init__(self, details: Any, metadata: Iterable[tuple[str, str]]) -> None:
        self.method, self.timeout, self.credentials = details.method, details.timeout, details.credentials
        self.wait_for_ready, self.compression = details.wait_for_ready, details.compression
        self.metadata = (*(details.metadata or ()), *metadata)


class _Sign(  # type: ignore[misc, unused-ignore]
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor
):
    """Adds the same headers to every call."""

    def __init__(self, metadata: list[tuple[str, str]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._metadata), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_Details(client_call_details, self._metadata), request)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_Details(client_call_details, self._metadata), request_iterator)


class SignedStubs(Stubs):
    """Stubs that call with a key of KEYS."""

    def __init__(self, endpoint: str, name: str, secret: str | None = None) -> None:
        self._plain = grpc.insecure_channel(endpoint, options=OPTIONS)
        self.channel = grpc.intercept_channel(self._plain, _Sign(signed(name, secret)))
        self.broker = rpc.BrokerStub(self.channel)
        self.admin = rpc.AdminStub(self.channel)

    def close(self) -> None:
        self._plain.close()


class KeyedBroker:
    """A broker with the access keys of the file `keys`. `usual`: the key that tests mean; `root` has all rights."""

    keys: Path
    root: SignedStubs
    usual = "one"

    def __init__(self, stack: contextlib.ExitStack, folder: Path, clock: FakeClock, transport: str) -> None:
        self.stack, self.clock = stack, clock
        self.broker = EmbeddedBroker(folder / "data", clock=clock, sync="none", access_keys=self.keys)
        self.broker._options = self.broker._options._replace(transport=transport)
        stack.enter_context(self.broker)

    def client(self, name: str = "") -> SignedStubs:
        client = SignedStubs(self.broker.endpoint, name or self.usual)
        self.stack.callback(client.close)
        return client

    def key(self, name: str = "") -> Any:
        """The row of the key, as an operator sees it."""
        rows = self.root.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S).access_keys
        return next(row for row in rows if row.name == (name or self.usual))
