"""PopMQ as a message queue of Airflow: a DAG starts when a message arrives.

    trigger = MessageQueueTrigger(scheme="popmq", topic="orders", group="airflow")
    orders = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])

`provider_info` is found by Airflow through the entry point of popmq; `queues` has what MessageQueueTrigger asks, and
`triggers` what the triggerer runs.
"""
