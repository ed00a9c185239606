#!/bin/bash
# Print a snapshot of a machine right after its boot, in base64: the facts that `forecast` is
# compared with (tests/lab/boots/README.md).
udevadm settle
hbatune snapshot /tmp/boot.snap >/dev/null || exit
echo "BOOT $(base64 -w0 /tmp/boot.snap) BOOT"
