"""The file of `--access-keys`: TOML, a table for each key. docs/security.md describes its fields.

[billing]
secret = "…"                        or a list of two, while clients change to the new one
secret_hash = "…"                   the hash of a secret, in place of the secret or beside it; also a list
certificates = ["billing.example"]  names of client certificates, beside the secret or in its place
allow = ["receive:orders/billing"]
expires = 2027-01-31T00:00:00Z      optional, as are the limits: connections, calls_per_s, bytes_in_flight
"""

import pathlib
import re
import secrets
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from popmq_server.private_file import read_private
from popmq_server.protocols.access.access_keys import (
    NEVER_MS,
    SECRETS_MAX,
    Key,
    read_grant,
)
from popmq_server.protocols.access.key_limits import LIMIT_MAX, NO_LIMITS, KeyLimits
from popmq_server.protocols.access.proofs import Secret
from popmq_server.settings import size

SECRET_CHARACTERS_MIN = 8
_FIELDS = {"secret", "secret_hash", "certificates", "allow", "expires", *KeyLimits._fields}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")


def read(path: pathlib.Path) -> dict[str, Key]:
    """Reads the keys of a file, by name. Raises ValueError: one sentence, which quotes no secret."""
    import tomllib  # here, as in settings/: a start without keys does without its parser

    try:
        tables = tomllib.loads(read_private(path, "--access-keys"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    if not tables:
        raise ValueError(f"{path} holds no key: popmq access-key new NAME --allow admin >> {path}")
    keys = {name: _key(path, name, table) for name, table in tables.items()}
    counted = Counter(certificate for key in keys.values() for certificate in key.certificates)
    if shared := next((certificate for certificate, count in counted.items() if count > 1), ""):
        raise ValueError(f"{path}: the certificate name {shared!r} is listed under several keys; it must identify one")
    return keys


#: A table of the file, with unchecked values.
Table = dict[str, Any]


def _key(path: pathlib.Path, name: str, table: object) -> Key:
    """Reads one table of the file. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {name} is not a table: begin it with [{name}]")
    try:
        if unknown := sorted(set(table) - _FIELDS):
            raise ValueError(f"there is no {unknown[0]!r}: {', '.join(sorted(_FIELDS))}")
        certificates = _texts(table, "certificates") if "certificates" in table else []
        secrets = _secrets(table)
        if not certificates and not secrets:
            raise ValueError("it has no secret, no secret_hash and no certificates, so no client could use it")
        grants = map(read_grant, _texts(table, "allow"))
        return Key(check_name(name), secrets, grants, _expires_ms(table.get("expires")), _limits(table), certificates)
    except ValueError as error:
        raise ValueError(f"{path}: [{name}]: {error}") from None


def _secrets(table: Table) -> list[Secret]:
    """The secrets of a table, and those of which it has the hashes."""
    clear, hashes = (_listed(table.get(field, [])) for field in ("secret", "secret_hash"))
    if not all(isinstance(one, str) and len(one) >= SECRET_CHARACTERS_MIN for one in clear):
        raise ValueError(f"the secret is not a text of at least {SECRET_CHARACTERS_MIN} characters")
    if not all(isinstance(one, str) and _HASH.fullmatch(one) for one in hashes):
        raise ValueError("the secret_hash is not what `popmq access-key hash` prints: 64 digits from 0 to f")
    if len(clear) + len(hashes) > SECRETS_MAX:
        raise ValueError(f"it has {len(clear) + len(hashes)} secrets: one, or two while clients change to the new one")
    return [*map(Secret.of, clear), *(Secret(bytes.fromhex(one)) for one in hashes)]


def _listed(value: object) -> list[Any]:  # unchecked values
    return value if isinstance(value, list) else [value]


def _texts(table: Table, field: str) -> list[str]:
    texts = table.get(field)
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in [*texts, "x"]):
        raise ValueError(f"{field} is not a list of texts")
    return texts


def _expires_ms(expires: object) -> int:
    if expires is None:
        return NEVER_MS
    if not isinstance(expires, datetime) or not expires.tzinfo:
        raise ValueError("expires is not a time with its zone, e.g. 2027-01-31T00:00:00Z")
    return int(expires.timestamp() * 1000)


def _limits(table: Table) -> KeyLimits:
    """The limits of a table; a size may be a text such as "32MiB"."""
    found = {}
    for field in KeyLimits._fields:
        value = table.get(field, 0)
        if field == "bytes_in_flight" and isinstance(value, str):
            try:
                value = size(value)
            except ArgumentTypeError as error:
                raise ValueError(f"{field}: {error}") from None
        if isinstance(value, bool) or not isinstance(value, int) or not (field not in table or 1 <= value <= LIMIT_MAX):
            raise ValueError(f"{field} is not a whole number from 1 to {LIMIT_MAX:,}; without it there is no limit")
        found[field] = value
    return KeyLimits(**found)


def check_name(name: str) -> str:
    """Validates the name of a key. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name has 1–64 letters, digits, '_' and '-'")
    return name


def new_secret() -> str:
    """A random secret: 43 characters."""
    return secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """Returns the `secret_hash` that a file may have in place of the secret. Raises ValueError for a short secret."""
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise ValueError(f"the secret has fewer than {SECRET_CHARACTERS_MIN} characters")
    return Secret.of(secret).stored_key.hex()


def stanza(
    name: str,
    allow: Iterable[str],
    expires: datetime | None = None,
    limits: KeyLimits = NO_LIMITS,
    certificate: str = "",
    hashed: str = "",
) -> str:
    """A new key as TOML, with a random secret, or in place of one with the certificate's name or with `hashed`, the
    hash of a secret. Raises ValueError for an invalid name, entry or limit.
    """
    texts = list(allow)
    for text in texts:
        read_grant(text)
    if certificate:
        proof = f"certificates = [{_quoted(certificate)}]"
    else:
        proof = f'secret_hash = "{hashed}"' if hashed else f'secret = "{new_secret()}"'
    lines = [f"[{check_name(name)}]", proof, f"allow = [{', '.join(map(_quoted, texts))}]"]
    lines += [f"expires = {expires.isoformat(timespec='seconds')}"] if expires else []
    given = {field: value for field, value in limits._asdict().items() if value}
    _limits(given)
    lines += [f"{field} = {value}" for field, value in given.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text in TOML."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise ValueError(f"{text!r} has characters that names may not have")
    return f'"{text}"'
