"""Load the site's configuration and the chosen profile: the named one or the active one."""

from pathlib import Path

from hbatune.errors import UsageError
from hbatune.policy.config import CONFIG_FILE, Config, load_config
from hbatune.policy.library import installed_library, load_profile
from hbatune.policy.profile import Profile
from hbatune.policy.vendors import load_followed_rules


def load_chosen_profile(name: str | None, config: Config) -> Profile:
    """Return the named profile, or the active one. Raise UsageError if there is neither."""
    wanted = name or config.profile
    if wanted is None:
        raise UsageError(
            "no profile is active", hint="name one with --profile; `hbatune profiles` lists them"
        )
    library = installed_library()
    return load_profile(wanted, library, load_followed_rules(library, config.site))


def load_configuration() -> Config:
    """Return the site's configuration."""
    return load_config(installed_library())


def find_configuration_file() -> Path:
    """Return the path of the site's configuration."""
    return installed_library().site / CONFIG_FILE
