"""Settings of `popmq serve`: flags, variables and the file name the same table; what SIGHUP reads again."""

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.broker_process import ROOT, BrokerProcess
from popmq_cli.broker.serve import serve
from popmq_http2.frames import ENHANCE_YOUR_CALM
from popmq_server.clock import FakeClock
from popmq_server.options import JOURNAL, TRANSPORT, Options
from popmq_server.process.reloading import Reload
from popmq_server.process.serving import Serving
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.settings import SETTINGS, SettingError, load, misspelt
from scripts.settings_table import PAGE, written
from tests.http2.frame_client import FrameClient
from tests.wire.access.signing import KEYS, write_keys

OTHER_TRANSPORT = "python" if TRANSPORT == "grpcio" else "grpcio"
OTHER_JOURNAL = "off" if JOURNAL == "on" else "on"
#: For each setting a value that is not its default, as a flag and a variable name it, and in the file.
VALUES = {
    "engine": ("rocketmq", '"rocketmq"'),
    "data": ("elsewhere", '"elsewhere"'),
    "host": ("10.0.0.5,[::1]", '["10.0.0.5", "::1"]'),
    "port": ("9000", "9000"),
    "tls_port": ("9001", "9001"),
    "tls_only": ("true", "true"),
    "tls_cert": ("c.pem", '"c.pem"'),
    "tls_key": ("k.pem", '"k.pem"'),
    "tls_client_ca": ("ca.pem", '"ca.pem"'),
    "tls_client_required": ("true", "true"),
    "http_port": ("9003", "9003"),
    "http_origins": ("https://shop.example,*", '["https://shop.example", "*"]'),
    "access_keys": ("keys.toml", '"keys.toml"'),
    "metrics_port": ("9002", "9002"),
    "metrics_host": ("::1,127.0.0.2", '["::1", "127.0.0.2"]'),
    "console_port": ("8090", "8090"),
    "console_host": ("::1", '"::1"'),
    "max_size": ("20GiB", '"20GiB"'),
    "sync": ("meta", '"meta"'),
    "journal": (OTHER_JOURNAL, f'"{OTHER_JOURNAL}"'),
    "transport": (OTHER_TRANSPORT, f'"{OTHER_TRANSPORT}"'),
    "connections_per_address": ("5", "5"),
    "namesrv": ("10.0.0.1:9876,[::1]:9876", '["10.0.0.1:9876", "[::1]:9876"]'),
    "cluster": ("east", '"east"'),
    "broker_key": ("key.toml", '"key.toml"'),
    "broker_tls": ("verify", '"verify"'),
    "broker_ca": ("broker-ca.pem", '"broker-ca.pem"'),
    "broker_cert": ("broker.pem", '"broker.pem"'),
    "broker_cert_key": ("broker-key.pem", '"broker-key.pem"'),
    "handle_secret": ("handles", '"handles"'),
    "workers": ("4", "4"),
    "member_connections": ("10", "10"),
    "log_level": ("debug", '"debug"'),
    "log_format": ("json", '"json"'),
}
GATEWAY = ("engine", "namesrv")
#: Settings that are valid only together.
TOGETHER = {
    **{setting.name: GATEWAY for setting in SETTINGS if setting.engines == ("rocketmq",)},
    "engine": ("namesrv",),
    "namesrv": ("engine",),
    "workers": (*GATEWAY, "handle_secret"),
    "broker_ca": (*GATEWAY, "broker_tls"),
    "broker_cert": (*GATEWAY, "broker_tls", "broker_cert_key"),
    "broker_cert_key": (*GATEWAY, "broker_tls", "broker_cert"),
    "tls_cert": ("tls_key",),
    "tls_key": ("tls_cert",),
    "tls_client_required": ("tls_client_ca",),
    "tls_client_ca": ("access_keys",),
}


def flags(*names: str) -> list[str]:
    return [word for name in names for word in (f"--{name.replace('_', '-')}", VALUES[name][0]) if word != "true"]


def variables(*names: str) -> dict[str, str]:
    return {f"POPMQ_{name.upper()}": VALUES[name][0] for name in names}


def file_of(path: Path, *names: str) -> list[str]:
    path.write_text("".join(f"{name} = {VALUES[name][1]}\n" for name in names))
    return ["--config", str(path)]


def test_every_setting_has_a_flag_a_variable_and_a_key() -> None:
    assert [setting.name for setting in SETTINGS] == list(VALUES)
    assert set(VALUES) == set(Options._fields)


