"""Builds the package with the JSON Schemas of what commands print.

Everything else about the package is in setup.cfg.
"""

import configparser
import importlib
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CHECKOUT = Path(__file__).resolve().parent


class BuildWithSchemas(build_py):
    """Puts schemas beside the modules; an editable install gets none."""

    def run(self) -> None:
        """Build the modules, and the schemas from the checkout's."""
        super().run()
        if not self.editable_mode:
            # A build does not have the checkout on its path.
            sys.path.insert(0, str(CHECKOUT))
            package = Path(self.build_lib) / "hbatune"
            importlib.import_module("tools.schemas").write(package / "schemas")


def requirements() -> list[str]:
    """Return what hbatune imports, which a build needs as well: schemas are made of its types."""
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    return settings["options"]["install_requires"].split()


setup(cmdclass={"build_py": BuildWithSchemas}, setup_requires=requirements())
