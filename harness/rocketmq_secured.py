"""A RocketMQ cluster with access control (ACL 2) and TLS: settings of its processes, and users made at its brokers.

settings = access_control("operator", "secret")        of each broker; the operator may do everything
java = tls(cert, key)                                   of all processes; who connects without TLS is served too
user("gateway", "secret"), rights("gateway", …)         requests that the operator sends to each broker
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from popmq_remoting import Request

_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.{1}"
#: Codes of requests about users and their rights: since 5.3.0.
_CREATE_USER, _DELETE_USER, _CREATE_RIGHTS = 3001, 3003, 3006
#: What a gateway needs to serve every call, by kind of resource.
RIGHTS: Mapping[str, Sequence[str]] = {
    "Topic:*": ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List"),
    "Group:*": ("Sub", "Create", "Update", "Delete", "Get", "List"),
    "Cluster:*": ("Get", "List", "Update"),
}


def access_control(operator: str, secret: str) -> dict[str, str]:
    """Settings of a broker. Its own connections, to replicas, are the operator's."""
    own = json.dumps({"accessKey": operator, "secretKey": secret})
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": _PROVIDER.format("authentication", "DefaultAuthenticationProvider"),
        "authenticationMetadataProvider": _PROVIDER.format("authentication", "LocalAuthenticationMetadataProvider"),
        "initAuthenticationUser": json.dumps({"username": operator, "password": secret}),
        "innerClientAuthenticationCredentials": own,
        "authorizationEnabled": "true",
        "authorizationProvider": _PROVIDER.format("authorization", "DefaultAuthorizationProvider"),
        "authorizationMetadataProvider": _PROVIDER.format("authorization", "LocalAuthorizationMetadataProvider"),
    }


def tls(cert: Path, key: Path) -> tuple[str, ...]:
    """Options of Java. `cert`: a PEM chain; `key`: PKCS #8."""
    return (
        "-Dtls.test.mode.enable=false",
        "-Dtls.server.mode=permissive",
        f"-Dtls.server.certPath={cert}",
        f"-Dtls.server.keyPath={key}",
    )


def user(name: str, secret: str) -> Request:
    """Makes a user who may do nothing yet."""
    body = {"username": name, "password": secret, "userType": "Normal", "userStatus": "enable"}
    return Request(_CREATE_USER, {"username": name}, json.dumps(body).encode())


def no_user(name: str) -> Request:
    """Deletes a user."""
    return Request(_DELETE_USER, {"username": name})


def rights(name: str, of: Mapping[str, Sequence[str]] = RIGHTS) -> Request:
    """Gives a user rights, by kind of resource."""
    entries = [
        {"resource": resource, "actions": list(actions), "decision": "Allow"} for resource, actions in of.items()
    ]
    body = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": entries}]}
    return Request(_CREATE_RIGHTS, {"subject": f"User:{name}"}, json.dumps(body).encode())
