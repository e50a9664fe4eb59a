"""Access keys without a broker: their file, their signatures, their grants; and that nothing shows a secret."""

import hmac
import inspect
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract.commands import Ack, Pop, Send, queries
from popmq_server.contract.engine import Engine
from popmq_server.contract.operations import LANE_ACK, Command, Query
from popmq_server.contract.rights import NOBODY, Need
from popmq_server.errors import Refused, StartError
from popmq_server.protocols.access import access_keys, known_keys
from popmq_server.protocols.access.access_keys import CALLER, read_grant
from popmq_server.protocols.access.authorization import Guarded
from popmq_server.protocols.access.key_file import read, stanza
from popmq_server.protocols.access.key_limits import LIMIT_MAX, KeyLimits
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.proofs import Claim
from tests.wire.access.signing import DATE_TIME, KEYS, caller, secret_of, signed, write_keys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys.toml", KEYS)
    return tmp_path / "keys.toml"


# ── Signatures ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "form",
    [
        "MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={hex}",
        "MQv2-HMAC-SHA1 Credential={name}/cn-hangzhou/RocketMQ, SignedHeaders=x-mq-date-time, Signature={hex}",
        "MQv2-HMAC-SHA1 Credential={name}//Rocketmq, SignedHeaders=x-mq-date-time, Signature={hex}",
        "MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={HEX}",
        "MQv2-HMAC-SHA1 Credential={name},SignedHeaders=x-mq-date-time,Signature={hex}",
        "MQv2-HMAC-SHA1 Signature={hex}, Credential={name}",
    ],
)
@pytest.mark.parametrize("date_time", [DATE_TIME, "2024-01-01T10:00:00+08:00", "yesterday, I think"])
def test_every_clients_form_of_a_signature_is_read(path: Path, form: str, date_time: str) -> None:
    mac = hmac.new(secret_of("reader").encode(), date_time.encode(), "sha1").hexdigest()
    text = form.format(name="reader", hex=mac, HEX=mac.upper())
    assert caller(Keys(path), [("authorization", text), ("x-mq-date-time", date_time)]) == "reader"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MQv2-HMAC-SHA1",
        "MQv2-HMAC-SHA1 ",
        "MQv2-HMAC-SHA1 Credential=root",
        "MQv2-HMAC-SHA1 Signature=",
        "MQv2-HMAC-SHA1 Credential=root, Signature=zz",
        "MQv2-HMAC-SHA1 Credential=root, Signature=" + "0" * 40,
        "MQv2-HMAC-SHA1 Credential=root, Signature=" + "0 " * 40,
        "MQv2-HMAC-SHA1 Credential=, Signature=" + "0" * 40,
        "MQv2-HMAC-SHA256 Credential=root, Signature=" + "0" * 64,
        "mqv2 " + "," * 5000,
        "PopMQ-SCRAM-SHA-256",
        "PopMQ-SCRAM-SHA-256 Credential=root",
        "PopMQ-SCRAM-SHA-256 Credential=root, Proof=" + "0" * 64,
        "PopMQ-SCRAM-SHA-256 Credential=root, Proof=" + "0" * 40,
        "PopMQ-SCRAM-SHA-256 Credential=root, Signature=" + "0" * 64,
        "PopMQ-SCRAM-SHA-256 Credential=, Proof=" + "0" * 64,
        "é",
    ],
)
def test_a_malformed_signature_is_unauthenticated(path: Path, text: str) -> None:
    assert caller(Keys(path), [("authorization", text), ("x-mq-date-time", DATE_TIME)]) == "UNAUTHENTICATED"


def test_a_signature_of_a_key_without_a_name_is_unauthenticated(path: Path) -> None:
    keys = Keys(path)
    headers = dict(signed("", ""))
    assert caller(keys, [*headers.items()]) == "UNAUTHENTICATED"


