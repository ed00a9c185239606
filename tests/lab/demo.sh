#!/bin/bash
# The demo, run in the guest by `make demo`. It compares, applies and restores a profile. Then it
# measures a change that helps and a change that harms.

bold=$'\033[1m' plain=$'\033[0m'
[ "$TERM" = dumb ] && bold='' plain=''

run() { # EXIT-CODE COMMAND...: show the command, run it, and require its exit code
    local wanted=$1 code=0
    shift
    printf '\n%s\n' "$bold# $*$plain"
    "$@" || code=$?
    if [ "$code" -ne "$wanted" ]; then
        echo "demo: exit code $code instead of $wanted" >&2
        exit 1
    fi
}

heading() { printf '\n%s\n' "$bold== $1 ==$plain"; }

values() { # every value below queue/ and every depth, read without hbatune
    grep --with-filename --no-messages '' \
        /sys/block/*/queue/* /sys/block/*/queue/iosched/* /sys/block/*/device/queue_depth
}

# Exclude the lab's two disks.
mkdir -p /etc/hbatune/rules.d
cat >/etc/hbatune/hbatune.toml <<'TOML'
[site]
exclude = ["vda", "vdb"]
TOML

export HBATUNE_PAGER=cat # no pager in a log

heading 'Everything, and back'
udevadm settle # a slow machine may still be finding the card's disks
values >/run/before
run 0 hbatune list
run 1 hbatune diff --profile oltp
run 0 hbatune apply --profile oltp --no-probe # measured below
values >/run/applied
run 0 hbatune diff --profile oltp
run 0 hbatune rollback
values >/run/after

printf '\n%s\n' "$bold# what grep reads below /sys/block, before and after$plain"
echo "$(wc -l </run/before) values read before the first command;"
echo "$(diff /run/before /run/applied | grep -c '^>') of them differed after apply;"
if diff /run/before /run/after; then
    echo "none of them differs now: every value is what it was."
else
    echo "demo: the values above were not restored" >&2
    exit 1
fi

heading 'Does it help?'
# The right answer is known for this disk: each I/O takes 40 ms, and many run concurrently.
modprobe scsi_debug max_luns=1 num_tgts=1 max_queue=128 delay=0 ndelay=40000000
udevadm settle
disk=$(basename /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/*)
echo 8 >"/sys/block/$disk/device/queue_depth"
echo "$disk is an emulated disk of the kernel. Each I/O takes 40 ms. Its queue depth is 8;"
echo 'a local rule raises it:'
rule=/etc/hbatune/rules.d/depth.toml
cat >"$rule" <<'TOML'
[[rule]]
name = "deeper"
when = { vendor = "Linux*", model = "scsi_debug*" }
setting = "queue_depth"
at_least = 32
because = "the disk cannot serve requests that wait in the kernel"
source = "site"
TOML
run 0 cat "$rule"
run 0 hbatune apply --profile oltp --verify "$disk"
echo 'A harmful rule:'
sed -i 's/at_least = 32/value = 4/; s/deeper/shallow/; s/because = .*/because = "a low depth is safer"/' "$rule"
run 0 cat "$rule"
run 1 hbatune apply --profile oltp --verify "$disk"
rm "$rule"
run 0 hbatune rollback
echo "The depth of $disk is $(cat "/sys/block/$disk/device/queue_depth") again."

heading 'What this has shown'
cat <<'TEXT'
Shown, on a real kernel with its own drivers and emulated adapters:
- hbatune set the values of the profile, and restored every one of them.
- It kept a change that helped. It measured a harmful one twice and reverted it.
Not shown: how much your own disks gain. Emulated disks cannot tell.

Next, on a server with the same Debian release as this machine:
    make deb
    apt install ./dist/hbatune_*.deb    # as root; changes no setting
    hbatune status                      # is it tuned, and what is next?
TEXT
