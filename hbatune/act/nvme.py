"""Sets features of NVMe controllers, for as long as the controller is not reset."""

import os

from hbatune import nvme
from hbatune.facts.nvme import FEATURE, node_of


def set_feature(sysfs: str, path: str, text: str) -> str | None:
    """Set the feature that ``path`` (``feature/08``) names and return None, or the refusal.

    The refusal is the controller's, in words. OSError where it is the kernel's.
    """
    directory = os.open(sysfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        node = node_of(directory)
    finally:
        os.close(directory)
    number = int(path.removeprefix(FEATURE), 16)
    answer = nvme.submit(node, nvme.SET_FEATURES, cdw10=number, cdw11=int(text))
    return answer.said if answer.status else None
