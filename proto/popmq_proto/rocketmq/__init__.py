"""Generated from proto/apache/rocketmq/v2 by proto/generate.py."""
