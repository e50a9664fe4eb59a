"""What calls of one turn ask for together (collecting.py)."""

import asyncio
from collections.abc import Iterator, Sequence

from popmq_server.cluster.collecting import Collector, Share
from tests.remoting.jumping import jumping


@jumping
async def test_a_plan_that_fails_is_told_at_once_to_each_caller_that_it_left_out() -> None:
    async def done() -> list[str]:
        return ["done"]

    def plan(_: Sequence[str]) -> Iterator[Share[str]]:
        yield Share([1], done())
        raise ValueError("the rest cannot be planned")

    loop = asyncio.get_running_loop()
    collector, began_s = Collector[str, str](plan), loop.time()
    asked = [collector.ask(item, began_s + 30.0) for item in ("first", "second", "third")]
    first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert second == "done"
    assert [str(failed) for failed in (first, third)] == ["the rest cannot be planned"] * 2
    assert loop.time() == began_s
