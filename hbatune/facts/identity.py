"""Names that stay: an endpoint's id, out of strings that a drive may fill with anything."""

from hbatune.facts.place import Place, name_of


def escape(text: str) -> str:
    """Return the text with whatever does not print as a backslash escape, reversibly.

    Control characters, direction marks and line separators of a model string would otherwise
    reach terminals, udev rules and file names.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def stable_name(wwid: str, *parts: str) -> str:
    """Return the world-wide name, or what else tells the device, as one word without blanks."""
    if wwid.strip():
        return _word(wwid)
    return "-".join(_word(part) for part in parts if part.strip()) or "unnamed"


def path_name(directory: str, place: Place) -> str:
    """Return the path that an endpoint hangs on: adapter, and H:C:T:L or controller."""
    branch = place.branch
    leaf = place.address or (branch.controller and name_of(branch.controller))
    if not leaf and branch.adapter:
        leaf = name_of(branch.bound or directory)
    return "/".join(dict.fromkeys(part for part in (branch.adapter, leaf) if part)) or name_of(
        directory
    )


def _word(text: str) -> str:
    """Collapse blanks, which shells and udev split at, to one underscore."""
    return escape("_".join(part for part in text.split(" ") if part))
