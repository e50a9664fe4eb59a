"""All of Airflow, as `airflow standalone` starts it: a DAG starts when a message arrives."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

import popmq
from harness.broker_process import ROOT, own_port
from popmq.testing import Broker

pytest.importorskip("airflow.triggers.shared_stream", reason="Airflow 3.3 is not here: make test-frameworks")

pytestmark = [pytest.mark.slow, pytest.mark.process]

#: Seconds for the start of six processes of Airflow.
START_S = 240
PROGRAMS = Path(sys.executable).parent


@pytest.mark.timeout(2 * START_S)
def test_the_dag_of_the_example_runs_for_each_message(popmq_broker: Broker, tmp_path: Path) -> None:
    client = popmq_broker.client()
    for topic in ("orders", "shipped"):
        client.topics.create(topic, queues=1)
    for group in ("airflow", "watcher"):
        client.groups.create(group)
    port = own_port()
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples/airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "POPMQ_ENDPOINT": popmq_broker.endpoint,
        "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]),  # it starts `airflow` for each part
    }
    command = [str(PROGRAMS / "airflow"), "standalone"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, process_group=0) as airflow,
    ):
        try:
            wait_for(port, airflow)
            # One after the other: of events that come together Airflow may keep some for the run of a later one.
            sent = [client.send("orders", "order 7")]
            shipped = popped(client, airflow)
            sent.append(client.send("orders", "order 8"))
            shipped += popped(client, airflow)
        finally:
            os.killpg(airflow.pid, signal.SIGTERM)
            airflow.wait(60)
    assert shipped == ["order 7", "order 8"]
    for one in sent:
        (life,) = client.messages.why(one.message_id, "orders", "airflow")
        assert life.groups[0].state == "acked"


def wait_for(port: int, airflow: "subprocess.Popen[bytes]") -> None:
    """Until the API server accepts connections: a task that is started before has failed."""
    end = monotonic() + START_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert airflow.poll() is None
            assert monotonic() < end


def popped(client: popmq.Client, airflow: "subprocess.Popen[bytes]") -> list[str]:
    """The next messages of the DAG."""
    end = monotonic() + START_S
    while not (batch := client.pop("shipped", "watcher", wait=10)):
        assert airflow.poll() is None
        assert monotonic() < end
    client.ack(batch)
    return [each.text() for each in batch]
