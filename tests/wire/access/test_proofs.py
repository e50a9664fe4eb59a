"""Proofs of an access key, and files that have the hash of a secret in place of the secret."""

from collections.abc import Callable
from pathlib import Path

import pytest

from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.proofs import Claim, Secret
from tests.wire.access.signing import DATE_TIME, KEYS, caller, hash_of, proof, proved, secret_of, signed, write_keys

HASHED = f"[root]\nsecret_hash = '{hash_of(secret_of('root'))}'\nallow = ['*']\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys.toml", KEYS)
    return tmp_path / "keys.toml"


@pytest.mark.parametrize("hashed", [False, True])
def test_a_proof_is_accepted_whether_the_file_has_the_secret_or_its_hash(path: Path, hashed: bool) -> None:
    if hashed:
        path.write_text(HASHED)
    keys = Keys(path)
    assert caller(keys, proved("root")) == caller(keys, proved("root", date_time="yesterday, I think")) == "root"
    assert caller(keys, proved("root", "another secret")) == "UNAUTHENTICATED"
    assert caller(keys, proved("reader", secret_of("root"))) == "UNAUTHENTICATED"


def test_a_proof_is_of_one_name_and_one_time(path: Path) -> None:
    keys, of_root = Keys(path), dict(proved("root"))
    later = [("x-mq-date-time", "later"), ("authorization", of_root["authorization"])]
    assert caller(keys, later) == "UNAUTHENTICATED"
    path.write_text(HASHED + HASHED.replace("[root]", "[twin]"))
    keys.reload()
    as_twin = of_root["authorization"].replace("Credential=root", "Credential=twin")
    assert caller(keys, [("x-mq-date-time", DATE_TIME), ("authorization", as_twin)]) == "UNAUTHENTICATED"


def test_a_stolen_hash_makes_neither_a_proof_nor_a_signature(path: Path) -> None:
    path.write_text(HASHED)
    keys, stolen = Keys(path), hash_of(secret_of("root"))
    for headers in (
        proof("root", bytes.fromhex(stolen), bytes.fromhex(stolen)),
        proof("root", bytes(32), bytes.fromhex(stolen)),
        proved("root", stolen),
        signed("root", stolen),
        signed("root", ""),
    ):
        assert caller(keys, headers) == "UNAUTHENTICATED"


def test_a_key_of_a_hash_takes_no_signature_and_one_with_both_takes_it(path: Path) -> None:
    path.write_text(HASHED)
    keys = Keys(path)
    assert caller(keys, signed("root")) == "UNAUTHENTICATED"
    path.write_text(HASHED + "secret = 'for the RocketMQ clients'\n")
    keys.reload()
    assert caller(keys, signed("root", "for the RocketMQ clients")) == caller(keys, proved("root")) == "root"
    assert keys.listed()[0].secrets == 2


@pytest.mark.parametrize("of", [signed, proved])
@pytest.mark.parametrize("name", ["nobody", "one", "two", "certified"])
def test_a_claim_is_compared_as_often_whatever_its_name_and_however_many_secrets_that_has(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, of: Callable[..., list[tuple[str, str]]]
) -> None:
    path.write_text(
        "[one]\nsecret = 'the secret of one'\nallow = []\n"
        "[two]\nsecret = ['the secret of two', 'the second of two']\nallow = []\n"
        "[certified]\ncertificates = ['a.example']\nallow = []\n"
    )
    compared = 0
    proves = Secret.proves

    def counted(self: Secret, claim: Claim) -> bool:
        nonlocal compared
        compared += 1
        return proves(self, claim)

    monkeypatch.setattr(Secret, "proves", counted)
    keys = Keys(path)
    assert caller(keys, of(name, "another secret")) == "UNAUTHENTICATED"
    assert compared == 2
    known = "UNAUTHENTICATED" if name in ("nobody", "certified") else name
    assert caller(keys, of(name)) == known
    assert compared == 4
