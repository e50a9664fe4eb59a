"""The jars of RocketMQ."""

from tests.cluster.conftest import jars

__all__ = ["jars"]
