"""Equal pops of one commit batch that the engine ran as one, as the model judges them: one pop of as many messages.

    PopStep PopStep PopStep, each answered with one message of one CheckPoint   ──▶   PopStep of three, its three rows

What each pop got by itself stays a pop of one message.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.values.leased import Leased
from tests.engine.search.model.model_facts import must
from tests.engine.search.steps import PopStep

#: A step, its command, its result, and the position of the group after it.
Ran = tuple[Any, Any, Any, Any]


def joined(ran: list[Ran], kind_of: Callable[[str], str]) -> list[Ran]:
    """The steps of a batch in their order; steps that were run as one are at the place of the first of them.

    `kind_of`: the type of a topic. In a FIFO topic a second caller does not get the next message of a message group.
    """
    alike: dict[tuple[PopStep, int], list[Ran]] = {}
    found: list[list[Ran]] = []
    for one in ran:
        step, _, result, _ = one
        if isinstance(step, PopStep) and isinstance(result, Leased) and result.rows and not result.replay:
            if (known := alike.get((step, result.ck_id))) is not None:
                known.append(one)
                continue
            alike[(step, result.ck_id)] = many = [one]
            found.append(many)
        else:
            found.append([one])
    must(all(len(many) == 1 or kind_of(many[0][0].topic) != "FIFO" for many in found), "FIFO pops run as one", found)
    return [_one(many) if len(many) > 1 else many[0] for many in found]


def _one(many: list[Ran]) -> Ran:
    """One pop for several: of each CheckPoint every message was answered once, in the order of the pops."""
    step, command, first, stand = many[0]
    must((step.messages, command.attempt_id) == (1, ""), "only pops of one message run as one", step)
    rows = []
    for _, _, result, _ in many:
        must(len(result.rows) == 1 and result._replace(rows=first.rows) == first, "answers of one pop", first, result)
        rows += result.rows
    asked: ask.Pop = replace(command, max_messages=len(many))
    return step._replace(messages=len(many)), asked, first._replace(rows=rows), stand
