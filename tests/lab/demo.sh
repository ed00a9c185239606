#!/bin/bash
# The main job, run in the guest by `make demo`: what differs, make it so, and put it back.

bold=$'\033[1m' plain=$'\033[0m'
[ "$TERM" = dumb ] && bold='' plain=''

run() { # EXIT-CODE COMMAND...: show the command, run it, and insist on its exit code
    local wanted=$1 code=0
    shift
    printf '\n%s\n' "$bold# $*$plain"
    "$@" || code=$?
    if [ "$code" -ne "$wanted" ]; then
        echo "demo: exit code $code, where $wanted was expected" >&2
        exit 1
    fi
}

values() { # every value below queue/ and every depth, read without hbatune
    grep --with-filename --no-messages '' \
        /sys/block/*/queue/* /sys/block/*/queue/iosched/* /sys/block/*/device/queue_depth
}

# The lab's own two disks stay out of it, and its emulated ones need no long look.
mkdir -p /etc/hbatune
cat >/etc/hbatune/hbatune.toml <<'TOML'
[site]
exclude = ["vda", "vdb"]
[probe]
seconds = 1
TOML

export HBATUNE_PAGER=cat # there is nobody to turn pages

values >/run/before
run 0 hbatune list
run 1 hbatune diff --profile oltp
run 0 hbatune apply --profile oltp
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
    echo "demo: the values above are not what they were" >&2
    exit 1
fi