def test_a_proved_signature_is_remembered_and_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, proved = Keys(path), list[str]()
    proves = access_keys.Key.proves

    def counted(self: access_keys.Key, claim: Claim) -> bool:
        proved.append(self.name)
        return proves(self, claim)

    monkeypatch.setattr(access_keys.Key, "proves", counted)
    monkeypatch.setattr(known_keys, "REMEMBERED_MAX", 4)
    for _ in range(3):
        caller(keys, signed("root"))
    assert proved == ["root"]
    for number in range(5):
        caller(keys, signed("root", date_time=str(number)))
    assert caller(keys, signed("root")) == "root"
    assert len(proved) == 7, "all were forgotten at once, and the first one was proved again"


# ── Grants ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("allow", "need", "enough"),
    [
        ("send:orders", Need("send", "orders"), True),
        ("send:orders", Need("send", "orders2"), False),
        ("send:orders", Need("receive", "orders", "billing"), False),
        ("send:ord*", Need("send", "orders"), True),
        ("send:ord*", Need("send", "or"), False),
        ("send", Need("send", "anything"), True),
        ("send:orders", Need("describe", "orders"), True),
        ("send:orders", Need("describe", "flights"), False),
        ("send:orders", Need("admin"), False),
        ("receive:orders/billing", Need("receive", "orders", "billing"), True),
        ("receive:orders/billing", Need("receive", "orders", "audit"), False),
        ("receive:orders/billing", Need("receive", "", "billing"), True),
        ("receive:orders/billing", Need("receive", "", "audit"), False),
        ("receive:orders/billing", Need("receive", "orders"), True),
        ("receive:orders", Need("receive", "orders", "audit"), True),
        ("receive:*/bill*", Need("receive", "%DLQ%billing", "billing"), True),
        ("receive", Need("receive", "orders", "audit"), True),
        ("receive", Need("send", "orders"), False),
        ("admin", Need("admin"), True),
        ("admin", Need("describe", "orders"), True),
        ("admin", Need("send", "orders"), False),
        ("admin", Need("receive", "orders", "billing"), False),
        ("admin", Need("receive", "orders", "billing", or_admin=True), True),
        ("*", Need("send", "orders"), True),
        ("*", Need("admin"), True),
        ("*", NOBODY[0], False),
    ],
)
def test_a_grant_covers_what_it_says(allow: str, need: Need, enough: bool) -> None:
    assert read_grant(allow).covers(need) is enough


@pytest.mark.parametrize(
    "text",
    [
        "",
        "read:orders",
        "send:",
        "send:a/b",
        "send:*a",
        "send:a**",
        "receive:a/",
        "receive:a/b/c",
        "admin:orders",
        "Admin",
    ],
)
def test_a_malformed_grant_is_refused_with_the_forms_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="send:TOPIC, receive:TOPIC/GROUP, admin or"):
        read_grant(text)


# ── Rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_method_of_an_engine_is_guarded() -> None:
    methods = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")}
    assert methods == {name for name, _ in inspect.getmembers(Guarded, inspect.isfunction) if not name.startswith("_")}


class Unheard(Command[None], lane=LANE_ACK):
    """A command that does not say what it needs; a type checker lets nobody make one."""

    topic: str = "orders"


class UnheardQuery(Query[None]):
    """A query that does not say what it needs."""


class Everything:
    """An engine that does whatever it is asked."""

    async def execute(self, command: Any) -> Any:
        return "done"

    ask = execute


async def test_a_command_or_query_without_a_declared_right_is_refused(path: Path) -> None:
    keys = Keys(path)
    engine: Any = Everything()
    guarded: Any = Guarded(engine, keys)
    unheard_query: Any = UnheardQuery
    unheard_command: Any = Unheard
    token = CALLER.set(keys.caller(*(value for _, value in reversed(signed("root")))))
    try:
        assert await guarded.execute(Ack("billing", ())) == "done"
        assert await guarded.ask(queries.StoreSize()) == "done"
        for unheard in (
            unheard_command(),
            queries.Topics(),
        ):  # a query that comes as a command is not cut to visible rows
            with pytest.raises(Refused, match="does not allow"):
                await guarded.execute(unheard)
        with pytest.raises(Refused, match="does not allow"):
            await guarded.ask(unheard_query())
    finally:
        CALLER.reset(token)


