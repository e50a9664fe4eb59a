"""The keys of the broker's file. Finds the key of a signature or certificate, also after the file was replaced."""

import logging
import pathlib
from collections.abc import Iterable

from popmq_server.clock import Clock, SystemClock, stopwatch
from popmq_server.errors import StartError
from popmq_server.monitoring.metrics import KeyNumbers
from popmq_server.private_file import file_version
from popmq_server.protocols.access.access_keys import REMEMBERED_MAX, Key, unauthenticated
from popmq_server.protocols.access.key_file import read
from popmq_server.protocols.access.proofs import PROOF, SIGNATURE, read_claim

log = logging.getLogger("popmq.access")

#: Minimum interval between checks of the key file, in seconds; calls trigger them.
LOOK_EVERY_S = 1.0


class Keys:
    """The access keys of a file, read again when it is replaced. For one event loop."""

    def __init__(self, path: pathlib.Path, clock: Clock | None = None) -> None:
        """`clock`: the end of a key is compared with its wall time. Raises StartError with the cure."""
        self._path = path
        self._clock = clock or SystemClock()
        self._seen = file_version(path)
        self._looked_s = stopwatch()
        self._proved: dict[tuple[str, str], Key] = {}
        self._keys: dict[str, Key] = {}
        self._certified: dict[str, str] = {}
        self._stranger = Key("", (), ())
        try:
            self._take(read(path))
        except ValueError as error:
            raise StartError(f"the access keys cannot be used: {error}") from None

    def caller(self, authorization: str, date_time: str) -> Key:
        """The key that signed these headers. Raises Refused UNAUTHENTICATED."""
        self.look()
        key = self._proved.get((authorization, date_time))
        if key is None:
            key = self._prove(authorization, date_time)
            if len(self._proved) >= REMEMBERED_MAX:
                self._proved.clear()
            self._proved[authorization, date_time] = key
        return self._in_time(key)

    @property
    def takes_certificates(self) -> bool:
        """Whether a key of the file has names of certificates."""
        return bool(self._certified)

    def certified(self, names: Iterable[str]) -> Key:
        """The key of a client certificate with these names. Raises Refused UNAUTHENTICATED."""
        self.look()
        found = {self._certified[name] for name in names if name in self._certified}
        if len(found) != 1:
            which = f"several access keys: {', '.join(sorted(found))}" if found else "no access key"
            raise unauthenticated(f"the certificate of this client has the names of {which}")
        return self._in_time(self._keys[found.pop()])

    def admit(self, key: Key, settles: bool) -> None:
        """Counts a call of the key. Raises Refused RATE_LIMITED. `settles`: the call ends work, it begins none."""
        key.use.call(key.limits, self._clock.now_ms(), settles)

    def look(self) -> None:
        """Loads the file if it was replaced, and was not looked at just now."""
        if stopwatch() - self._looked_s >= LOOK_EVERY_S:
            self.reload()

    def _in_time(self, key: Key) -> Key:
        if self._clock.wall_ms() >= key.expires_ms:
            raise unauthenticated(f"the access key {key.name!r} is past its `expires` time")
        return key

    def holds(self, key: Key) -> bool:
        """Whether the file still contains this key: a stream may be older than the file."""
        return self._keys.get(key.name) is key and self._clock.wall_ms() < key.expires_ms

    def listed(self) -> list[Key]:
        """All keys of the file, by name."""
        return sorted(self._keys.values(), key=lambda key: key.name)

    def numbers(self) -> list[KeyNumbers]:
        """Returns the use of each key, for a scrape."""
        shown = ((key.name, key.use) for key in self.listed())
        return [
            KeyNumbers(name, use.connections, use.bytes_in_flight, use.calls, dict(use.limited)) for name, use in shown
        ]

    def _prove(self, authorization: str, date_time: str) -> Key:
        """Verifies a claim. For an unknown name it compares with as many random secrets, so that the response time does
        not reveal which names exist.
        """
        if not authorization:
            raise unauthenticated("this broker requires an access key, and this call has none")
        claim = read_claim(authorization, date_time)
        if claim is None:
            raise unauthenticated(f"authorization and x-mq-date-time have not the form of {SIGNATURE} or {PROOF}")
        key = self._keys.get(claim.name)
        if not (key or self._stranger).proves(claim) or key is None:
            raise unauthenticated("there is no such access key, or its secret is wrong")
        return key

    def reload(self) -> str:
        """Loads the file if it was replaced; returns what changed. An unusable file is logged, the old keys stay."""
        self._looked_s = stopwatch()
        seen = file_version(self._path)
        if seen == self._seen:
            return ""
        self._seen = seen
        try:
            read_now = read(self._path)
        except ValueError as error:
            log.error("the new access keys cannot be used; the old ones stay in use: %s", error)
            return ""
        change = f"the access keys of {self._path} were replaced: {_difference(self._keys, read_now)}"
        for name in read_now.keys() & self._keys.keys():
            old, new = self._keys[name], read_now[name]
            new.use = old.use  # connections stay open, whatever else changes
            if old.take(new):
                read_now[name] = old
        self._take(read_now)
        self._proved.clear()
        log.info("%s", change)
        return change

    def _take(self, keys: dict[str, Key]) -> None:
        self._keys = keys
        self._certified = {certificate: key.name for key in keys.values() for certificate in key.certificates}


def _difference(before: dict[str, Key], after: dict[str, Key]) -> str:
    """Describes the changes of a new file: names of keys that were added, changed and removed."""
    changed = {name for name in before.keys() & after.keys() if not before[name].same(after[name])}
    kinds = {"added": after.keys() - before.keys(), "changed": changed, "removed": before.keys() - after.keys()}
    return "; ".join(f"{kind} {', '.join(sorted(names))}" for kind, names in kinds.items() if names) or "the same keys"
