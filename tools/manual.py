"""The man page and the shell completions: ``python -m tools.manual FOLDER`` (`make manual`).

Both are made from the parser of the command line, so that a new subcommand or option is in them by
itself. They are built, not committed: packages place them where their distribution wants them.
"""

import os
import sys
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from hbatune import __version__
from hbatune.cli.parser import full_parser

SHELLS = {"bash": "hbatune.bash", "zsh": "_hbatune", "fish": "hbatune.fish"}
"""By shell, the name under which it looks for the completion of ``hbatune``."""


def man_page() -> str:
    """Return hbatune(8) in roff: section 8 is that of the administrator's commands."""
    about = {
        "project_name": "hbatune",
        "version": __version__,
        "manual_section": "8",
        "manual_title": "System administration",
        "format": "single-commands-section",
    }
    os.environ["COLUMNS"] = "1000"  # argparse breaks lines for the terminal; roff does it itself
    return str(Manpage(full_parser(), about))


def completion(shell: str) -> str:
    """Return the completion script for one of ``SHELLS``."""
    return str(shtab.complete(full_parser(), shell=shell))


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {"hbatune.8": man_page(), **{SHELLS[shell]: completion(shell) for shell in SHELLS}}


def main() -> None:
    """Write every file into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
