"""systemd's protocol: READY, STOPPING and the watchdog, as datagrams to $NOTIFY_SOCKET; without that, nothing.

    WatchdogSec=120 ──▶ WATCHDOG_USEC ──▶ every 60 s: the writer answers a query ──▶ WATCHDOG=1

Half the time is what sd_watchdog_enabled(3) recommends. A broker that hangs sends nothing, and systemd restarts it.
"""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping

from popmq_server.clock import pause


class Supervisor:
    """Speaks to the process that started this one. `environ`: this process's variables."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ means the abstract namespace, which begins with a zero byte.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds between two signs of life; 0 = no supervisor watches.
        self.every_s = int(usec) / 2_000_000 if usec.isdecimal() and mine and self._address else 0.0

    def say(self, *lines: str) -> None:
        """Sends one state. A supervisor that has gone is not an error."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.setblocking(False)
            notify.sendto("\n".join(lines).encode(), self._address)

    async def watch(self, alive: Callable[[], Awaitable[bool]]) -> None:
        """Reports signs of life until it is cancelled; `alive` waits as long as the broker hangs."""
        while self.every_s:
            if await alive():
                self.say("WATCHDOG=1")
            await pause(self.every_s)
