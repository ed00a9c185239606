#!/bin/sh
# Run in the root that builds the models: makes /build/emulator, which is QEMU with its libraries
# and data, and the models as a library to load before them.
set -eu
cd /build

echo 'build: the headers of QEMU, and the schema that some of them are generated from'
dpkg-source --no-check --extract qemu_*.dsc source
python3 source/scripts/qapi-gen.py --builtins --output-dir generated/qapi \
    source/qapi/qapi-schema.json
# What QEMU's configure finds on any amd64 Linux, as far as a header asks for it.
: >generated/config-poison.h
{
    echo "#define QEMU_VERSION \"$(cat source/VERSION)\""
    for name in LINUX POSIX MODULES IOVEC INT128 ATOMIC64 BYTESWAP_H SYSMACROS EPOLL; do
        echo "#define CONFIG_$name 1"
    done
} >generated/config-host.h

echo 'build: the headers of the drivers'
dpkg-deb --fsys-tarfile linux-source-*.deb |
    tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
    tar --extract --xz --wildcards --strip-components=1 --one-top-level=linux \
        '*/drivers/scsi/mpi3mr/mpi' '*/include/uapi/scsi/scsi_bsg_mpi3mr.h' \
        '*/drivers/scsi/mpt3sas/mpi' '*/drivers/scsi/ipr.h'
# What comes behind is the driver's alone, and needs the kernel's own headers.
sed -e '/^#include/d' -e '/^ \* Driver types$/,$c */\n#endif' \
    linux/drivers/scsi/ipr.h >generated/ipr_interface.h

echo 'build: the NVMe controller of QEMU, changed'
mkdir generated/trace
python3 source/scripts/tracetool.py --group=hw_nvme --format=h --backends=nop \
    source/hw/nvme/trace-events generated/trace/trace-hw_nvme.h
mkdir nvme
cp source/hw/nvme/*.[ch] nvme/
sed --in-place --file=models/nvme/controller.sed nvme/ctrl.c
sed --in-place --file=models/nvme/header.sed nvme/nvme.h
# Each change has found its place.
[ "$(grep --count coalescing_ nvme/ctrl.c)" = 4 ]
[ "$(grep --count --regexp='"lab-nvme' --regexp=oalescing nvme/nvme.h)" = 6 ]

echo 'build: the models'
mkdir -p emulator/lib emulator/data
# What is QEMU's own as well stays hidden: the changed controller is to find its own.
gcc -std=gnu11 -O2 -g -shared -fPIC -fno-strict-aliasing -fvisibility=hidden \
    -Wall -Werror -Wno-address-of-packed-member \
    -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
    -Igenerated -Igenerated/qapi -Isource/include -Isource \
    -Imodels/tri_mode -Imodels/nvme -Ilinux/drivers/scsi/mpi3mr -Ilinux/drivers/scsi/mpt3sas \
    -idirafter linux/include/uapi $(pkg-config --cflags glib-2.0) \
    -o emulator/adapters.so models/*/*.c nvme/*.c

echo 'build: QEMU with all that it loads'
cp /usr/bin/qemu-system-x86_64 emulator/
ldd /usr/bin/qemu-system-x86_64 | awk '$2 == "=>" { print $3 }' | xargs cp -L -t emulator/lib
cp -L /lib64/ld-linux-x86-64.so.2 emulator/lib/
cp /usr/share/seabios/*.bin /usr/share/qemu/linuxboot*.bin /usr/share/qemu/kvmvapic.bin \
    emulator/data/
