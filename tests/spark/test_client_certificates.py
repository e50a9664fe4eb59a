"""Client certificates: both modes of the source and the sink show one to a broker that asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import popmq
from harness.broker_process import own_port
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_spark.options import OptionError, Options
from popmq_spark.source import PopMQDataSource
from popmq_spark.writing import write
from tests.spark.reading.microbatch import MicroBatches, ids
from tests.wire.access.authority import Authority

#: Tries of a call end soon: a broker that accepts no connection looks like one that is away.
SOON = {"brokerUnavailableTimeout": "1s"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("the test's authority")


@pytest.fixture
def connection(authority: Authority, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options that reach a broker which takes no connection without a certificate; a topic with five messages."""
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    shown = authority.client("spark")
    for name, content in (("ca", authority.pem), ("cert", shown.chain), ("key", shown.key)):
        files[name].write_bytes(content)
    secured = EmbeddedBroker(
        tmp_path / "data", sync="none", tls_port=own_port(), tls_client_ca=files["ca"], tls_client_required=True
    )
    with secured as broker:
        reached = {"endpoint": broker.tls_endpoint, "tlsCa": str(broker.certificate)}
        given = reached | {"clientCert": str(files["cert"]), "clientKey": str(files["key"])}
        with client_of(given) as client:
            client.topics.create("orders", queues=1)
            client.groups.create("spark")
            client.send("orders", [str(number) for number in range(5)])
        yield given


def client_of(given: dict[str, str]) -> popmq.Client:
    return popmq.Client(
        given["endpoint"], tls_ca=given["tlsCa"], client_cert=given["clientCert"], client_key=given["clientKey"]
    )


@pytest.mark.parametrize("mode", ["lease", "offsets"])
def test_a_query_shows_the_certificate_of_its_options(connection: dict[str, str], mode: str) -> None:
    query = MicroBatches(**connection, topic="orders", group="spark", mode=mode)
    try:
        assert query.run() == 1
        assert len(ids(query.rows())) == 5
    finally:
        query.stop()


def test_a_sink_shows_the_certificate_of_its_options(
    connection: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_task_property", {write.QUERY_ID: "q", write.BATCH_ID: "0"}.__getitem__)
    options = {name.lower(): value for name, value in connection.items()} | {"topic": "orders"}
    writer = PopMQDataSource(options).streamWriter(StructType([StructField("body", StringType())]), False)
    writer.write(iter([pa.RecordBatch.from_pydict({"body": ["one", "two"]})]))
    with client_of(connection) as client:
        assert client.broker.stats("orders").topics[0].messages == 7


@pytest.mark.slow
def test_a_query_without_a_certificate_learns_which_options_are_missing(connection: dict[str, str]) -> None:
    reached = {name: value for name, value in connection.items() if not name.startswith("client")}
    query = MicroBatches(**reached, **SOON, topic="orders", group="spark", longPollTimeout="0s")
    try:
        with pytest.raises(popmq.errors.Unavailable) as refused:
            query.run()
    finally:
        query.stop()
    assert "one of an authority of the broker" in (refused.value.action or "")


@pytest.mark.parametrize(("given", "missing"), [("clientCert", "clientKey"), ("clientkey", "clientCert")])
def test_a_certificate_without_its_key_is_refused_before_anything_is_read(given: str, missing: str) -> None:
    with pytest.raises(OptionError, match=f"{missing} is missing"):
        Options.parse({"endpoint": "x:1", "topic": "orders", "group": "spark", given: "file.pem"})
