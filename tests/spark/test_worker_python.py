"""A Python of Spark's workers that lacks the connector is named, with what to do."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import popmq_spark
from popmq_spark.worker_python import WorkerPythonError, check_python


def session(python: str, registered: list[Any]) -> Any:
    """As much of a classic session as `register` asks."""
    return SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec=python), dataSource=SimpleNamespace(register=registered.append)
    )


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without any packages."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec env -u PYTHONPATH {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_a_source_is_registered_where_the_workers_have_it() -> None:
    registered: list[Any] = []
    popmq_spark.register(session(sys.executable, registered))
    assert [source.name() for source in registered] == ["popmq"]


def test_a_python_without_the_connector_is_named_with_what_to_do(bare_python: str) -> None:
    registered: list[Any] = []
    with pytest.raises(WorkerPythonError, match="no popmq, no popmq_spark, no pyarrow") as refused:
        popmq_spark.register(session(bare_python, registered))
    assert registered == []
    assert f"PYSPARK_PYTHON before the session begins, on this machine to {sys.executable}" in str(refused.value)
    assert f'{bare_python} -m pip install "popmq[spark]"' in str(refused.value)


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerPythonError, match="does not run"):
        check_python(str(tmp_path / "python"))


def test_the_python_of_a_connect_server_is_not_looked_for() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    registered: list[Any] = []
    remote.dataSource = SimpleNamespace(register=registered.append)
    popmq_spark.register(remote)
    assert len(registered) == 1
