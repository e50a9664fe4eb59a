"""The process around an engine: what belongs to one engine only is asked of it, or is not there."""

import re
from pathlib import Path

import pytest

from harness.broker_process import own_port
from popmq_server.clock import FakeClock
from popmq_server.errors import StartError
from popmq_server.options import ENGINES, Options, Unnamed
from popmq_server.process.engines import FACTORIES
from popmq_server.settings import SettingError, load
from tests.wire.served import Served


def test_each_name_of_an_engine_has_a_factory() -> None:
    assert tuple(FACTORIES) == ENGINES
    assert Options().engine in ENGINES


def test_an_engine_without_a_store_shows_no_number_of_a_store(clock: FakeClock) -> None:
    with Served(clock, metrics_port=own_port()) as served:
        text = served.scraped()
    assert re.search(r'popmq_build_info\{.*kept="nowhere".*\} 1.0', text)
    for name in ("commit", "fsyncs", "store_", "schedule", "lease_lateness", "job_failures"):
        assert f"popmq_{name}" not in text, name
    assert "popmq_engine_answers 1.0" in text


def test_an_engine_is_closed_after_the_waits_of_its_clients(clock: FakeClock) -> None:
    with Served(clock) as served:
        pass
    assert served.life.ended == ["waits", "engine"]


def test_without_a_place_for_a_certificate_there_is_no_tls_unless_files_are_named(clock: FakeClock) -> None:
    port = own_port()
    with Served(clock, tls_port=Unnamed(port)) as served:
        assert (served.serving.certificate, served.serving.left_out) == (None, [])
    with pytest.raises(StartError, match="--tls-cert and --tls-key"), Served(clock, tls_port=port):
        pass
    assert served.life.ended == ["waits", "engine"], "also after a start that failed"


def test_a_setting_of_another_engine_is_refused_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "popmq.toml").write_text('max_size = "1GiB"\n')
    given = ["--engine", "rocketmq", "--namesrv", "a:9876"]
    for argv, environ, source in (
        (["--data", "d"], {}, "--data"),
        ([], {"POPMQ_SYNC": "none"}, "POPMQ_SYNC"),
        (["--config", str(tmp_path / "popmq.toml")], {}, f"{tmp_path / 'popmq.toml'}: max_size"),
    ):
        with pytest.raises(SettingError) as error:
            load([*given, *argv], environ)
        said = f"{source} is a setting of --engine embedded: leave it out with --engine rocketmq"
        assert str(error.value) == said
    assert load([*given, "--port", "9000"], {}).options.engine == "rocketmq"


@pytest.mark.parametrize("address", ["10.0.0.1", "a:b", "a:70000", ":9876", "a:9876,,b:9876", "a:9876,b"])
def test_an_address_of_a_name_server_without_a_port_is_refused_with_its_source_and_what_to_write(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = next(each for each in address.split(",") if each not in ("a:9876", "b:9876"))
    said = f"{wrong!r} is not the address of a name server: name host and port, such as 10.0.0.1:9876, or [::1]:9876"
    with pytest.raises(SystemExit) as ended:
        load(["--engine", "rocketmq", "--namesrv", address], {})
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument --namesrv: {said}\n")
    path = tmp_path / "popmq.toml"
    path.write_text(f'namesrv = "{address}"\n')
    for argv, environ, source in (
        ([], {"POPMQ_NAMESRV": address}, "POPMQ_NAMESRV"),
        (["--config", str(path)], {}, f"{path}: namesrv"),
    ):
        with pytest.raises(SettingError) as error:
            load(["--engine", "rocketmq", *argv], environ)
        assert str(error.value) == f"{source}: {said}"
