"""The examples of examples/spark, each across a failure between the sink and Spark's commit log."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

import popmq
from bench.peers.install import Missing
from bench.peers.kafka_broker import kafka
from harness.broker_process import BrokerProcess
from tests.conftest import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="make spark-examples"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]

EXAMPLES = Path("examples/spark").resolve()
#: A Python with a Spark that has a Delta, an Avro and a Kafka source: of the newest Spark they may be missing in Maven.
DELTA_PYTHON = Path("build/delta/bin/python").absolute()
#: Orders that are there before the failure, and all of them.
EARLY, ALL = 150, 360

#: Scripts that draw, and what.
PICTURES = {"windows": "turnover.png", "dead_letters": "dead_letters.png"}

Run = Callable[[Any, str, Path], "DataFrame"]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def client(served: BrokerProcess) -> Iterator[popmq.Client]:
    """With the shop's first orders, in new topics."""
    with popmq.Client(served.endpoint) as client:
        for topic in client.topics.list():
            client.topics.delete(topic.name)
        send(client, "shop-orders", "orders", 0, EARLY)
        send(client, "shop-payments", "payments", 0, EARLY)
        yield client


def shop() -> ModuleType:
    return import_module("shop")


def send(client: popmq.Client, topic: str, rows: str, first: int, last: int) -> None:
    """Sends the orders, or the payments of the orders, with these numbers."""
    if not first:
        client.topics.create(topic, queues=2)
    bodies = [json.dumps(row) for row in getattr(shop(), rows)(last) if int(row["order"]) >= first]
    for at in range(0, len(bodies), 20):
        client.send(topic, bodies[at : at + 20])


def through_a_failure(run: Run, spark: "SparkSession", endpoint: str, folder: Path, more: Callable[[], None]) -> Any:
    """Runs an example to the end; then to the new end, with a failure; then again.

    The sink has the batch, and Spark's commit log has not: another entry has taken its place, and Spark ends the query.
    """
    run(spark, endpoint, folder)
    (commits,) = folder.glob("checkpoint-*/commits")
    place = commits / str(max(int(file.name) for file in commits.glob("[0-9]*")) + 1)
    place.touch()
    more()
    with pytest.raises(StreamingQueryException):
        run(spark, endpoint, folder)
    place.unlink()
    return run(spark, endpoint, folder)


def rest(client: popmq.Client) -> Callable[[], None]:
    def more() -> None:
        send(client, "shop-orders", "orders", EARLY, ALL)
        send(client, "shop-payments", "payments", EARLY, ALL)

    return more


#: A group that shares the topics with other consumers; without one, a query reads by offsets.
modes = pytest.mark.parametrize("group", ["", "examples"], ids=["offsets", "lease"])


@modes
def test_a_windowed_aggregate_is_exact_across_a_failure_and_has_a_picture(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path, group: str
) -> None:
    windows = import_module("windows")
    table = through_a_failure(partial(windows.run, group=group), spark, served.endpoint, tmp_path, rest(client))
    expected: dict[tuple[str, str], float] = defaultdict(float)
    for order in shop().orders(ALL):
        expected[order["customer"], order["at"][:13]] += order["amount"]
    found = {(row.customer, row.hour.isoformat()[:13]): row.turnover for row in table.collect()}
    assert found == expected
    windows.draw(table, tmp_path / "turnover.png")
    assert (tmp_path / "turnover.png").read_bytes().startswith(b"\x89PNG")


@modes
def test_hours_that_are_over_are_written_once_across_a_failure(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path, group: str
) -> None:
    windows = import_module("windows")
    table = through_a_failure(partial(windows.over, group=group), spark, served.endpoint, tmp_path, rest(client))
    orders = [*shop().orders(ALL)]
    watermark = datetime.fromisoformat(orders[-1]["at"]) - timedelta(hours=6)
    expected: dict[tuple[str, str], float] = defaultdict(float)
    for order in orders:
        if datetime.fromisoformat(order["at"][:13] + ":00+00:00") + timedelta(hours=1) <= watermark:
            expected[order["customer"], order["at"][:13]] += order["amount"]
    rows = [((row.customer, row.hour.isoformat()[:13]), row.turnover) for row in table.collect()]
    assert expected
    assert sorted(rows) == sorted(expected.items())


@modes
def test_a_join_of_two_streams_is_exact_across_a_failure(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path, group: str
) -> None:
    run = partial(import_module("join").run, group=group)
    table = through_a_failure(run, spark, served.endpoint, tmp_path, rest(client))
    found = Counter(row.order for row in table.collect())
    assert found == Counter(int(row["order"]) for row in shop().payments(ALL))


