"""A DAG that starts for each order that arrives in a topic, and sends what it did to another one.

popmq serve; popmq topic create orders; popmq topic create shipped; popmq group create airflow
AIRFLOW__CORE__DAGS_FOLDER=examples/airflow airflow standalone, with popmq[airflow]; then popmq send orders "order 7"
"""

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher, dag, task

import popmq

trigger = MessageQueueTrigger(scheme="popmq", topic="orders", group="airflow")
orders = Asset("orders-of-popmq", watchers=[AssetWatcher(name="orders", trigger=trigger)])


@dag(schedule=[orders], is_paused_upon_creation=False)
def on_order():
    @task
    def ship(triggering_asset_events=None):
        with popmq.Client() as client:
            for events in triggering_asset_events.values():
                for event in events:
                    client.send("shipped", event.extra["payload"]["body"])

    ship()


on_order()
