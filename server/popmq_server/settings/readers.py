"""Readers of settings: text → value. They raise argparse.ArgumentTypeError, whose text argparse shows as it is."""

import argparse
import re
from collections.abc import Callable

from popmq_server.options import MAX_SIZE_MAX, MAX_SIZE_MIN, hosts

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([KMGT])(?:IB)?)?", re.ASCII | re.IGNORECASE)
_CLUSTER = re.compile(r"[A-Za-z0-9_-]{1,255}")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[^\s/?#,@]{1,255}")
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def size(text: str) -> int:
    """Parses a size in bytes: `1073741824`, `512MiB`, `1.5GiB`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: name bytes, or KiB, MiB, GiB, TiB, e.g. 20GiB")
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * (1 << 10 * (" KMGT".index(found[2].upper()) if found[2] else 0)))


def max_size(text: str) -> int:
    value = size(text)
    if not MAX_SIZE_MIN <= value <= MAX_SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text} is out of range: {MAX_SIZE_MIN >> 20}MiB to {MAX_SIZE_MAX >> 40}TiB")
    return value


def port(text: str) -> int:
    """A port, or 0, whose meaning depends on the setting."""
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0–65535")
    return int(text)


def number_of(what: str, most: int) -> Callable[[str], int]:
    """A reader of numbers from 1 to `most`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {what}: 1–{most:,}")
        return int(text)

    return read


def host_list(text: str) -> tuple[str, ...]:
    """A host, or several with commas between them."""
    try:
        return hosts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def origins(text: str) -> tuple[str, ...]:
    """Origins of web pages, as browsers send them, with commas between them; * for all."""
    found = tuple(one.strip() for one in text.split(","))
    for one in found:
        if one != "*" and not _ORIGIN.fullmatch(one):
            raise argparse.ArgumentTypeError(
                f"{one!r} is not an origin: name scheme, host and port if it is unusual, such as https://shop.example"
            )
    return found


def name_servers(text: str) -> tuple[str, ...]:
    """host:port, or several with commas between them."""
    return tuple(_name_server(one.strip()) for one in text.split(","))


def _name_server(text: str) -> str:
    host, _, port = text.rpartition(":")
    good = port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535
    if not host or not good or (":" in host) != (host[0] + host[-1] == "[]"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the address of a name server: name host and port, such as 10.0.0.1:9876, or [::1]:9876"
        )
    return text


def cluster(text: str) -> str:
    if not _CLUSTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a cluster: 1–255 letters, digits, '_' and '-'")
    return text


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def switch(text: str) -> bool:
    """A switch in the environment."""
    if text.lower() not in _SWITCH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _SWITCH[text.lower()]
