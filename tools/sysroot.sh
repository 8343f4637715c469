#!/bin/sh
# Unpacks, of another architecture, Debian's C library and Python with numpy from PyPI into a directory:
# enough to run a wheel's programs there by qemu-user. `sh tools/sysroot.sh arm64 out/aarch64`.
set -eu
architecture=$1 directory=$2
packages="libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1
    libdb5.3 libncursesw6 libtinfo6 libreadline8 libnsl2 libtirpc3 libcrypt1 libcom-err2 libgssapi-krb5-2 libkrb5-3
    libk5crypto3 libkrb5support0 libkeyutils1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib"

# The lists of the other architecture are kept apart: the machine's own stay as they are.
rm -rf "$directory" && mkdir -p "$directory/apt/lists/partial" "$directory/apt/cache/archives/partial"
touch "$directory/apt/status"
apt() {
    apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o Dir::State="$directory/apt" -o Dir::State::Lists="$directory/apt/lists" \
        -o Dir::State::status="$directory/apt/status" -o Dir::Cache="$directory/apt/cache" \
        -o APT::Sandbox::User=root "$@"
}
apt update
(cd "$directory/apt/cache" && apt download $packages)
for package in "$directory"/apt/cache/*.deb; do dpkg-deb -x "$package" "$directory"; done
python -m pip install --quiet --disable-pip-version-check --target "$directory/packages" --only-binary :all: \
    --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
    --python-version 3.11 --implementation cp --abi cp311 --abi abi3 'numpy>=1.26'
rm -rf "$directory/apt"