@pytest.mark.parametrize("name", VALUES)
def test_a_flag_a_variable_and_a_key_mean_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = (name, *TOGETHER.get(name, ()))
    flagged = load(flags(*names), {}).options
    assert getattr(flagged, name) != getattr(load([], {}).options, name)
    assert load([], variables(*names)).options == flagged
    assert load(file_of(Path("popmq.toml"), *names), {}).options == flagged


def test_a_flag_decides_before_a_variable_and_that_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "popmq.toml"
    path.write_text('port = 1\ntls_port = 1\nmetrics_port = 1\nsync = "none"\n')
    environ = {"POPMQ_CONFIG": str(path), "POPMQ_PORT": "2", "POPMQ_TLS_PORT": "2"}
    settings = load(["--port", "3"], environ)
    options = settings.options
    assert (options.port, options.tls_port, options.metrics_port, options.sync) == (3, 2, 1, "none")
    assert settings.sources == {
        "port": "--port",
        "tls_port": "POPMQ_TLS_PORT",
        "metrics_port": str(path),
        "sync": str(path),
    }
    assert str(settings).startswith("port = 3 (--port), tls_port = 2 (POPMQ_TLS_PORT), ")
    assert str(load([], {})) == "all defaults"


def test_a_flag_turns_off_what_the_file_turns_on(tmp_path: Path) -> None:
    config = file_of(tmp_path / "popmq.toml", "tls_only")
    assert load(config, {}).options.tls_only
    assert not load([*config, "--no-tls-only"], {}).options.tls_only
    assert not load(config, {"POPMQ_TLS_ONLY": "false"}).options.tls_only


def test_hosts_are_a_repeated_flag_a_text_with_commas_or_a_list(tmp_path: Path) -> None:
    hosts = ("10.0.0.5", "::1", "queue.example")
    assert load(["--host", "10.0.0.5", "--host", "[::1], queue.example"], {}).options.host == hosts
    assert load([], {"POPMQ_HOST": "10.0.0.5,[::1],queue.example"}).options.host == hosts
    path = tmp_path / "popmq.toml"
    for text in ('["10.0.0.5", "::1", "queue.example"]', '"10.0.0.5, ::1, queue.example"'):
        path.write_text(f"host = {text}\n")
        assert load(["--config", str(path)], {}).options.host == hosts
    replaced = load(["--config", str(path), "--host", "::1"], {})
    assert replaced.options.host == ("::1",), "a flag replaces the list, and adds nothing to it"
    assert str(load(["--host", "10.0.0.5", "--host", "::1"], {})) == "host = 10.0.0.5,::1 (--host)"


