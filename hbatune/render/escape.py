"""Names from the kernel are hostile until escaped: one function for each place they end up in."""

import re

# fio takes '#' and ';' for comments, '$' for variables and keywords, a backslash for an escape,
# and cuts lines of 4096 characters in two (fio init.c, options.c); it offers no quoting.
_FIO_SAFE = re.compile(r"/[A-Za-z0-9/._+:,=@!~%-]{0,1000}", re.ASCII)


class UnsafeNameError(ValueError):
    """A name that cannot be written into a generated file so that it stays itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def fio_filename(path: str) -> str:
    """Return an absolute path as the value of fio's ``filename=``, where ':' parts two files.

    Raises ``UnsafeNameError`` for a path that a job file cannot carry.
    """
    if not _FIO_SAFE.fullmatch(str(path)):  # str() makes jinja2's Undefined say its name
        raise UnsafeNameError(path)
    return path.replace(":", "\\:")
