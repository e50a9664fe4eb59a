"""apache.rocketmq.v2: what official RocketMQ 5 clients speak, translated into the engine's commands. No rules here."""
