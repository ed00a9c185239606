"""The second serial port of the guest: one JSON object a line, read by the host."""

import json
import os
import tty

PORT = "/dev/ttyS1"


class Port:
    """Writes events to the host."""

    def __init__(self) -> None:
        self._descriptor = os.open(PORT, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        tty.setraw(self._descriptor)

    def send(self, event: str, **values: object) -> None:
        """Send one event, whole, before returning."""
        unsent = (json.dumps({"event": event, **values}) + "\n").encode()
        while unsent:
            unsent = unsent[os.write(self._descriptor, unsent) :]
