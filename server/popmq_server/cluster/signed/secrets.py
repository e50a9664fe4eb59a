"""The secrets that the gateways of a cluster share, and signatures made with them.

A file has one or two secrets, a line each; empty lines and lines that begin with # are left out. The first one signs,
both are accepted. To rotate: add the new one as the second line at every gateway, then swap the lines at every gateway,
then remove the old one. Without a file, a process makes one at random, and no other gateway reads what it signed.

    signed      key id [2] · content · signature [8]                    as base64url, without padding
    signature   BLAKE2b keyed by the secret, over the kind, the key id, the content and the scope
    scope       what the reader has to know, and is not in the text: the group of a handle

The key id is a hash of the secret: it tells a text of a gateway with other secrets from one that is damaged.
"""

import binascii
import functools
import hashlib
import hmac
import logging
import os
import pathlib
from collections.abc import Callable, Sequence

from popmq_server.clock import stopwatch
from popmq_server.errors import StartError
from popmq_server.private_file import read_private

log = logging.getLogger("popmq.cluster")

#: Seconds between two lines of the log about texts of other secrets.
QUIET_S = 60.0
SECRET_CHARACTERS_MIN = 16
SECRETS_MAX = 2
SIGNATURE_BYTES, KEY_ID_BYTES = 8, 2
#: A personalization of BLAKE2b has 16 bytes at most.
KIND_BYTES_MAX = 16


class BadText(Exception):
    """A text that no gateway with these secrets has signed. The message completes "this handle …"."""


class UnknownSecret(BadText):
    """A text that names another secret: its gateway has another file."""


class Secrets:
    """The secrets of a gateway: the first one signs; all of them are accepted.

    `cure`: what the log says to do when texts name other secrets. `seconds`: a clock that only grows.
    """

    def __init__(self, secrets: Sequence[bytes], cure: str = "", seconds: Callable[[], float] = stopwatch) -> None:
        keys = [hashlib.blake2b(secret, person=b"popmq-secret").digest() for secret in secrets]
        ids = [hashlib.blake2b(key, digest_size=KEY_ID_BYTES, person=b"popmq-key-id").digest() for key in keys]
        self._keys = dict(zip(ids, keys, strict=True))
        self._id = ids[0]
        self._cure, self._seconds = cure, seconds
        #: Changes when the secrets are replaced.
        self.version = 0
        #: Texts that named a secret which is not here. It grows while gateways differ.
        self.unknown = 0
        self._told, self._told_s = 0, -QUIET_S

    @property
    def count(self) -> int:
        """The number of accepted secrets."""
        return len(self._keys)

    def replace(self, other: "Secrets") -> None:
        """Takes over the secrets of `other`: the file was replaced."""
        self._keys, self._id, self._cure = other._keys, other._id, other._cure
        self.version += 1

    def sign(self, kind: bytes, content: bytes, scope: bytes = b"") -> bytes:
        """The text, as ASCII bytes."""
        named = self._id + content
        signature = _signature(self._keys[self._id], kind, named, scope)
        return binascii.b2a_base64(named + signature, newline=False).translate(_TO_URL, b"=")

    def open(self, kind: bytes, text: str, scope: bytes = b"") -> bytes:
        """The content. Raises BadText."""
        try:
            raw = binascii.a2b_base64(
                text.encode("ascii").translate(_FROM_URL) + _PADDING[-len(text) % 4], strict_mode=True
            )
        except ValueError:
            raise BadText("is not one of this service") from None
        if text[-1:] not in _ENDS.get(len(text) % 4, text):
            raise BadText("is not one of this service")
        named, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        key = self._keys.get(named[:KEY_ID_BYTES])
        if len(named) <= KEY_ID_BYTES:
            raise BadText("is not one of this service")
        if key is None:
            self._count()
            raise UnknownSecret("is damaged, or was signed by a gateway with another secret")
        if not hmac.compare_digest(_signature(key, kind, named, scope), signature):
            raise BadText("is damaged, or belongs to another group")
        return named[KEY_ID_BYTES:]

    def _count(self) -> None:
        """Counts a text of another secret, and says so once in QUIET_S: a client may come with thousands."""
        self.unknown += 1
        now_s = self._seconds()
        if now_s - self._told_s >= QUIET_S:
            count = self.unknown - self._told
            log.warning("handles or transaction ids refused, of a secret that is not here: %d; %s", count, self._cure)
            self._told, self._told_s = self.unknown, now_s


_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_+/", b"+/!!")
#: The last characters of a base64 text, by its length modulo 4, whose unused bits are 0: of the texts that are read as
#: the same bytes, one is accepted.
_ENDS = {2: "AQgw", 3: "AEIMQUYcgkosw048"}
_PADDING = (b"", b"=", b"==", b"===")


def _signature(key: bytes, kind: bytes, named: bytes, scope: bytes) -> bytes:
    length = len(scope).to_bytes(2, "big")  # so that no byte can pass from the content to the scope
    hashed = _keyed(key, kind).copy()
    hashed.update(named + scope + length)
    return hashed.digest()


@functools.lru_cache(maxsize=64)
def _keyed(key: bytes, kind: bytes) -> hashlib.blake2b:
    """A hash that has taken the key: a copy of it costs half of a new one."""
    return hashlib.blake2b(digest_size=SIGNATURE_BYTES, key=key, person=kind)


def random_secrets() -> Secrets:
    """Secrets of this process alone."""
    cure = "this process made its secret at random: name a file by --handle-secret, the same at all gateways"
    return Secrets([os.urandom(32)], cure)


def read_secrets(path: pathlib.Path) -> Secrets:
    """The secrets of a file. Raises StartError: one sentence, which quotes no secret."""
    try:
        lines = read_private(path, "--handle-secret").splitlines()
    except ValueError as error:
        raise StartError(str(error)) from None
    secrets = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise StartError(f"{path} has {len(secrets)} secrets: write one in a line, or two while you rotate them")
    if min(map(len, secrets)) < SECRET_CHARACTERS_MIN:
        raise StartError(f"{path} has a secret of fewer than {SECRET_CHARACTERS_MIN} characters: openssl rand -hex 32")
    if len({*secrets}) < len(secrets):
        raise StartError(f"{path} has the same secret twice: remove one of the lines")
    cure = f"{path} has to be the same at all gateways, and keep an old secret until the leases that it signed are over"
    return Secrets([secret.encode() for secret in secrets], cure)
