"""How a connection of kombu says where the broker is and what the transport does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kombu import Connection

from popmq.duration import seconds_of
from popmq.errors import InvalidField

#: What kombu, Celery and the virtual transport read themselves.
_OTHERS = {
    *("max_retries", "interval_start", "interval_step", "interval_max", "connect_retries_timeout"),
    *("polling_interval", "body_encoding", "deadletter_queue", "global_keyprefix", "retry_policy"),
}
_REACHED = ("tls_ca", "client_cert", "client_key", "transport", "client_id")


@dataclass(frozen=True)
class Options:
    """`broker_transport_options`. Durations are seconds, a timedelta, or a text such as "90s". Raises InvalidField."""

    invisible_time: Any = "60s"  # the lease of a message; it is renewed until its task is acked
    max_attempts: int = 17  # deliveries of one message, of which each ended with its worker, or with a requeue
    keep: Any = "1h"  # how long a message that is done can still be looked at
    binding_expiry: Any = "1h"  # a queue of one process that crashed is forgotten after this time

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """Raises InvalidField for an option that nothing reads."""
        known = {*cls.__dataclass_fields__, *_REACHED}
        unknown = sorted(set(given) - known - _OTHERS)
        if unknown:
            raise InvalidField(
                f"the transport has no option {unknown[0]!r}",
                code="INVALID_FIELD",
                field=f"broker_transport_options.{unknown[0]}",
                action=f"give one of {', '.join(sorted(known))}",
            )
        return cls(**{name: given[name] for name in cls.__dataclass_fields__ if name in given})

    def __post_init__(self) -> None:
        for name in ("invisible_time", "keep", "binding_expiry"):
            seconds_of(getattr(self, name), f"broker_transport_options.{name}")


def reached(connection: Connection, tls: bool, port: int) -> dict[str, Any]:
    """What `popmq.Client` takes: endpoint, TLS and access key. Raises InvalidField for a path in the URL."""
    if (connection.virtual_host or "/") != "/":
        raise InvalidField(
            f"the URL names the virtual host {connection.virtual_host!r}, and a broker has none",
            code="INVALID_FIELD",
            field="broker_url",
            action="end the URL after the port",
        )
    host = connection.hostname or "127.0.0.1"
    given: dict[str, Any] = {
        "endpoint": f"{f'[{host}]' if ':' in host else host}:{connection.port or port}",
        "tls": True if tls or connection.ssl else None,
        "access_key": connection.userid,
        "secret": connection.password,
    }
    if isinstance(connection.ssl, Mapping):  # broker_use_ssl, with the names of Python's ssl
        names = {"ca_certs": "tls_ca", "certfile": "client_cert", "keyfile": "client_key"}
        given |= {names[name]: value for name, value in connection.ssl.items() if name in names}
    return given | {
        name: connection.transport_options[name] for name in _REACHED if name in connection.transport_options
    }
