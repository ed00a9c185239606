"""Progress of long work: a bar on a terminal, silence in a pipe."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from hbatune.cli.text.output_options import console, is_quiet

Advance = Callable[[str], None]


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Yield a function to call after each of ``total`` steps, with a word that names it."""
    if not sys.stderr.isatty() or not total or is_quiet():
        yield lambda word: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    screen = console(stderr=True)
    # Rich cannot draw there, but would break every message at 80 columns while a bar is shown.
    if screen.is_dumb_terminal:
        yield lambda word: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[word]}"),
    )
    # No refreshing thread: workers are forked while this is shown.
    bar = Progress(*columns, console=screen, transient=True, auto_refresh=False)
    with bar:
        task = bar.add_task(what, total=total, word="")

        def advance(word: str) -> None:
            bar.update(task, advance=1, word=word, refresh=True)

        bar.refresh()
        yield advance