async def test_commands_and_queries_without_a_caller_are_unauthenticated(path: Path) -> None:
    engine: Any = Everything()
    guarded = Guarded(engine, Keys(path))
    commands = (Send("orders", ()), Pop("orders", "billing"))
    for done in (*map(guarded.execute, commands), guarded.ask(queries.StoreSize())):
        with pytest.raises(Refused) as error:
            await done
        assert error.value.code == "UNAUTHENTICATED"


# ── The file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_may_read_is_refused_with_the_cure(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(StartError, match=f"chmod 600 {path}"):
        Keys(path)


@pytest.mark.parametrize(
    ("mode", "used"), [(0o400, True), (0o440, True), (0o640, True), (0o644, False), (0o660, False)]
)
def test_a_file_of_another_user_may_be_read_by_the_brokers_group(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, used: bool
) -> None:
    """Kubernetes mounts a secret as root's, mode 0440, in the group of the pod."""
    path.chmod(mode)
    mine = path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: mine + 1)
    if used:
        assert read(path)
    else:
        with pytest.raises(ValueError, match="others may read"):
            read(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no key"),
        ("a secret that is no TOML", "not TOML"),
        ("secret = 'hidden-secret'", "secret is not a table"),
        ("[a]\nsecret = 'hidden-secret'", r"\[a\]: allow is not a list"),
        ("[a]\nsecret = 'hidden-secret'\nallow = []\nalow = []", r"\[a\]: there is no 'alow'"),
        ("[a]\nsecret = 'hidden'\nallow = []", "at least 8 characters"),
        ("[a]\nsecret = ['hidden-secret', 'hidden']\nallow = []", "at least 8 characters"),
        ("[a]\nsecret = []\nallow = []", "has no secret, no secret_hash"),
        ("[a]\nsecret = ['hidden-s1', 'hidden-s2', 'hidden-s3']\nallow = []", "has 3 secrets"),
        ("[a]\nsecret = ['hidden-s1', 'hidden-s2']\nsecret_hash = '" + "0" * 64 + "'\nallow = []", "has 3 secrets"),
        ("[a]\nsecret_hash = 'hidden-secret'\nallow = []", "popmq access-key hash"),
        ("[a]\nsecret_hash = '" + "0" * 62 + "'\nallow = []", "64 digits"),
        ("[a]\nsecret_hash = 1\nallow = []", "64 digits"),
        ("[a]\nsecret = 'hidden-secret'\nallow = []\nexpires = 2027-01-01", "not a time with its zone"),
        ("[a]\nsecret = 'hidden-secret'\nallow = []\nexpires = 2027-01-01T00:00:00", "not a time with its zone"),
        ("[a]\nsecret = 'hidden-secret'\nallow = []\nexpires = '2027-01-01T00:00:00Z'", "not a time with its zone"),
        ("[a]\nsecret = 12345678\nallow = []", "at least 8 characters"),
        ("[a]\nsecret = 'hidden-secret'\nallow = 'admin'", "not a list of texts"),
        ("[a]\nsecret = 'hidden-secret'\nallow = [1]", "not a list of texts"),
        ("[a]\nsecret = 'hidden-secret'\nallow = ['sned:orders']", r"\[a\]: 'sned:orders' is not send:TOPIC"),
        ("['a/b']\nsecret = 'hidden-secret'\nallow = []", "a key's name has"),
        ("[a]\nsecret = 'hidden-secret\nallow = []", "not TOML"),
        ("[a]\nsecret = hidden-secret\nallow = []", "not TOML"),
        ("[a]\nsecret = 'hidden-secret' 'hidden'\nallow = []", "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_start_error_without_the_secret(path: Path, text: str, says: str) -> None:
    path.write_text(text)
    with pytest.raises(StartError, match=says) as error:
        Keys(path)
    assert "hidden" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_is_not_there_or_no_text_is_a_start_error(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.touch(0o600)
        path.write_bytes(content)
    with pytest.raises(StartError, match=str(path)):
        Keys(path)


def test_a_folder_is_no_file_of_keys(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--access-keys"):
        Keys(tmp_path)


def test_a_file_that_was_refused_for_its_mode_is_read_once_that_is_right(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(path)
    path.write_text(path.read_text() + stanza("added", ["*"]))
    path.chmod(0o644)
    assert keys.reload() == ""
    assert f"chmod 600 {path}" in caplog.text
    path.chmod(0o600)
    assert "added added" in keys.reload()


def test_a_key_that_stays_as_it_is_is_not_withdrawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    keys = Keys(path)
    before = {name: keys.caller(*(value for _, value in reversed(signed(name)))) for name in KEYS}
    write_keys(path, {**KEYS, "reader": ["admin"]})
    caller(keys, signed("root"))
    assert {name for name, key in before.items() if not keys.holds(key)} == {"reader"}


def test_a_new_key_is_a_stanza_of_the_file(path: Path) -> None:
    path.write_text(stanza("billing-worker", ["receive:orders/billing", "send:inv*"]) + stanza("boss", ["*"]))
    keys = read(path)
    assert list(keys) == ["billing-worker", "boss"]
    assert keys["billing-worker"].may(Need("send", "invoices"))
    assert stanza("a", ["*"]) != stanza("a", ["*"]), "its secret is random"
    for name, allow in (("a b", ["*"]), ("a", ["all"]), ("", [])):
        with pytest.raises(ValueError, match=r"name|all"):
            stanza(name, allow)
    with pytest.raises(ValueError, match="calls_per_s is not a whole number from 1 to"):
        stanza("a", ["*"], limits=KeyLimits(calls_per_s=LIMIT_MAX + 1))


def test_a_key_expires_by_the_wall_clock_for_calls_and_for_streams(path: Path) -> None:
    path.write_text("[a]\nsecret = 'the secret of a'\nallow = ['*']\nexpires = 2027-01-31T01:00:00+01:00\n")
    end_ms = 1_801_353_600_000
    clock = FakeClock(end_ms - 1)
    keys = Keys(path, clock)
    key = keys.caller(*(value for _, value in reversed(signed("a"))))
    assert keys.holds(key)
    clock.step_wall(1)
    assert caller(keys, signed("a")) == "UNAUTHENTICATED"
    assert not keys.holds(key)


def test_a_rotation_accepts_both_secrets_and_ends_no_stream(path: Path) -> None:
    keys = Keys(path)
    key = keys.caller(*(value for _, value in reversed(signed("root"))))
    path.write_text(f"[root]\nsecret = ['a new secret', '{secret_of('root')}']\nallow = ['*']\n")
    assert "changed root" in keys.reload()
    assert caller(keys, signed("root")) == caller(keys, signed("root", "a new secret")) == "root"
    assert keys.holds(key)
    path.write_text("[root]\nsecret = 'a new secret'\nallow = ['*']\n")
    assert "changed root" in keys.reload()
    assert caller(keys, signed("root")) == "UNAUTHENTICATED"
    assert caller(keys, signed("root", "a new secret")) == "root"
    assert not keys.holds(key), "the caller may have signed with the old secret"


def test_an_added_secret_with_other_rights_is_another_key(path: Path) -> None:
    keys = Keys(path)
    key = keys.caller(*(value for _, value in reversed(signed("root"))))
    path.write_text(f"[root]\nsecret = ['a new secret', '{secret_of('root')}']\nallow = []\n")
    keys.reload()
    assert not keys.holds(key)


def test_a_new_key_has_the_end_that_is_asked_for(path: Path) -> None:
    path.write_text(stanza("a", ["*"], datetime(2027, 1, 31, tzinfo=UTC)))
    assert read(path)["a"].expires_ms == 1_801_353_600_000


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_secrets_appear_in_no_log_and_no_representation(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    with caplog.at_level(logging.DEBUG):
        keys = Keys(path)
        key = keys.caller(*(value for _, value in reversed(signed("root"))))
        write_keys(path, KEYS, {"root": "another secret of root"})
        caller(keys, signed("root"))
        path.write_text("[root]\nsecret = 'another secret of root\n")
        caller(keys, signed("root", "another secret of root"))
    shown = [
        repr(key),
        str(key),
        repr(keys),
        f"{access_keys.denied(key, Need('admin'))!r}",
        caplog.text,
        repr(vars(keys)),
    ]
    assert [text for text in shown if "secret of" in text] == []
    assert "replaced" in caplog.text
