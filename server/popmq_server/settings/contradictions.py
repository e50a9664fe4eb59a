"""Settings that contradict each other: what is refused before anything is opened."""

from popmq_server.options import Options, is_loopback, overlap
from popmq_server.settings.readers import host_list
from popmq_server.settings.table import SETTINGS, shown


def contradiction(options: Options) -> str:
    """The fault of settings that contradict each other; "" = none."""
    if bool(options.tls_cert) != bool(options.tls_key):
        return "--tls-cert and --tls-key belong together: name both files, or neither"
    if not options.tls_port and (options.tls_only or options.tls_cert):
        return "--tls-port 0 serves no TLS: name a port, or leave out --tls-only, --tls-cert and --tls-key"
    if why := _client_certificates_fault(options):
        return why
    if why := _cluster_fault(options):
        return why
    for setting in SETTINGS:
        if setting.read is host_list and (why := overlap(getattr(options, setting.name))):
            return f"{setting.flag}: {why}"
    if options.console_port and not options.tls_cert and not is_loopback(options.console_host):
        hosts = shown(options.console_host)
        return f"--console-host {hosts} would send secrets in clear: name --tls-cert and --tls-key too"
    if options.console_port and options.tls_only and options.tls_cert:
        return "--console-port cannot name the host of --tls-cert: use `popmq console --tls --endpoint HOST:PORT`"
    return ""


def _client_certificates_fault(options: Options) -> str:
    """The fault of the settings of client certificates; "" = none."""
    if options.tls_client_required and not options.tls_client_ca:
        return "--tls-client-required compares certificates with the authorities of --tls-client-ca: name that file"
    if not options.tls_client_ca:
        return ""
    if not options.tls_port:
        return "--tls-port 0 serves no TLS: name a port, or leave out --tls-client-ca"
    if not (options.tls_client_required or options.access_keys):
        return "--tls-client-ca finds a client's access key: name --access-keys, or --tls-client-required"
    if options.transport == "grpcio" and not options.tls_client_required:
        return "--transport grpcio asks for client certificates only with --tls-client-required"
    if options.console_port and options.tls_only and options.tls_client_required:
        return "--console-port has no client certificate to show: leave the port without TLS open, or serve no console"
    return ""


def _cluster_fault(options: Options) -> str:
    """The fault of the settings of a gateway; "" = none."""
    if options.engine == "rocketmq" and not options.namesrv:
        return "--engine rocketmq finds its cluster by --namesrv: name HOST:PORT of each name server"
    if len({*options.namesrv}) < len(options.namesrv):
        return f"--namesrv {shown(options.namesrv)} names an address twice: leave one of them out"
    if bool(options.broker_cert) != bool(options.broker_cert_key):
        return "--broker-cert and --broker-cert-key belong together: name both files, or neither"
    if options.broker_cert and options.broker_tls == "off":
        return "--broker-cert is shown over TLS only: name --broker-tls on or verify, or leave it out"
    if options.broker_ca and options.broker_tls != "verify":
        return f"--broker-ca has no use with --broker-tls {options.broker_tls}: name verify, or leave it out"
    if options.workers > 1 and not options.handle_secret:
        return f"--workers {options.workers} are processes that take each other's handles: name --handle-secret FILE"
    if options.workers > 1 and options.transport == "grpcio":
        return "--transport grpcio serves with one process: leave it out, or --workers"
    return ""
