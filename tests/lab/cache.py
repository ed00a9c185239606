"""Things that are costly to make and depend on nothing but their recipe, kept between runs.

They lie outside the checkout, so that a fresh clone finds them, in ``HBATUNE_LAB_CACHE`` or
the user's cache folder. An entry appears whole or not at all, and two makers never work at once.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of the lab's cache, which need not exist yet."""
    if chosen := os.environ.get("HBATUNE_LAB_CACHE"):
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user) / "hbatune-lab"


def digest(parts: Iterable[bytes]) -> str:
    """Return a short name for exactly these ``parts`` in this order."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()[:16]


@contextmanager
def _only_maker(kind: str) -> Iterator[None]:
    with (cache_folder() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder ``kind-name``, filled by ``make`` where it does not exist yet.

    ``make`` gets an empty folder on the same filesystem, renamed into place when it returns.
    What a killed maker left behind is removed by the next one.
    """
    entry = cache_folder() / f"{kind}-{name}"
    if entry.is_dir():
        return entry
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _only_maker(kind):
        if entry.is_dir():
            return entry
        for abandoned in cache_folder().glob(f"making-{kind}-*"):
            shutil.rmtree(abandoned)
        unfinished = Path(tempfile.mkdtemp(prefix=f"making-{kind}-", dir=cache_folder()))
        try:
            make(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(entry)
        finally:
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
    return entry
