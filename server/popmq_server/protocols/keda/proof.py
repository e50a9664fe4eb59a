"""Which access key a trigger calls with. KEDA sends none of our headers; it shows certificates, and fills in values.

a client certificate (tlsClientCert of a TriggerAuthentication)     the key whose `certificates` have its name
accessKey: NAME, or accessKeyFromEnv; secretFromEnv: VARIABLE       KEDA sends the value that the container of the
                                                                    consumer has in this variable
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote

from popmq_server.protocols.access import access_keys, proofs
from popmq_server.protocols.access.access_keys import CALLER, unauthenticated
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.known_keys import Keys

#: What the proof is made over. The broker remembers proofs, so the next call costs no comparison.
_DATE_TIME = "KEDA"


def identify(keys: Keys, metadata: Mapping[str, str], context: CallContext) -> None:
    """Sets CALLER to the key of the trigger; without one, the caller that the transport found stays.

    Raises Refused UNAUTHENTICATED, RATE_LIMITED.
    """
    name = metadata.get("accessKeyFromEnv") or metadata.get("accessKey", "")
    if not name:
        access_keys.caller()
        return
    secret = metadata.get("secretFromEnv", "")
    if not secret:
        raise unauthenticated(
            f"the trigger names the access key {name[:40]!r}, and secretFromEnv has no value: name a variable of the "
            "consumer's container, from a Secret that KEDA may read"
        )
    if not is_private(context):
        raise unauthenticated(
            "a secret in clear is taken over TLS, or from this machine, only: set enableTLS in the trigger, or let "
            "KEDA show a client certificate"
        )
    key = keys.caller(proofs.written(name, secret, _DATE_TIME), _DATE_TIME)
    CALLER.set(key)
    keys.admit(key, settles=False)


def is_private(context: CallContext) -> bool:
    """Whether nobody else can read what the client sends: TLS, or a client on this machine."""
    if b"ssl" in context.auth_context().get("transport_security_type", ()):
        return True
    kind, _, address = unquote(context.peer()).partition(":")
    if kind == "unix":
        return True
    host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    return (getattr(host, "ipv4_mapped", None) or host).is_loopback  # mapped: a client of IPv4 at `--host ::`