@modes
def test_a_state_of_one_s_own_is_exact_across_a_failure(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path, group: str
) -> None:
    state = import_module("state")
    cloudpickle.register_pickle_by_value(state)  # type: ignore[no-untyped-call]
    table = through_a_failure(partial(state.run, group=group), spark, served.endpoint, tmp_path, rest(client))
    points: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for order in shop().orders(ALL):
        points[order["customer"]][0] += int(order["amount"] // 10)
        points[order["customer"]][1] += 1
    assert {row.customer: [row.points, row.orders] for row in table.collect()} == points


def test_a_database_and_a_topic_hold_each_order_once_across_a_failure(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path
) -> None:
    tables = import_module("tables")
    client.topics.create(tables.COPIES, queues=2)
    table = through_a_failure(tables.run, spark, served.endpoint, tmp_path, rest(client))
    assert Counter(row.number for row in table.collect()) == Counter(range(ALL))
    copies = spark.read.format("popmq").option("endpoint", served.endpoint).option("topic", tables.COPIES).load()
    assert Counter(int(row.key) for row in copies.select("key").collect()) == Counter(range(ALL))
    shutil.rmtree(tmp_path / "derby", ignore_errors=True)


def test_bodies_of_json_and_protobuf_are_columns(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client
) -> None:
    bodies = import_module("bodies")
    cloudpickle.register_pickle_by_value(bodies)  # type: ignore[no-untyped-call]
    bodies.fill(client, 50)
    expected = Counter((row["order"], row["customer"], row["amount"]) for row in shop().orders(50))
    for rows in (bodies.from_json_by_example(spark, served.endpoint), bodies.from_protobuf(spark, served.endpoint)):
        found = Counter((row.order, row.customer, row.amount) for row in rows.collect())
        assert found == expected


def test_dead_letters_by_sql_have_their_reasons_and_a_picture(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client, tmp_path: Path
) -> None:
    example = import_module("dead_letters")
    example.fail(client)
    popped = client.messages.browse(f"%DLQ%{example.GROUP}", max_messages=100).deliveries
    reasons = Counter(letter.dead_letter.reason for letter in popped if letter.dead_letter)
    table = example.run(spark, served.endpoint)
    rows = table.collect()
    assert {(row.topic, row.reason): row.messages for row in rows} == {
        ("shop-orders", reason): count for reason, count in reasons.items()
    }
    assert sum(row.turnover for row in rows) == sum(json.loads(letter.body)["amount"] for letter in popped)
    example.draw(table, tmp_path / "dead.png")
    assert (tmp_path / "dead.png").read_bytes().startswith(b"\x89PNG")
    client.groups.delete(example.GROUP)


def test_a_day_that_is_replayed_twice_is_sent_once(
    spark: "SparkSession", served: BrokerProcess, client: popmq.Client
) -> None:
    replay = import_module("replay")
    client.topics.create(replay.REPLAYED, queues=2)
    today = datetime.now(UTC).date()
    assert replay.run(spark, served.endpoint, today - timedelta(days=1)) == 0
    assert [replay.run(spark, served.endpoint, today) for _ in range(2)] == [EARLY, EARLY]
    copies = spark.read.format("popmq").option("endpoint", served.endpoint).option("topic", replay.REPLAYED).load()
    assert Counter(json.loads(row.body)["order"] for row in copies.collect()) == Counter(range(EARLY))


def own_process(script: str, *arguments: str, folder: Path, python: str = sys.executable) -> str:
    """Runs Python in a process of its own, which has no JVM yet; returns what it prints."""
    from popmq_spark.java import java_environment

    environment = os.environ | java_environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    environment["PYTHONPATH"] = os.pathsep.join((str(EXAMPLES), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [python, "-c", script, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_shop_sends_its_orders_and_payments_once(client: popmq.Client) -> None:
    for topic in ("shop-orders", "shop-payments"):
        client.topics.delete(topic)
    for _ in range(2):
        shop().fill(client)
    messages = [client.broker.stats(topic).topics[0].messages for topic in ("shop-orders", "shop-payments")]
    assert messages == [360, sum(1 for _ in shop().payments(360))]


@pytest.mark.parametrize(
    "script", ["windows", "dead_letters", "join", "state", "tables", "bodies", "replay", "connect"]
)
def test_a_script_runs_by_itself(served: BrokerProcess, client: popmq.Client, tmp_path: Path, script: str) -> None:
    """As the README calls it, but in a folder of its own."""
    command = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    assert own_process(command, str(EXAMPLES / f"{script}.py"), served.endpoint, folder=tmp_path)
    if script in PICTURES:
        assert (tmp_path / "build" / "examples" / PICTURES[script]).read_bytes().startswith(b"\x89PNG")
    if script == "dead_letters":
        client.groups.delete("shop-billing")


@pytest.mark.skipif(not DELTA_PYTHON.exists(), reason="make spark-examples installs a Spark that has an Avro")
def test_a_body_in_avro_is_columns(served: BrokerProcess, client: popmq.Client, tmp_path: Path) -> None:
    import_module("bodies").fill(client, 50)
    script = (
        "import sys, popmq, bodies; from pyspark.sql import SparkSession; "
        "spark = SparkSession.builder.master('local[2]').config('spark.jars.packages', bodies.AVRO_PACKAGE)"
        ".config('spark.ui.enabled', 'false').getOrCreate(); "
        "print('sum', sum(row.order for row in bodies.avro(spark, sys.argv[1]).collect()))"
    )
    assert f"sum {sum(range(50))}" in own_process(script, served.endpoint, folder=tmp_path, python=str(DELTA_PYTHON))


@pytest.mark.skipif(not DELTA_PYTHON.exists(), reason="make spark-examples installs a Spark that has a Delta")
def test_a_delta_table_holds_each_order_once_though_its_last_batch_is_repeated(
    served: BrokerProcess, client: popmq.Client, tmp_path: Path
) -> None:
    script = (
        "import sys, delta; from pathlib import Path; here = Path.cwd(); spark = delta.session(); "
        "delta.run(spark, sys.argv[1], here); done = here / 'checkpoint-delta' / 'commits'; "
        "last = max((file for file in done.glob('[0-9]*')), key=lambda file: int(file.name)); last.unlink(); "
        "(done / f'.{last.name}.crc').unlink(); "
        "print('orders', sorted(row.order for row in delta.run(spark, sys.argv[1], here).collect()))"
    )
    printed = own_process(script, served.endpoint, folder=tmp_path, python=str(DELTA_PYTHON))
    assert f"orders {[*range(EARLY)]}" in printed


@pytest.mark.skipif(not DELTA_PYTHON.exists(), reason="make spark-examples installs a Spark that has a Kafka source")
def test_one_query_reads_kafka_and_popmq_while_producers_move_over(
    served: BrokerProcess, client: popmq.Client, tmp_path: Path
) -> None:
    try:
        with kafka(tmp_path / "kafka") as other:
            other.make("shop-orders")
            orders = "".join(json.dumps(row) + "\n" for row in shop().orders(ALL) if int(row["order"]) >= EARLY)
            words = ["--topic", "shop-orders", "--bootstrap-server", other.endpoint]
            sender = [*other.tool, "org.apache.kafka.tools.ConsoleProducer", *words]
            subprocess.run(sender, input=orders, text=True, check=True, capture_output=True, timeout=300)
            script = (
                "import sys, from_kafka; from pathlib import Path; spark = from_kafka.session(); "
                "rows = from_kafka.run(spark, *sys.argv[1:], Path.cwd()).collect(); "
                "print('orders', sorted((row.number, row.origin) for row in rows))"
            )
            python = str(DELTA_PYTHON)
            printed = own_process(script, served.endpoint, other.endpoint, folder=tmp_path, python=python)
    except Missing as missing:
        pytest.skip(str(missing))
    expected = [(number, "popmq" if number < EARLY else "kafka") for number in range(ALL)]
    assert f"orders {expected}" in printed


def test_spark_connect_reads_and_writes_the_same(served: BrokerProcess, client: popmq.Client, tmp_path: Path) -> None:
    connect = import_module("connect")
    client.topics.create(connect.COPIES, queues=2)
    script = "import sys, connect; from pathlib import Path; print(connect.run(sys.argv[1], Path.cwd(), 'local[2]'))"
    printed = own_process(script, served.endpoint, folder=tmp_path)
    expected = Counter(str(order["customer"]) for order in shop().orders(EARLY))
    assert {name: int(count) for name, count in re.findall(r"'(\w+)': (\d+)", printed)} == expected
    assert "Backlog(topic='shop-orders', messages=50," in printed
    copies = (row for end in client.offsets.query(connect.COPIES) for row in pull(client, connect.COPIES, end, "body"))
    assert Counter(json.loads(body)["order"] for body in copies) == Counter(range(EARLY))
    (group,) = client.broker.stats("shop-orders", connect.GROUP).groups
    assert (group.acked, group.in_flight) == (EARLY, 0)


def test_a_declarative_pipeline_has_its_source_and_its_sink_here(
    served: BrokerProcess, client: popmq.Client, tmp_path: Path
) -> None:
    client.topics.create("shop-large-orders", queues=2)
    shutil.copytree(EXAMPLES / "pipeline", tmp_path / "pipeline")
    spec = tmp_path / "pipeline" / "spark-pipeline.yml"
    text = spec.read_text().replace("127.0.0.1:8081", served.endpoint)
    spec.write_text(text.replace("file:///tmp/popmq-pipeline", (tmp_path / "storage").as_uri()))
    script = (
        "import os, subprocess, sys; "
        "sys.exit(subprocess.call([os.path.join(os.path.dirname(sys.executable), 'spark-pipelines'), *sys.argv[1:]]))"
    )
    expected = Counter(str(order["order"]) for order in shop().orders(EARLY) if float(str(order["amount"])) >= 40)
    for _ in range(2):  # the second run finds nothing new
        own_process(script, "run", "--spec", str(spec), folder=tmp_path)
    rows = [row for end in client.offsets.query("shop-large-orders") for row in pull(client, "shop-large-orders", end)]
    assert Counter(rows) == expected


def pull(client: popmq.Client, topic: str, end: popmq.QueueOffsets, column: str = "key") -> list[Any]:
    """The keys of a queue, or another column."""
    if end.max_offset == end.min_offset:
        return []
    page = client.pull_columns(topic, end.queue, end.min_offset, end.max_offset, columns=[column])
    return [*getattr(page.columns, column)]
