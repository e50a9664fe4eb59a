"""Celery over PopMQ: a transport of kombu, and a result backend."""

from kombu.transport import TRANSPORT_ALIASES

_TRANSPORT = "popmq_integrations.celery.transport"

# kombu has no entry point for transports: importing this package makes it know both schemes.
TRANSPORT_ALIASES.setdefault("popmq", f"{_TRANSPORT}:Transport")
TRANSPORT_ALIASES.setdefault("popmqs", f"{_TRANSPORT}:TLSTransport")
