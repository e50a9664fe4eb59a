"""PopMQ as the broker, the result backend and the schedule source of taskiq: docs/integrations/taskiq.md.

from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend, PopMQScheduleSource

broker = PopMQBroker("127.0.0.1:8081").with_result_backend(PopMQResultBackend("127.0.0.1:8081"))
schedules = PopMQScheduleSource(broker)
"""

from popmq_integrations.taskiq.broker import PopMQBroker
from popmq_integrations.taskiq.results import PopMQResultBackend
from popmq_integrations.taskiq.schedules import PopMQScheduleSource

__all__ = ["PopMQBroker", "PopMQResultBackend", "PopMQScheduleSource"]
