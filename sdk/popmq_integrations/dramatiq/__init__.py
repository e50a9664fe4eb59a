"""PopMQ as the broker and the result backend of Dramatiq: docs/integrations/dramatiq.md.

import dramatiq
from dramatiq.results import Results
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

broker = PopMQBroker("127.0.0.1:8081")
broker.add_middleware(Results(backend=PopMQBackend("127.0.0.1:8081")))
dramatiq.set_broker(broker)
"""

from popmq_integrations.dramatiq.broker import PopMQBroker
from popmq_integrations.dramatiq.results import PopMQBackend

__all__ = ["PopMQBackend", "PopMQBroker"]
