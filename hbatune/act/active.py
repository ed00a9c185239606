"""Which profile is the active one: the `profile` key of the site's configuration."""

from pathlib import Path

from hbatune.act import files
from hbatune.errors import HbatuneError


class ActiveProfileError(HbatuneError):
    """The configuration cannot be written."""


def activate(path: Path, profile: str | None) -> None:
    """Make the profile the active one, or none; all else in the file stays as it is.

    ActiveProfileError where the file cannot be written.
    """
    import tomlkit  # keeps the administrator's comments and order

    try:
        document = tomlkit.parse(path.read_text()) if path.exists() else tomlkit.document()
        if document.get("profile") == profile:
            return
        if profile is None:
            document.remove("profile")
        elif "profile" in document or not document:
            document["profile"] = profile
        else:
            # A key that comes after a table would belong to it.
            tables = tomlkit.dumps(document)
            document = tomlkit.parse(f"profile = {tomlkit.item(profile).as_string()}\n\n{tables}")
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        files.replace(path, tomlkit.dumps(document).encode(), mode=0o644)
    except OSError as error:
        raise ActiveProfileError(
            f"{path} cannot be written: {error.strerror}",
            hint="the settings themselves are done; `--once` leaves this file alone",
        ) from error
