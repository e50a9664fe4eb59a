"""Kafka in KRaft mode: one process that is broker and controller, on a new data folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers import install
from bench.peers.brokers import process
from harness.broker_process import own_port

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.partitions=8
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
#: Any: a new data folder is named by it.
CLUSTER = "cG9wbXEtYmVuY2gtMDAwMQ"


@dataclass(frozen=True)
class Kafka:
    endpoint: str
    tool: tuple[str, ...]  # Java with its classes; a main class follows

    def make(self, topic: str) -> None:
        words = ["--create", "--topic", topic, "--partitions", "8", "--bootstrap-server", self.endpoint]
        install.run([*self.tool, "org.apache.kafka.tools.TopicCommand", *words])

    def fill(self, topic: str, messages: int, size: int, per_second: int = -1) -> None:
        """Sends messages of `size` bytes; `per_second` -1: as fast as it can."""
        words = ["--topic", topic, "--num-records", str(messages), "--record-size", str(size)]
        words += ["--throughput", str(per_second), "--producer-props", f"bootstrap.servers={self.endpoint}", "acks=all"]
        install.run([*self.tool, "org.apache.kafka.tools.ProducerPerformance", *words])


@contextmanager
def kafka(folder: Path) -> Iterator[Kafka]:
    """Raises Missing when it cannot be had."""
    jars, port, controller = install.kafka(), own_port(), own_port()
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "server.properties"
    conf.write_text(PROPERTIES.format(port=port, controller=controller, data=folder / "data"))
    java = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
    install.run([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(conf)])
    with process(folder, ["java", "-Xmx1g", "-cp", f"{jars}/*", "kafka.Kafka", conf], {}, port, "kafka"):
        yield Kafka(f"127.0.0.1:{port}", java)
