"""The manual tells the truth: its options are the code's, its example runs."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from popmq_spark.options import OPTIONS
from popmq_spark.schema import COLUMNS
from tests.spark.conftest import Broker

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_the_table_of_options_is_the_code_s() -> None:
    rows = [
        f"| `{option.name}` | {'required' if option.default is None else option.default or 'unset'} | {option.text} |"
        for option in OPTIONS
        if option.name not in ("filter", "topics")
    ]
    assert "\n".join(rows) in TEXT


def test_every_column_is_listed() -> None:
    table = TEXT.split("## Columns")[1].split("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= COLUMNS.keys()


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_runs(spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send(10)
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    for name in ("table", "checkpoint"):
        example = example.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(example.replace("127.0.0.1:8081", broker.endpoint), {})
    texts = {row.text for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert texts == {str(number) for number in range(10)}
    assert broker.group().in_flight == 0
