#!/bin/sh
# Run by mmdebstrap on the new root ($1): what makes it a lab guest. $2 is this folder.
set -eu
root=$1 recipe=$2

install -m 644 "$recipe/lab.target" "$recipe/lab.service" "$root/etc/systemd/system/"
ln -sf /etc/systemd/system/lab.target "$root/etc/systemd/system/default.target"

# hbatune is installed on the job disk, seen where pip as root would have put it.
python=$(readlink "$root/usr/bin/python3")
mkdir -p "$root/job"
rm -rf "$root/usr/local/bin" "$root/usr/local/lib/$python"
mkdir -p "$root/usr/local/lib/$python"
ln -s /job/bin "$root/usr/local/bin"
ln -s /job/site "$root/usr/local/lib/$python/dist-packages"

# Nobody but a test tunes or assembles anything, and nothing runs that no test looks at.
chroot "$root" systemctl disable tuned.service irqbalance.service multipathd.service
chroot "$root" systemctl mask multipathd.socket \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer systemd-tmpfiles-clean.timer \
    dm-event.socket lvm2-monitor.service lvm2-lvmpolld.socket blk-availability.service \
    mdcheck_start.timer mdcheck_continue.timer mdmonitor-oneshot.timer uuidd.socket nvmf-autoconnect.service systemd-modules-load.service \
    modprobe@configfs.service modprobe@dm_mod.service modprobe@fuse.service modprobe@loop.service \
    systemd-timesyncd.service systemd-pstore.service systemd-random-seed.service \
    systemd-update-utmp.service systemd-journal-flush.service systemd-binfmt.service \
    systemd-logind.service \
    dev-hugepages.mount dev-mqueue.mount systemd-ask-password-console.path \
    systemd-ask-password-wall.path systemd-remount-fs.service
# systemd runs its generators whenever it reads its units again. No unit here comes from one, and
# emulated, they take a third of that time.
mkdir -p "$root/etc/systemd/system-generators"
for generator in "$root"/usr/lib/systemd/system-generators/*; do
    ln -s /dev/null "$root/etc/systemd/system-generators/${generator##*/}"
done
printf 'blacklist %s\n' kvm_amd kvm_intel powernow_k8 pcspkr i2c_i801 lpc_ich iTCO_wdt \
    i6300esb bochs drm qemu_fw_cfg joydev psmouse evdev button \
    >"$root/etc/modprobe.d/lab.conf"
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\n' >"$root/etc/systemd/journald.conf.d/lab.conf"
# Those of sg3-utils start five programs for each disk, whose answers nothing here reads. Those of
# multipath start one, which takes two fifths of a disk's event: guest/multipath.py brings them back.
# Those of mdadm and LVM would assemble again the stack that a test has just stopped.
mkdir -p "$root/etc/udev/rules.d"
for rules in 55-scsi-sg3_id.rules 58-scsi-sg3_symlink.rules 60-multipath.rules \
    64-md-raid-assembly.rules 69-lvm.rules; do
    ln -s /dev/null "$root/etc/udev/rules.d/$rules"
done
chroot "$root" systemd-machine-id-setup
chroot "$root" passwd --delete root
echo lab >"$root/etc/hostname"

# Modules as plain files: unpacking them is slow under emulation.
find "$root/lib/modules/" -name '*.ko.xz' -exec xz --decompress {} +

# The kernels, each with an initramfs that knows virtio-blk and ext4 only.
for version in $(ls "$root/lib/modules"); do
    chroot "$root" depmod "$version"
    tree=$root/tmp/initramfs
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/dev" "$tree/proc" "$tree/sysroot"
    cp "$root/bin/busybox" "$tree/bin/"
    ln -s busybox "$tree/bin/sh"
    install -m 755 "$recipe/init" "$tree/init"
    # Newer kernels have crc32c in lib/crc, not as a module.
    for module in virtio_pci virtio_blk crc32c_generic ext4; do
        chroot "$root" modprobe -S "$version" --show-depends "$module" ||
            [ "$module" = crc32c_generic ]
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$tree/modules.order"
    while read -r module; do
        install -D -m 644 "$root$module" "$tree$module"
    done <"$tree/modules.order"
    (cd "$tree" && find . | chroot "$root" sh -c 'cd /tmp/initramfs && cpio -o -H newc --quiet') \
        >"$root/boot/lab-initrd-$version"
    rm -rf "$tree"
done
