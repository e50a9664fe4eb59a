"""`curl --user KEY:SECRET`: HTTP's Basic authentication, turned into the proof that an SDK would have sent.

The secret travels in clear, so it is taken only where nobody else can read it: over TLS, or from this machine.
"""

import base64
from collections.abc import Mapping

from popmq_http2 import Aborted
from popmq_server.protocols.access import proofs
from popmq_server.protocols.access.access_keys import unauthenticated
from popmq_server.protocols.refusals import aborted

_SCHEME = "basic "
#: What the proof is made over. The broker remembers proofs, so the next request costs no hash.
_DATE_TIME = "Basic"


def proved(headers: Mapping[str, str], *, is_private: bool) -> dict[str, str]:
    """The headers with a proof in place of a secret. `is_private`: over TLS, or of this machine. Raises Aborted."""
    given = headers.get("authorization", "")
    if not given.lower().startswith(_SCHEME):
        return dict(headers)
    if not is_private:
        raise _refused("a secret in clear is taken over TLS, or from this machine, only")
    try:
        name, colon, secret = base64.b64decode(given[len(_SCHEME) :].strip(), validate=True).decode().partition(":")
    except ValueError:
        raise _refused("the header authorization is not `Basic` with the base64 of KEY:SECRET") from None
    if not colon:
        raise _refused("the header authorization has no colon between the key and its secret")
    return {**headers, "authorization": proofs.written(name, secret, _DATE_TIME), "x-mq-date-time": _DATE_TIME}


def _refused(why: str) -> Aborted:
    return aborted(unauthenticated(why))
