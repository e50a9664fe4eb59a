"""docs/integrations/taskiq.md and examples/taskiq_app.py, as their readers use them."""

from pathlib import Path

import pytest

from popmq.testing import Broker
from tests.integrations import pages
from tests.integrations.programs import Program
from tests.sources import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_the_page_runs(popmq_broker: Broker, tmp_path: Path) -> None:
    pages.run("taskiq.md", tmp_path, popmq_broker, "-m", "taskiq", "worker", "app:broker", "--workers", "1")


def test_the_example_runs(popmq_broker: Broker, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "taskiq_app.py").read_text()
    worker = ("-m", "taskiq", "worker", "app:broker", "--workers", "1")
    with Program(tmp_path, text, *worker, POPMQ_ENDPOINT=popmq_broker.endpoint):
        sender = Program(tmp_path, text, "app.py", POPMQ_ENDPOINT=popmq_broker.endpoint)
        assert sender.wait() == 0, sender.log.read_text()
    told = sender.log.read_text()
    assert "thumbnail of cat.png" in told
    assert "ValueError: broken.png is no image" in told
