"""How a call proves that its client has the secret of a key: two schemes, told apart by the header `authorization`.

    MQv2-HMAC-SHA1 Credential=NAME[/…], SignedHeaders=…, Signature=HEX     the RocketMQ 5 clients
        Signature = HMAC-SHA1(secret, date_time)                           verified with the secret
    PopMQ-SCRAM-SHA-256 Credential=NAME, Proof=HEX                         the clients of PopMQ
        client key = HMAC-SHA256(secret, "Client Key"); stored key = SHA256(client key)
        Proof = client key XOR HMAC-SHA256(stored key, NAME "," date_time)  verified with the stored key

The second is the proof of SCRAM (RFC 5802, section 3). The broker needs only the stored key, from which no client key
can be computed, so no client can call with a copy of the key file. It has no salt and no iterations, since secrets are
random. It is one message without a nonce of the broker: both schemes prove a time that the broker does not compare.
"""

import hashlib
import hmac
import re
from typing import NamedTuple

SIGNATURE, PROOF = "MQv2-HMAC-SHA1", "PopMQ-SCRAM-SHA-256"
#: Scheme → the field that has the hex digits, and their pattern.
_DIGITS = {
    SIGNATURE: ("Signature", re.compile(r"[0-9A-Fa-f]{40}")),
    PROOF: ("Proof", re.compile(r"[0-9A-Fa-f]{64}")),
}


class Claim(NamedTuple):
    """The proof that a call carries, from its headers `authorization` and the date."""

    name: str
    scheme: str
    digest: bytes
    date_time: str


class Secret(NamedTuple):
    """A secret as the broker knows it. `clear`: the secret itself; empty if the key file has only its hash."""

    stored_key: bytes
    clear: bytes = b""

    @staticmethod
    def of(clear: str) -> "Secret":
        return Secret(hashlib.sha256(_client_key(clear)).digest(), clear.encode())

    def proves(self, claim: Claim) -> bool:
        """Whether a client with this secret made the claim; compares in constant time."""
        if claim.scheme == SIGNATURE:
            made = hmac.digest(self.clear, claim.date_time.encode(), "sha1")
            return hmac.compare_digest(made, claim.digest) and bool(self.clear)
        mask = hmac.digest(self.stored_key, f"{claim.name},{claim.date_time}".encode(), "sha256")
        client_key = bytes(a ^ b for a, b in zip(mask, claim.digest, strict=True))
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self.stored_key)


def written(name: str, clear: str, date_time: str) -> str:
    """The header `authorization` with which a client proves that it has a secret."""
    client_key = _client_key(clear)
    mask = hmac.digest(hashlib.sha256(client_key).digest(), f"{name},{date_time}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
    return f"{PROOF} Credential={name}, Proof={proof.hex()}"


def _client_key(clear: str) -> bytes:
    return hmac.digest(clear.encode(), b"Client Key", "sha256")


def read_claim(authorization: str, date_time: str) -> Claim | None:
    """Reads the two headers of a call; None if they have neither scheme's form.

    Clients differ in the case of hex digits; a value is cut at the first "=" only, as in the reference.
    """
    scheme, _, rest = authorization.partition(" ")
    if not date_time or scheme not in _DIGITS:
        return None
    items = dict(item.strip().partition("=")[::2] for item in rest.split(","))
    field, form = _DIGITS[scheme]
    if not form.fullmatch(items.get(field, "")):
        return None
    return Claim(items.get("Credential", "").partition("/")[0], scheme, bytes.fromhex(items[field]), date_time)
