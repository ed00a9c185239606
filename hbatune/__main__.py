"""`python -m hbatune` is the command `hbatune`."""

import sys

from hbatune.cli import main

if __name__ == "__main__":
    sys.exit(main())
