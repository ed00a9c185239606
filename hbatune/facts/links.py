"""Where links below ``/dev`` lead to: by-id, by-path, mapper, and an administrator's own."""

import os

_DEV = "/dev/"
_BLOCK = "/sys/class/block"


def is_link(name: str) -> bool:
    """Whether a name is the path of a link below ``/dev`` and no kernel name, by its form."""
    return name.startswith(_DEV) and "/" in name.removeprefix(_DEV)


def followed(name: str) -> str:
    """Return the kernel name of the disk that a link below ``/dev`` leads to.

    A link to a partition means the disk that it is on. Any other name, and a link that is not
    there (now), is returned as it is.
    """
    if not name.startswith(_DEV) or not os.path.islink(name):
        return name
    node = os.path.realpath(name)
    if not node.startswith(_DEV) or not os.path.exists(node):
        return name
    kernel = node.removeprefix(_DEV).replace("/", "!")
    directory = os.path.realpath(f"{_BLOCK}/{kernel}")
    if os.path.exists(f"{directory}/partition"):  # block/partitions/core.c: part_partition_show
        return os.path.basename(os.path.dirname(directory))
    return kernel
