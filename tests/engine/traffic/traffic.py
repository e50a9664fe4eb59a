"""Random commands of every kind, the same for the same seed: for tests that only ask whether the engine stays sound."""

import random
from collections.abc import Callable
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.values.handles import make_handle
from popmq_server.values.leased import Leased
from popmq_server.values.limits import KEEP_MS_MAX
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, sealing, sending

TOPICS, GROUPS, OWNERS = ("t", "u"), ("g", "h"), ("o", "p")


class Traffic:
    """Makes commit batches; uses what was answered in later ones. `now_ms`: the time of the next one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.given: list[tuple[str, str]] = []
        self.sent = 0
        self.epoch = 1
        self.now_ms = 0
        self.checks: list[ask.Check] = []
        self._kinds: list[Callable[[], Any]] = [self.send] * 4 + [self.pop] * 4 + [self.ack] * 3 + [self.change] * 3
        self._kinds += [self.seal] * 2 + [self.owner] * 2 + [self.operate, self.redrive]

    def first(self) -> list[Any]:
        """The commands that must run first, since the others depend on them."""
        topics = [ask.CreateTopic(name, 2, False, KEEP_MS_MAX) for name in TOPICS]
        return [*topics, *(group(name, 3) for name in GROUPS)]

    def group(self) -> list[Any]:
        return [self.chance.choice(self._kinds)() for _ in range(self.chance.randint(1, 6))]

    def learn(self, commands: list[Any], results: list[Any]) -> None:
        for command, result in zip(commands, results, strict=True):
            if isinstance(result, Leased):
                self.given += [(command.group, make_handle(result.ck_id, row[5], result.nonce)) for row in result.rows]
        del self.given[:-50]

    def send(self) -> ask.Send:
        texts = [f"{self.sent}.{place}" for place in range(self.chance.randint(1, 5))]
        self.sent += 1
        producer = self.chance.choice(["", "p"])
        number = self.chance.randint(1, 1000) if producer else 0
        return sending(*texts, topic=self.chance.choice(TOPICS), producer=producer, number=number)

    def pop(self) -> ask.Pop:
        attempt = self.chance.choice(["", "", "try"])
        return ask.Pop(
            self.chance.choice(TOPICS),
            self.chance.choice(GROUPS),
            max_messages=self.chance.choice([1, 3, 32]),
            invisible_ms=self.chance.choice([SECOND, MINUTE]),
            attempt_id=attempt,
        )

    def handles(self) -> tuple[str, tuple[str, ...]]:
        group = self.chance.choice(GROUPS)
        own = [handle for of, handle in self.given if of == group] or [make_handle(1, 0, 1)]
        return group, tuple(self.chance.choices(own, k=self.chance.randint(1, 5)))

    def ack(self) -> ask.Ack:
        return ask.Ack(*self.handles())

    def change(self) -> ask.ChangeInvisibleTime:
        group, handles = self.handles()
        kind = self.chance.choice(["extend", "release", "release", "reject"])
        delay_ms = self.chance.choice([0, SECOND, HOUR])
        delay_ms = MINUTE if kind == "extend" else delay_ms
        return ask.ChangeInvisibleTime(
            group, tuple(ask.Change(handle, kind, delay_ms, False, "why") for handle in handles)
        )

    def seal(self) -> ask.Pop:
        part, chunk = self.chance.randint(0, 1), self.chance.randint(0, 2)
        where = {"topic": self.chance.choice(TOPICS), "group": self.chance.choice(GROUPS)}
        return sealing(self.epoch, part, chunk, max_messages=3, owner=self.chance.choice(OWNERS), **where)  # type: ignore[arg-type]

    def owner(self) -> Any:
        who = self.chance.choice(GROUPS), self.chance.choice(OWNERS)
        self.epoch += self.chance.random() < 0.2
        return self.chance.choice(
            [
                ask.AttachOwner(*who, self.chance.choice([SECOND, MINUTE])),
                ask.RenewOwner(*who, 1, MINUTE),
                ask.AckUpTo(*who, 1, self.epoch - 1),
                ask.ReleaseOwner(*who),
            ]
        )

    def redrive(self) -> operations.RedrivePiece:
        offsets = self.chance.choice([None, tuple(self.chance.choices(range(20), k=3))])
        return operations.RedrivePiece(self.chance.choice(GROUPS), offsets)

    def operate(self) -> Any:
        name = self.chance.choice(TOPICS), self.chance.choice(GROUPS)
        return self.chance.choice(
            [
                ask.CreateTopic(name[0], 2, False, KEEP_MS_MAX),
                ask.UpdateTopic(name[0], 4, None),
                group(name[1], 3),
                ask.UpdateGroup(name[1], {"max_attempts": self.chance.randint(1, 4)}),
                ask.DeleteTopic(name[0]) if self.chance.random() < 0.2 else self.send(),
                ask.DeleteGroup(name[1]) if self.chance.random() < 0.2 else self.pop(),
            ]
        )

    def pause_ms(self) -> int:
        return self.chance.choice([0, 0, 10, SECOND, 2 * MINUTE])


def group(name: str, max_attempts: int) -> ask.CreateGroup:
    return ask.CreateGroup(name, max_attempts, (SECOND, MINUTE), MINUTE, 0, "EARLIEST", 0, False)


def emptied(rig: Rig, name: str = "t") -> int:
    """Purges a topic; returns the number of messages removed."""
    dropped, after = rig.do(ask.PurgeTopic(name))
    while after:
        more, after = rig.do(operations.NextPurge(name, after))
        dropped += more
    return int(dropped)
