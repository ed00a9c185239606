"""How warm a drive is: a hot one throttles itself, and no setting mends that."""

from contextlib import suppress
from pathlib import Path

_SENSORS = ("device/hwmon*/temp1_input", "device/hwmon/hwmon*/temp1_input")
"""Of NVMe below the controller (drivers/nvme/host/hwmon.c), of SCSI by the module drivetemp."""


def temperature(sysfs: Path | str) -> float | None:
    """Return °C of the drive whose block device's directory is ``sysfs``, None where none says.

    Documentation/hwmon/sysfs-interface.rst: temp1_input is in thousandths of a degree. The drive
    itself is asked: not for one that hangs.
    """
    for pattern in _SENSORS:
        for path in sorted(Path(sysfs).glob(pattern)):
            with suppress(OSError, ValueError):
                return int(path.read_text(encoding="ascii")) / 1000
    return None
