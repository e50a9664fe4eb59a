"""Signed requests: what ACL 1 and ACL 2 of brokers compare.

    Signature = base64(HMAC-SHA1(secret, values of all fields but itself, in the order of their names, then the body))

The fields AccessKey and SecurityToken are signed like the others, so a request is signed last, when it is complete.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field

from popmq_remoting.wire.command import Fields, Request

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"


@dataclass(frozen=True)
class Credentials:
    """A user of the brokers. Its secrets are in no repr."""

    access_key: str
    secret: str = field(repr=False)
    security_token: str = field(default="", repr=False)


def signature(fields: Fields, body: bytes, secret: str) -> str:
    """The signature of these fields, among which it is not, and of the body."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    return base64.b64encode(hmac.digest(secret.encode(), values.encode() + body, "sha1")).decode()


def signed(request: Request, credentials: Credentials) -> Request:
    """The request with the name of its user and a signature."""
    fields = dict(request.fields)
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = signature(fields, request.body, credentials.secret)
    return request._replace(fields=fields)
