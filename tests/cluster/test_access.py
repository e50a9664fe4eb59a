"""Settings of a gateway → how it reaches its cluster; files that are replaced while it runs."""

import asyncio
import logging
from pathlib import Path

import pytest

from popmq_remoting import Cluster, Credentials, Request, RequestCode, TlsMode
from popmq_server.cluster.access import ReplacedFiles, cluster_settings, credentials, handle_secrets
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.errors import StartError
from popmq_server.options import Options
from tests.remoting.fake.cluster import FakeCluster

GATEWAY = Options(engine="rocketmq", namesrv=("a:9876", "b:9876"))
KEY = 'access_key = "gateway"\nsecret = "the secret"\n'
OLD, NEW = "the old secret of the gateways", "the new secret of the gateways"


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    """Replaced as operators do it: the version of the file changes even within one tick of the clock."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(mode)
    return fresh.rename(path)


def test_without_more_settings_requests_are_plain_and_unsigned() -> None:
    settings = cluster_settings(GATEWAY, "me")
    assert (settings.name_servers, settings.client_id) == (GATEWAY.namesrv, "me")
    assert (settings.credentials, settings.tls.mode) == (None, TlsMode.OFF)


def test_a_broker_key_is_a_user_with_a_secret_and_perhaps_a_token(tmp_path: Path) -> None:
    path = private(tmp_path / "key.toml", KEY)
    assert credentials(path) == Credentials("gateway", "the secret")
    assert credentials(private(path, f'{KEY}token = "t"\n')) == Credentials("gateway", "the secret", "t")
    settings = cluster_settings(GATEWAY._replace(broker_key=path, broker_tls="on"), "me")
    assert (settings.credentials, settings.tls.mode) == (Credentials("gateway", "the secret", "t"), TlsMode.ON)


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (KEY, 0o644, r"others may read .* \(mode 644\): chmod 600"),
        ("access_key = ", 0o600, "is not TOML"),
        ('access_key = "gateway"', 0o600, 'secret is not a text: write secret = "…"'),
        ('access_key = 5\nsecret = "the secret"', 0o600, "access_key is not a text"),
        ('access_key = " "\nsecret = "the secret"', 0o600, "access_key is not a text"),
        (f"{KEY}token = 5", 0o600, "token is not a text"),
        (f'{KEY}tokan = "t"', 0o600, "there is no 'tokan': access_key, secret, token"),
    ],
)
def test_a_broker_key_that_does_not_serve_says_what_to_do_and_no_secret(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(StartError, match=says) as refused:
        credentials(private(tmp_path / "key.toml", text, mode))
    assert "the secret" not in str(refused.value)


def test_a_file_that_is_missing_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file or directory; name a file that is there with --broker-key"):
        credentials(tmp_path / "none")


def test_files_of_tls_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("no certificate")
    for path in (wrong, tmp_path / "none"):
        with pytest.raises(StartError, match=f"TLS to brokers cannot be used: .*; it needs {path}"):
            cluster_settings(GATEWAY._replace(broker_tls="verify", broker_ca=path), "me")


def test_a_gateway_with_access_keys_needs_a_secret_for_its_handles(tmp_path: Path) -> None:
    """Without one, each gateway would sign with its own, and brokers compare no rights when they get acks."""
    guarded = GATEWAY._replace(access_keys=tmp_path / "keys.toml")
    with pytest.raises(StartError, match="--access-keys needs --handle-secret FILE, the same at all gateways"):
        handle_secrets(guarded)
    path = private(tmp_path / "handles", NEW)
    signed = handle_secrets(guarded._replace(handle_secret=path)).sign(b"kind", b"content")
    assert signed == Secrets([NEW.encode()]).sign(b"kind", b"content")
    assert handle_secrets(GATEWAY).sign(b"kind", b"content") != handle_secrets(GATEWAY).sign(b"kind", b"content")


async def test_files_that_are_replaced_are_taken_over_and_an_unusable_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, handles = private(tmp_path / "key.toml", KEY), private(tmp_path / "handles", OLD)
    options = GATEWAY._replace(broker_key=key, handle_secret=handles)
    async with FakeCluster(secrets={"gateway": "the secret", "other": "its secret"}) as fake:
        fake.create("t")
        secrets = handle_secrets(options)
        cluster = Cluster(fake.settings(credentials(key)))
        files = ReplacedFiles(options, cluster, secrets)
        assert files.reload() == []
        old = secrets.sign(b"kind", b"content").decode()
        private(key, 'access_key = "other"\nsecret = "its secret"\n')
        private(handles, f"{NEW}\n{OLD}\n")
        assert files.reload() == [
            f"requests to brokers are signed as other ({key})",
            f"handles are signed with the first secret of {handles}, of 2",
        ]
        request = Request(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert (await cluster.call("a", request, asyncio.get_running_loop().time() + 5)).code == 0
        assert fake.brokers["a"].requests[-1].fields["AccessKey"] == "other"
        assert secrets.open(b"kind", old) == b"content"
        assert secrets.sign(b"kind", b"content") == Secrets([NEW.encode()]).sign(b"kind", b"content")
        private(handles, "short")
        with caplog.at_level(logging.ERROR, "popmq.cluster"):
            assert files.reload() == []
        assert "what it had before stays in use: " in caplog.text
        assert secrets.open(b"kind", old) == b"content"
        await cluster.close()
