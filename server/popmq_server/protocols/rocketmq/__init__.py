"""The protocol apache.rocketmq.v2, for official RocketMQ 5 clients."""