def test_paths_in_the_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "popmq.toml"
    path.write_text('data = "store"\naccess_keys = "/etc/keys.toml"\n')
    options = load(["--config", str(path)], {}).options
    assert (options.data, options.access_keys) == (tmp_path / "store", Path("/etc/keys.toml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-size = 1", "there is no setting 'max-size'; did you mean max_size?"),
        ("tsl_port = 1", "there is no setting 'tsl_port'; did you mean tls_port?"),
        ("zzz = 1", "there is no setting 'zzz'$"),
        ("[server]\nport = 1", "there is no setting 'server'"),
        ("config = 'other.toml'", "there is no setting 'config'"),
        ("port = true", "port has to be a text or a whole number"),
        ("port = [8081]", "port has to be a text or a whole number"),
        ("max_size = 1.5", "max_size has to be a text or a whole number"),
        ("data = ''", "data is empty, or has a zero byte: name a value, or leave the line out"),
        ("access_keys = ''", "access_keys is empty"),
        ("host = ''", "host is empty"),
        ("host = []", "host is empty"),
        ("host = 5", "host has to be a text, or a list of texts"),
        ("host = ['::1', 5]", "host has to be a text, or a list of texts"),
        ("host = ['::1', '']", "host: a host is empty: name an address of this machine"),
        ("host = ['0.0.0.0', '10.0.0.5']", "--host: 0.0.0.0 covers 10.0.0.5 too: leave 10.0.0.5 out"),
        ("metrics_host = '::1, ::1'", "--metrics-host: ::1 is named twice"),
        ("console_host = ['::', '::1']", "--console-host: :: covers ::1 too"),
        ('data = "d\\u0000x"', "data is empty, or has a zero byte"),
        ("tls_only = 'yes'", "tls_only has to be true or false"),
        ("port = 65536", "port: '65536' is not a port"),
        ("sync = 'never'", "sync: 'never' is not one of full, meta, none"),
        ("tls_cert = 'c.pem'", "belong together"),
        ("port = ", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "popmq.toml"
    path.write_text(text)
    with pytest.raises(SettingError, match=says):
        load(["--config", str(path)], {})


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"none\.toml: No such file"):
        load(["--config", str(tmp_path / "none.toml")], {})


def test_an_unknown_flag_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(["--max-sise=20GiB"], {})
    assert "there is no flag --max-sise; did you mean --max-size?" in capsys.readouterr().err


def test_variables_that_are_empty_or_a_service_link_count_as_not_set() -> None:
    assert load([], {"POPMQ_PORT": "tcp://10.0.0.7:8081", "POPMQ_SYNC": ""}).sources == {}


def test_an_empty_variable_leaves_the_journal_on_and_the_transport_to_the_release() -> None:
    """Both are the defaults of embedded brokers too, so they are read when the module is."""
    code = "from popmq_server.options import Options; print(Options().journal, Options().transport)"
    environment = os.environ | {"POPMQ_JOURNAL": "", "POPMQ_TRANSPORT": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "on auto\n"


@pytest.mark.parametrize("text", ["maybe", "tcp://x"])
def test_a_variable_that_is_wrong_is_named(text: str) -> None:
    with pytest.raises(SettingError, match="POPMQ_TLS_ONLY: "):
        load([], {"POPMQ_TLS_ONLY": text})


def test_a_variable_that_resembles_a_setting_is_told() -> None:
    assert misspelt({"POPMQ_MAXSIZE": "1GiB", "POPMQ_LOGLEVEL": "", "POPMQ_DATA": "x"}) == [
        "POPMQ_LOGLEVEL is no setting of the broker; did you mean POPMQ_LOG_LEVEL?",
        "POPMQ_MAXSIZE is no setting of the broker; did you mean POPMQ_MAX_SIZE?",
    ]


def test_no_variable_of_clients_or_of_a_kubernetes_service_resembles_a_setting() -> None:
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("cli.md", "sdk.md", "operations.md"))
    documented = set(re.findall(r"POPMQ_[A-Z_]*[A-Z]", pages)) - {"POPMQ_MAXSIZE"}
    service = {"POPMQ_SERVICE_HOST", "POPMQ_SERVICE_PORT", "POPMQ_SERVICE_PORT_GRPC", "POPMQ_PORT_8081_TCP_ADDR"}
    assert "POPMQ_ACCESS_KEY" in documented
    assert misspelt(dict.fromkeys(documented | service, "x")) == []


def test_the_table_of_the_page_is_the_brokers_table() -> None:
    assert written(PAGE.read_text()) == PAGE.read_text(), "run python scripts/settings_table.py"


def test_the_file_of_the_page_is_understood(tmp_path: Path) -> None:
    (text,) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL | re.MULTILINE
    )
    path = tmp_path / "popmq.toml"
    path.write_text(text)
    assert load(["--config", str(path)], {}).options.max_size == 200 << 30


def test_the_command_line_has_an_option_for_each_setting() -> None:
    named = {option.name for option in serve.get_params(click.Context(serve))}
    assert {"config", *(setting.name for setting in SETTINGS)} < named


