"""Idle connections: they answer PING and SETTINGS as HTTP/2 requires, make no calls, and reconnect.

python -m bench.soak_idle PORT CONNECTIONS
"""

import asyncio
import contextlib
import resource
import sys

from popmq_http2.frames import ACK, PING, PREFACE, SETTINGS, frame, settings

HEAD = 9
AGAIN_S, STARTS_PER_S = 1.0, 500


async def stay(port: int, wait_s: float) -> None:
    """One connection, made again whenever it ends."""
    await asyncio.sleep(wait_s)
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 14)
            try:
                writer.write(PREFACE + settings({}))
                while True:
                    head = await reader.readexactly(HEAD)
                    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] in (PING, SETTINGS) and not head[4] & ACK:
                        writer.write(frame(head[3], ACK, 0, payload if head[3] == PING else b""))
            finally:
                writer.close()
        await asyncio.sleep(AGAIN_S + wait_s)


async def main(port: int, connections: int) -> None:
    await asyncio.gather(*(stay(port, number / STARTS_PER_S) for number in range(connections)))


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
