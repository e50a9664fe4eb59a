"""What Airflow knows of this provider. Imports nothing, since every command of Airflow asks."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """As Airflow's schema of providers has it."""
    return {
        "package-name": "popmq",
        "name": "PopMQ",
        "description": "PopMQ, a message broker that leases.",
        "queues": ["popmq_integrations.airflow.queues.PopMQProvider"],
        "triggers": [{"integration-name": "PopMQ", "python-modules": ["popmq_integrations.airflow.triggers"]}],
    }
