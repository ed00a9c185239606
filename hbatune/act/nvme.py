"""Sets features of NVMe controllers, for as long as the controller is not reset."""

import os
from collections.abc import Collection

from hbatune import nvme
from hbatune.facts import cpulist
from hbatune.facts.nvme import EXEMPT, FEATURE, exemptions, node_of
from hbatune.settings.setting import NONE


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
    if number == EXEMPT:
        return _exempt(node, cpulist.parse("" if text == NONE else text))
    answer = nvme.submit(node, nvme.SET_FEATURES, cdw10=number, cdw11=int(text))
    return answer.said if answer.status else None


def _exempt(node: str, wanted: Collection[int]) -> str | None:
    """Exempt these vectors and no others from coalescing; write only where that differs."""
    found = exemptions(node)
    if isinstance(found, nvme.Answer):
        return found.said
    if missing := [vector for vector in wanted if vector >= len(found)]:
        return f"the controller has no interrupt vector {missing[0]}"
    for vector, exempt in enumerate(found):
        if exempt != (vector in wanted):
            word = vector | (vector in wanted) << 16
            answer = nvme.submit(node, nvme.SET_FEATURES, cdw10=EXEMPT, cdw11=word)
            if answer.status:
                return answer.said
    return None
