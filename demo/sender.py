"""The leg from the CSV to the broker."""

import itertools
import threading

import popmq
from demo.flights import Flights
from demo.screen import Leg

MESSAGES_PER_SEND = 1_000
#: A killed broker is back within this time on a busy machine, too.
TIMEOUTS = popmq.Timeouts.all(120.0)


class Sender(threading.Thread):
    """Sends all flights, a thousand in a request; `error` is the error that ended it early."""

    def __init__(self, endpoint: str, topic: str, flights: Flights, leg: Leg) -> None:
        super().__init__(name="sender", daemon=True)
        self._endpoint, self._topic, self._flights, self._leg = endpoint, topic, flights, leg
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        messages = self._flights.messages()
        try:
            with popmq.Client(self._endpoint, timeouts=TIMEOUTS) as client:
                self._leg.begin()
                while batch := list(itertools.islice(messages, MESSAGES_PER_SEND)):
                    client.send(self._topic, batch)
                    self._leg.reach(self._leg.done + len(batch))
                    if self._stopped.is_set():
                        return
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._stopped.set()
        self.join()
