"""Waits until sockets are ready: with poll, or with select where there is no poll (Windows; eventlet removes it)."""

from __future__ import annotations

import select
import socket

#: Bits of events, with the numbers of Linux; poll has others on other systems.
READ, WRITE = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)


class Selecting:
    """What `select.poll()` returns, over select, which takes few descriptors: a connection has two."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, waits: socket.socket, events: int) -> None:
        """Waits for these events of a socket from now on."""
        self._wanted[waits.fileno()] = events

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        """Descriptors, each with its events. An error shows as readable: the next read raises it."""
        reads = [descriptor for descriptor, events in self._wanted.items() if events & READ]
        writes = [descriptor for descriptor, events in self._wanted.items() if events & WRITE]
        readable, writable, broken = select.select(reads, writes, reads, timeout_ms / 1000)
        found = dict.fromkeys((*readable, *broken), READ)
        for descriptor in writable:
            found[descriptor] = found.get(descriptor, 0) | WRITE
        return list(found.items())


def poller() -> select.poll | Selecting:
    """What this system has."""
    return select.poll() if hasattr(select, "poll") else Selecting()
