#!/bin/sh
# Run by mmdebstrap on the root that builds the models ($1): the source packages that headers come
# from. apt runs outside of the root, which has no network of its own.
set -eu
cd "$1/build"
version=$(chroot "$1" dpkg-query --show --showformat '${source:Version}' qemu-system-x86)
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
fetch() { apt-get --option APT::Sandbox::User=root --quiet --quiet "$@"; }
fetch source --download-only "qemu=$version"
fetch download linux-source-6.12