# ── SIGHUP ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reloaded:
    """A reload without a broker: a file of settings, and the lines of the log."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.path = folder / "popmq.toml"
        self.path.write_text('log_level = "info"\n')
        self._argv = ["--config", str(self.path)]
        settings = load(self._argv, {})
        self._caplog = caplog
        self._reload = Reload(self._argv, settings, Serving(settings.options, FakeClock()).reload)

    def __call__(self, text: str) -> str:
        self.path.write_text(text)
        self._caplog.clear()
        self._reload()
        return "\n".join(each.getMessage() for each in self._caplog.records if each.name == "popmq.reload")


@pytest.fixture
def reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reloaded]:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    before = logging.getLogger().level
    with caplog.at_level(logging.INFO, "popmq.reload"):
        yield Reloaded(tmp_path, caplog)
    logging.getLogger().setLevel(before)


def test_a_reload_applies_the_log_level_and_says_so_once(reloaded: Reloaded) -> None:
    assert reloaded('log_level = "debug"\n') == "reload: log_level is debug, it was info"
    assert logging.getLogger().level == logging.DEBUG
    assert reloaded('log_level = "debug"\n') == "reload: nothing changed"


def test_a_reload_says_which_setting_needs_a_restart(reloaded: Reloaded) -> None:
    assert reloaded("port = 9000\n") == "reload: port stays 8081: 9000 needs a restart"


def test_a_reload_names_hosts_as_a_variable_does(reloaded: Reloaded) -> None:
    said = reloaded('host = ["10.0.0.5", "::1"]\n')
    assert said == "reload: host stays 127.0.0.1: 10.0.0.5,::1 needs a restart"


def test_a_reload_of_a_file_that_cannot_be_used_changes_nothing(reloaded: Reloaded) -> None:
    said = reloaded('log_level = "debug"\nporrt = 1\n')
    assert "nothing changed" in said
    assert "did you mean port?" in said
    assert logging.getLogger().level != logging.DEBUG


def test_a_reload_of_access_keys_names_those_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    write_keys(path, KEYS)
    keys = Keys(path)
    assert keys.reload() == ""
    kept = {name: allow for name, allow in KEYS.items() if name != "other"}
    write_keys(path, {**kept, "clerk": ["admin"], "reader": ["admin"]})
    assert keys.reload() == f"the access keys of {path} were replaced: added clerk; changed reader; removed other"
    write_keys(path, {**kept, "clerk": ["admin"], "reader": ["admin"]})
    assert keys.reload().endswith("the same keys")
    path.write_text("nonsense")
    assert keys.reload() == ""


@pytest.mark.slow
@pytest.mark.process
def test_sighup_reloads_and_the_broker_goes_on(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.toml", KEYS)
    config = tmp_path / "popmq.toml"
    config.write_text('access_keys = "keys.toml"\n')
    with BrokerProcess(tmp_path / "data", "--config", str(config)) as broker:
        assert "(--data)" in broker.wait_log("settings: data = ")
        write_keys(tmp_path / "keys.toml", {"root": ["*"]})
        config.write_text('access_keys = "keys.toml"\nlog_level = "debug"\n')
        os.kill(broker.pid, signal.SIGHUP)
        said = broker.wait_log("reload: ")
        assert "log_level is debug, it was info; the access keys of" in said
        assert "removed nothing, operator, other, reader, sender" in said
        assert broker.stop() == 0


@pytest.mark.parametrize("text", ["0", "-1", "1000001", "many", "1.5"])
def test_a_number_of_connections_that_cannot_be_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load([f"--connections-per-address={text}"], {})
    assert "is not a number of connections: 1–1,000,000" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "10.0.0.1:", ":9876", "10.0.0.1:0", "10.0.0.1:65536", "::1:9876", "a:9876,", "http://a:x", ""]
)
def test_an_address_of_a_name_server_has_a_host_and_a_port(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load(["--engine", "rocketmq", f"--namesrv={text}"], {})
    assert ended.value.code == 2
    assert "name host and port, such as 10.0.0.1:9876, or [::1]:9876" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "finds its cluster by --namesrv: name HOST:PORT of each name server"),
        ("--namesrv a:9876 --namesrv a:9876", "--namesrv a:9876,a:9876 names an address twice"),
        ("--namesrv a:9876 --data d", "--data is a setting of --engine embedded: leave it out with --engine rocketmq"),
        ("--namesrv a:9876 --max-size 1GiB", "--max-size is a setting of --engine embedded"),
        ("--namesrv a:9876 --sync none", "--sync is a setting of --engine embedded"),
        ("--namesrv a:9876 --broker-cert c --broker-tls on", "--broker-cert and --broker-cert-key belong together"),
        ("--namesrv a:9876 --broker-cert c --broker-cert-key k", "--broker-cert is shown over TLS only"),
        ("--namesrv a:9876 --broker-ca c --broker-tls on", "--broker-ca has no use with --broker-tls on: name verify"),
        (
            "--namesrv a:9876 --workers 2",
            "--workers 2 are processes that take each other's handles: name --handle-secret",
        ),
        (
            "--namesrv a:9876 --workers 2 --handle-secret s --transport grpcio",
            "--transport grpcio serves with one process",
        ),
    ],
)
def test_settings_that_a_gateway_cannot_use_are_one_sentence(given: str, says: str) -> None:
    with pytest.raises(SettingError, match=re.escape(says)):
        load(["--engine", "rocketmq", *given.split()], {})


@pytest.mark.parametrize("given", ["--namesrv a:9876", "--workers 2", "--handle-secret s"])
def test_settings_of_a_gateway_are_refused_without_its_engine(given: str) -> None:
    with pytest.raises(SettingError, match="is a setting of --engine rocketmq: leave it out with --engine embedded"):
        load(given.split(), {})


@pytest.mark.parametrize("transport", ["auto", "python"])
async def test_the_limit_of_connections_reaches_popmqs_own_transport(transport: str, tmp_path: Path) -> None:
    """grpcio has no such limit: with auto, too, the transport is PopMQ's own."""
    options = Options(tmp_path / "data", port=0, metrics_port=0, transport=transport, connections_per_address=1)
    async with Serving(options, FakeClock()) as serving:
        clients = [await FrameClient.connect(serving.port) for _ in range(2)]
        await clients[0].greet()
        assert await clients[1].gone() == ENHANCE_YOUR_CALM
        await clients[0].alive()
        for client in clients:
            client.close()
