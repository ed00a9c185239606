"""A tree of files like the one that install makes."""

from pathlib import Path

UNIT = Path("/etc/systemd/system/hbatune.service")


RULES = Path("/etc/udev/rules.d/89-hbatune.rules")


def tree(root: Path) -> dict[str, str]:
    """Every path below the root, with what it holds."""
    return {str(p.relative_to(root)): _content(p) for p in sorted(root.rglob("*"))}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"→ {path.readlink()}"
    return path.read_text() if path.is_file() else "folder"
