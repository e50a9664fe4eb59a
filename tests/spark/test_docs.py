"""The manual tells the truth: its options are the code's, its example runs."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from popmq_spark.rows import TYPES
from popmq_spark.schema import COLUMNS
from scripts.spark_options import TABLES, written
from tests.spark.conftest import Broker

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_the_tables_of_options_are_the_code_s() -> None:
    assert written(TEXT) == TEXT, "run python scripts/spark_options.py"
    assert all(f"<!-- options: {name} -->\n\n{table}" in TEXT for name, table in TABLES.items())


def test_every_column_that_is_written_is_listed() -> None:
    table = TEXT.split("## Writing")[1].split("| column |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= TYPES.keys()


def test_every_column_is_listed() -> None:
    table = TEXT.split("## Columns")[1].split("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= COLUMNS.keys()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)  # the first Spark test of a run waits for Java, too
def test_the_examples_run(spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send(10)
    broker.client.topics.create("copies", queues=1)
    examples = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    for name in ("table", "checkpoint", "checkpoint-of-copies"):
        examples = examples.replace(f'"{name}"', repr(str(tmp_path / name)))
    examples = examples.replace("drained/", f"{tmp_path}/drained/")
    exec(examples.replace("127.0.0.1:8081", broker.endpoint), {})
    broker.clock.advance(0)
    copies = broker.client.messages.browse("copies", max_messages=100).deliveries
    assert sorted(copy.body.decode() for copy in copies) == sorted(map(str, range(10)))
    texts = {row.text for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert texts == {str(number) for number in range(10)}
    assert spark.read.parquet(str(tmp_path / "drained")).count() == 10
    assert [broker.group(name).in_flight for name in ("spark", "jobs")] == [0, 0]
