"""A text stream that is a terminal."""

import io


class Terminal(io.StringIO):
    """What rich and the tables take for a terminal."""

    def isatty(self) -> bool:
        return True
