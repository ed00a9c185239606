"""Read the active profile of tuned: the attributes of disks that it sets, and isolated CPUs.

tuned merges the files of the named profiles and of the profiles that they include, section by
section (tuned/profiles/loader.py, merger.py). The effects of a profile's scripts are unknown.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from hbatune import loader
from hbatune.facts import services
from hbatune.facts.health import TunedProfile, TunedWrite
from hbatune.facts.ids import escape_text
from hbatune.facts.model import Missing, Reason
from hbatune.facts.names import parse_cpus
from hbatune.loader import UnusableFileError

_CONFIGURATION = Path("/etc/tuned/tuned-main.conf")
_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
_MAX_FILE_BYTES = 1 << 20  # bytes
_ISOLATED_CORES = r"(?m)^\s*isolated_cores\s*=([^#\n]*)"
# Profiles of tuned use it by default: all CPUs except the first N of each socket
# (tuned/profiles/functions/function_calc_isolated_cores.py).
_CALCULATED = r"\$\{f:calc_isolated_cores(?::([0-9]+))?\}"

# Options of plugins by the attribute that they set (tuned/plugins/plugin_disk.py,
# plugin_scheduler.py).
_OPTIONS = {
    ("disk", "elevator"): "queue/scheduler",
    ("disk", "readahead"): "queue/read_ahead_kb",
    ("scheduler", "default_irq_smp_affinity"): "smp_affinity",
    ("scheduler", "isolated_cores"): "smp_affinity",
}

# The options of a section, each with its value and its file.
_Section = dict[str, tuple[str, str]]


def read_tuned_profile() -> TunedProfile | Missing:
    """Return the active profile, or Missing with the reason if it cannot be read completely."""
    try:
        names = _read(services.TUNED_PROFILE).split()
        sections: dict[str, _Section] = {}
        for name in names:
            _merge(name, sections, ())
    except FileNotFoundError:
        return Missing(Reason.ABSENT)
    except OSError as error:
        return Missing(Reason.UNREADABLE, error.errno)
    except UnusableFileError as error:
        return Missing(Reason.UNREADABLE, text=escape_text(str(error).partition("\n")[0]))
    return TunedProfile(escape_text(" ".join(names)), tuple(_list_writes(sections)))


def read_isolated_cores(sockets: Collection[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the CPUs of the active profile's variable ``isolated_cores``, or None without it.

    Return none if they are unknown, as for a function of tuned other than ``calc_isolated_cores``.
    ``sockets`` are the CPUs of each socket, none if unknown. A profile may include a file of
    variables, and a later line may refer to the value so far (tuned/profiles/variables.py).
    """
    if not services.TUNED_PROFILE.exists():
        return None
    sections: dict[str, _Section] = {}
    text = cores = ""
    try:
        for name in _read(services.TUNED_PROFILE).split():
            _merge(name, sections, ())
        for option, (value, _file) in sections.get("variables", {}).items():
            text += _read(Path(value)) if option == "include" else f"\n{option}={value}\n"
        for value in re.findall(_ISOLATED_CORES, text):
            # A reference to a missing value stays, which makes no sense.
            cores = value.replace("${isolated_cores}", cores or value).strip()
        if all(sockets) and (call := re.fullmatch(_CALCULATED, cores)):
            first = int(call[1] or 1)
            return tuple(cpu for socket in sockets for cpu in socket[first:]) or None
        return parse_cpus(cores) if cores else None
    except (OSError, UnusableFileError, ValueError):
        return ()


def is_one_shot() -> bool:
    """Return whether tuned applies its profile and exits (tuned-main.conf: daemon = 0)."""
    with suppress(OSError, UnusableFileError):
        off = re.search(r"(?m)^\s*daemon\s*=\s*(?:0|false|no)\b", _read(_CONFIGURATION).lower())
        return off is not None
    return False


def _read(path: Path) -> str:
    return loader.read_bytes(path, _MAX_FILE_BYTES).decode("utf-8", "backslashreplace")


def _merge(name: str, sections: dict[str, _Section], within: tuple[str, ...]) -> None:
    import configparser  # 1 ms, and most hosts do not run tuned

    # A profile's name has no slash, which would lead out of the directories.
    files = [Path(folder, name, "tuned.conf") for folder in _FOLDERS if "/" not in name]
    file = next((path for path in files if path.is_file()), None)
    if file is None or name in within:
        raise UnusableFileError(f"no profile {name!r} is found")
    parsed = configparser.ConfigParser(
        delimiters=("=",), inline_comment_prefixes=("#",), strict=False, interpolation=None
    )
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parsed.read_string(_read(file))
    except configparser.Error as error:
        raise UnusableFileError(str(error)) from error
    for included in parsed.get("main", "include", fallback="").replace(",", " ").split():
        _merge(included, sections, (*within, name))
    for section in parsed.sections():
        options = {key: (value, str(file)) for key, value in parsed.items(section)}
        before = {} if _is_on(options, "replace", default=False) else sections.get(section, {})
        sections[section] = {**before, **options}


def _list_writes(sections: dict[str, _Section]) -> Iterator[TunedWrite]:
    for name, options in sections.items():
        if not _is_on(options, "enabled", default=True):
            continue
        plugin = options.get("type", (name, ""))[0]
        for option, (value, file) in options.items():
            attribute = _OPTIONS.get((plugin, option))
            if plugin == "sysfs" and option.startswith("/sys/"):
                attribute = "/".join(option.split("/")[-2:])
            if attribute is not None:
                yield TunedWrite(escape_text(file), escape_text(attribute), escape_text(value))


def _is_on(options: _Section, name: str, *, default: bool) -> bool:
    value = options.get(name, ("", ""))[0].lower()
    return default if not value else value in ("1", "true", "yes", "y", "t", "on")
