"""Celery over PopMQ: a transport of kombu (`popmq://`), and a result backend. How to: docs/integrations/celery.md.

    producer                      broker                                      worker
    basic_publish ──▶ topic of the queue, group of the queue ──── Pop ──▶ reader ─▶ hub ─▶ task
      eta: delay        PRIORITY, ten queues                 as much as      │
      priority          ▲                                    prefetch allows ├─ renews the lease until the ack
    exchange ─────────▶ topic of the exchange                                ├─ ack ─▶ Ack
                          a filter for each bound queue's group              ├─ requeue ─▶ release
                                                                             └─ reject ─▶ dead letter

`names`, `messages` and `options` decide without a broker; `channel` declares and sends, in the calling thread; `reader`
reads, in a thread of its own; `transport` is the connection, `backend` the results.
docs/decisions/0060-celery.md says why.
"""

from kombu.transport import TRANSPORT_ALIASES

_TRANSPORT = "popmq_integrations.celery.transport"

# kombu has no entry point for transports: importing this package makes it know both schemes.
TRANSPORT_ALIASES.setdefault("popmq", f"{_TRANSPORT}:Transport")
TRANSPORT_ALIASES.setdefault("popmqs", f"{_TRANSPORT}:TLSTransport")
