"""Two sources of one Spark application never share the messages of a group in silence."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from popmq_spark.lease import claims
from popmq_spark.options import OptionError
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import MicroBatches, ids

BOTH = "another source of this Spark application reads the topic 'orders' as the group spark.*mode=offsets"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For temporary files, and no patience: the other source does not end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(claims, "PATIENCE_S", claims.LOOK_S)
    return tmp_path / f"popmq-spark-{os.getuid()}"


def source(broker: Broker, application: int = 1, **options: str) -> MicroBatches:
    query = broker.query(**options)
    query.application = application
    return query


def test_the_second_source_of_an_application_that_reads_a_topic_as_the_group_is_refused_before_it_pops(
    broker: Broker,
) -> None:
    broker.send(10)
    first, second = source(broker, maxRowsPerTrigger="5"), source(broker)
    first.trigger()
    with pytest.raises(OptionError, match=BOTH):
        second.trigger()
    assert (broker.group().ready, broker.group().in_flight) == (5, 5)
    first.run()
    assert len(set(ids(first.rows()))) == 10


def test_other_groups_topics_brokers_and_applications_do_not_meet(broker: Broker) -> None:
    broker.client.topics.create("copies")
    queries = [source(broker), source(broker, topic="copies"), source(broker, group="other"), source(broker, 2)]
    assert [query.trigger() for query in queries] == [False] * 4


def test_a_topic_that_a_pattern_finds_later_is_claimed_too(broker: Broker) -> None:
    first = source(broker, topicPattern="cop.*", topic="")
    del first.options["topic"]
    assert first.trigger() is False
    broker.client.topics.create("copies")
    assert first.trigger() is False
    with pytest.raises(OptionError, match="the topic 'copies' as the group spark"):
        source(broker, topic="copies").trigger()


def test_queries_that_ended_and_restarts_of_those_that_did_not_are_no_second_source(
    broker: Broker, folder: Path
) -> None:
    first = source(broker)
    first.trigger()
    assert len([*folder.iterdir()]) == 1
    restarted = source(broker)
    broker.send(5)
    first.trigger()
    restarted.offsets, restarted.commits = list(first.offsets), list(first.commits)
    assert restarted.trigger() is False
    first.stop()
    restarted.stop()
    assert [*folder.iterdir()] == []
    assert source(broker).trigger() is False


@pytest.mark.process
def test_the_file_of_a_process_that_was_killed_is_removed(broker: Broker, folder: Path) -> None:
    program = (
        "import os, tempfile; from popmq_spark.lease.claims import Claim; from popmq_spark.options import Options\n"
        f"tempfile.tempdir = {str(folder.parent)!r}\n"
        f"options = Options.parse({{'endpoint': {broker.endpoint!r}, 'topic': {TOPIC!r}, 'group': 'spark'}})\n"
        f"Claim(1, options, 'killed').add([{TOPIC!r}])\n"
        "print('claimed', flush=True); input()"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout
    assert other.stdin
    with other:
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(OptionError, match=BOTH):
            source(broker).trigger()
        other.kill()
    assert source(broker).trigger() is False
    assert len([*folder.iterdir()]) == 1


def test_sources_are_not_refused_without_a_folder_for_temporary_files(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    assert [source(broker).trigger(), source(broker).trigger()] == [False, False]
    assert "it is not known whether another source" in caplog.text
