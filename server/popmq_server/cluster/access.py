"""How this gateway reaches its cluster, from its settings: addresses, TLS, its user, and the secret of its handles.

access_key = "gateway"          --broker-key FILE: TOML, mode 600
secret = "…"
token = "…"                     only of a temporary key
"""

import logging
import pathlib

from popmq_remoting import Cluster, ClusterSettings, ClusterTls, Credentials, TlsMode
from popmq_server.cluster.signed.secrets import Secrets, random_secrets, read_secrets
from popmq_server.errors import StartError
from popmq_server.options import Options
from popmq_server.private_file import file_version, read_private

log = logging.getLogger("popmq.cluster")

#: Fields of the file, and whether it needs them.
_FIELDS = {"access_key": True, "secret": True, "token": False}


def cluster_settings(options: Options, client_id: str) -> ClusterSettings:
    """What the client of the cluster is made with. Raises StartError for a file that cannot be used."""
    user = credentials(options.broker_key) if options.broker_key else None
    return ClusterSettings(options.namesrv, client_id, user, _tls(options))


def _tls(options: Options) -> ClusterTls:
    files = [str(path or "") for path in (options.broker_ca, options.broker_cert, options.broker_cert_key)]
    tls = ClusterTls(TlsMode(options.broker_tls), *files)
    try:
        tls.context()
    except OSError as error:  # ssl.SSLError is one
        which = ", ".join(filter(None, files))
        raise StartError(f"TLS to brokers cannot be used: {error.strerror or error}; it needs {which}") from None
    return tls


def credentials(path: pathlib.Path) -> Credentials:
    """The user of a file of --broker-key. Raises StartError: one sentence, which quotes no secret."""
    import tomllib  # here, as in settings/: most starts read no file

    try:
        table = tomllib.loads(read_private(path, "--broker-key"))
    except tomllib.TOMLDecodeError as error:
        raise StartError(f"{path} is not TOML: {error}") from None
    except ValueError as error:
        raise StartError(str(error)) from None
    if unknown := sorted(table.keys() - _FIELDS):
        raise StartError(f"{path}: there is no {unknown[0]!r}: {', '.join(_FIELDS)}")
    for name, needed in _FIELDS.items():
        value = table.get(name, "" if not needed else None)
        if not isinstance(value, str) or ((name in table or needed) and not value.strip()):
            raise StartError(f'{path}: {name} is not a text: write {name} = "…"')
    return Credentials(table["access_key"], table["secret"], table.get("token", ""))


def handle_secrets(options: Options) -> Secrets:
    """What handles are signed with. Raises StartError; also where a gateway has access keys, and no secret is named.

    Brokers compare no rights when they get a batch of acks, so there the signature is what keeps one key from the
    messages of another.
    """
    if options.handle_secret:
        return read_secrets(options.handle_secret)
    if options.access_keys:
        raise StartError(
            "--access-keys needs --handle-secret FILE, the same at all gateways: brokers do not compare rights when "
            "they get acks, so a signature of the gateways does; make one with `openssl rand -hex 32`"
        )
    return random_secrets()


class ReplacedFiles:
    """The files of --broker-key and --handle-secret: `reload` takes over what they have now."""

    def __init__(self, options: Options, cluster: Cluster, secrets: Secrets) -> None:
        self._cluster, self._secrets = cluster, secrets
        takes = ((options.broker_key, self._sign), (options.handle_secret, self._read))
        self._takes = {path: take for path, take in takes if path}
        self._seen = {path: file_version(path) for path in self._takes}

    def reload(self) -> list[str]:
        """What changed. A file that cannot be used is logged, and what it had before stays in use."""
        changes = []
        for path, take in self._takes.items():
            seen = file_version(path)
            if seen == self._seen[path]:
                continue
            self._seen[path] = seen
            try:
                changes.append(take(path))
            except StartError as error:
                log.error("a new file cannot be used; what it had before stays in use: %s", error)
        return changes

    def _sign(self, path: pathlib.Path) -> str:
        user = credentials(path)
        self._cluster.sign_with(user)
        return f"requests to brokers are signed as {user.access_key} ({path})"

    def _read(self, path: pathlib.Path) -> str:
        secrets = read_secrets(path)
        self._secrets.replace(secrets)
        return f"handles are signed with the first secret of {path}, of {secrets.count}"
