"""The exceptions that stop a command. They carry data; ``cli`` turns them into text."""


class HbatuneError(Exception):
    """A failure that ends the command with a message: what happened, to which target, and why.

    ``hint`` says what to do about it; ``exit_code`` follows the contract in the README.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HbatuneError):
    """A wrong option, target or profile, a bad configuration, or a missing permission."""

    exit_code = 2


class LockedError(HbatuneError):
    """Another hbatune is at work.

    ``pid`` is its process, 0 for one in another container, and ``does`` is what it does, for the
    message. ``since`` is its command and start time, or empty. ``consequence`` is a further
    statement of the message.
    """

    exit_code = 3

    def __init__(
        self,
        pid: int,
        does: str = "is changing this machine",
        *,
        since: str = "",
        consequence: str = "",
        hint: str | None = None,
    ) -> None:
        where = f"process {pid}{since}" if pid else "in another container"
        super().__init__(f"another hbatune ({where}) {does}{consequence}", hint=hint)
        self.pid = pid
        self.since = since
