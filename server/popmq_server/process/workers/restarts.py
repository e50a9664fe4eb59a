"""How long a worker that has ended waits before it is started again."""

#: Seconds. The first pause is short: one crash under load should not be noticed. A worker that ends again and again
#: costs the machine one start each half minute.
FIRST_S, MOST_S = 0.5, 30.0
#: A worker that ran for so many seconds had started well: the pauses begin anew.
SOUND_S = 60.0


class Restarts:
    """The pauses of one worker."""

    def __init__(self) -> None:
        self.count = 0
        self._pause_s = 0.0

    def pause_s(self, ran_s: float) -> float:
        """The pause after a worker that ran for so many seconds: twice the one before."""
        self.count += 1
        again = self._pause_s and ran_s < SOUND_S
        self._pause_s = min(self._pause_s * 2, MOST_S) if again else FIRST_S
        return self._pause_s
