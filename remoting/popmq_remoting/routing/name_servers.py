"""Several name servers, which know nothing of each other: each may be down, restarted, or behind.

ask        in turn, beginning with the one that answered last, until one knows
tell_all   what has to be written to each of them
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from popmq_remoting.codes import ResponseCode
from popmq_remoting.connection.peer import Peer
from popmq_remoting.errors import BrokerRefused, DeadlineOver, RemotingError, Unreachable
from popmq_remoting.wire.command import Request, Response

#: Seconds that each name server gets at least, if the deadline allows it.
_SHARE_S = 0.5
#: "There is none": another one may know, since a restarted name server knows nothing yet.
_UNKNOWN = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND)


class NameServers:
    """The name servers of a cluster."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = list(peers)
        self._first = 0

    async def ask(self, request: Request, until_s: float) -> Response:
        """The first answer 0; else that there is none, if one says so. Raises the last error, or BrokerRefused."""
        answers: list[Response] = []
        error: RemotingError = Unreachable("there are no name servers")
        for tried in range(len(self._peers)):
            index = (self._first + tried) % len(self._peers)
            try:
                answer = await self._once(self._peers[index], request, until_s, len(self._peers) - tried)
            except RemotingError as caught:
                error = caught
                continue
            if answer.code == ResponseCode.SUCCESS:
                self._first = index
                return answer
            if answer.code in _UNKNOWN:
                answers.append(answer)
            else:
                error = BrokerRefused(answer.code, answer.remark, f"the name server {self._peers[index].address}")
        if not answers:
            raise error
        return answers[0]

    async def tell_all(self, request: Request, until_s: float) -> dict[str, Response | RemotingError]:
        """What each of them answered, by address."""
        outcomes = await asyncio.gather(*(self._told(peer, request, until_s) for peer in self._peers))
        return {peer.address: outcome for peer, outcome in zip(self._peers, outcomes, strict=True)}

    async def close(self) -> None:
        """Ends the connections."""
        await asyncio.gather(*(peer.close() for peer in self._peers))

    async def _once(self, peer: Peer, request: Request, until_s: float, left: int) -> Response:
        """An answer within this server's share of the time. The request only reads, so a lost one is repeated."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= until_s:
            raise DeadlineOver("no name server answered before the deadline", maybe_done=False)
        share_s = min(until_s, now_s + max(_SHARE_S, (until_s - now_s) / left))
        try:
            return await peer.call(request, share_s)
        except RemotingError as error:
            if not error.maybe_done or isinstance(error, DeadlineOver):
                raise
            return await peer.call(request, share_s)

    async def _told(self, peer: Peer, request: Request, until_s: float) -> Response | RemotingError:
        try:
            return await peer.call(request, until_s)
        except RemotingError as error:
            return error
