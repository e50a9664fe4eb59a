"""What the namespaces of a client share."""

from popmq._async.transport.wire import Wire


class Namespace:
    """Calls of one client about one subject, such as `client.topics`."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id
