"""The shipped rules as a build compiles them (``hbatune.policy.compiled``)."""

from pathlib import Path

import hbatune
from hbatune.policy import compiled
from hbatune.policy.parts import compile_shipped
from hbatune.shipped import shipped


def write(package: Path) -> None:
    """Write the file into the folder of a package ``hbatune``. Raises ``PolicyError``."""
    place = compiled.FILE.relative_to(Path(hbatune.__file__).resolve().parent)
    (package / place).write_bytes(compile_shipped(shipped("rules")))
