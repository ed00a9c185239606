"""Build the container image: ``python -m tools.oci DIRECTORY`` (`make oci`), as any user.

mmdebstrap makes a minimal Debian root with the package in ``DIRECTORY`` (`make deb`). The root is
the only layer of an archive in the format of the OCI image specification. That format is a few
JSON documents, named by their digests, so this module needs no tool of containers.
"""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from platform import freedesktop_os_release
from typing import IO

from tests.lab.debian import archives
from tools import deb
from tools.packaging import description, epoch
from tools.wheel import CHECKOUT, BuildError

ENTRYPOINT = "/usr/local/bin/hbatune-container"
_SITE = "/run/hbatune/site"
"""The directory of the configuration, as in ``packaging/oci/entrypoint``."""
_HOOKS = "/usr/share/mmdebstrap/hooks/file-mirror-automount"
"""Lets apt in the root read a package of this machine."""
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_TYPE = "application/vnd.oci.image"
_STALE = "hbatune-oci-*.tar"


def build(directory: Path) -> Path:
    """Build the image of the package in ``directory`` into it, and return its path.

    Replace earlier images there. Raise ``BuildError`` if the build fails.
    """
    packages = list(directory.glob("hbatune_*.deb"))
    if len(packages) != 1:
        raise BuildError(f"{directory} has {len(packages)} packages, expected one: run `make deb`")
    for path in directory.glob(_STALE):
        path.unlink()
    image = directory / f"hbatune-oci-{tag()}.tar"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root.tar"
        _make_root(packages[0], root)
        write_image(root, image)
    return image


def tag() -> str:
    """Return the image's tag: the version, without the characters that a tag may not contain."""
    return deb.version().replace("+", "-").replace("~", "-")


def _make_root(package: Path, root: Path) -> None:
    """Install the package into a minimal root of this machine's Debian release."""
    suite = freedesktop_os_release()["VERSION_CODENAME"]
    entrypoint = CHECKOUT / "packaging/oci/entrypoint"
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED]
    command = [
        *("mmdebstrap", "--variant=essential", "--skip=output/dev", f"--hook-dir={_HOOKS}"),
        *(f"--include={package.resolve()}", *options),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        f"--customize-hook=upload {entrypoint} {ENTRYPOINT}",
        f'--customize-hook=chmod 755 "$1{ENTRYPOINT}"',
        f'--customize-hook=ln -s {_SITE} "$1/etc/hbatune"',
        *(suite, str(root), *archives(suite)),
    ]
    deb.run_tool(command, CHECKOUT, packages="lab")


def write_image(root: Path, image: Path) -> None:
    """Write the OCI archive ``image`` with the file system in the tar archive ``root``."""
    with tarfile.open(image, "w") as archive, tempfile.TemporaryFile() as layer:
        # Without name and time, so the same root is the same layer.
        with gzip.GzipFile(
            filename="", mode="wb", compresslevel=6, fileobj=layer, mtime=0
        ) as packed:
            diff_id = _copy(root, packed)
        config = _add_document(archive, f"{_TYPE}.config.v1+json", _describe_image(diff_id))
        manifest: dict[str, object] = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": config,
            "layers": [_add_blob(archive, f"{_TYPE}.layer.v1.tar+gzip", layer)],
        }
        listed = _add_document(archive, f"{_TYPE}.manifest.v1+json", manifest)
        name = {"org.opencontainers.image.ref.name": f"localhost/hbatune:{tag()}"}
        index = {"schemaVersion": 2, "manifests": [{**listed, "annotations": name}]}
        _add_file(archive, "index.json", io.BytesIO(_encode(index)))
        _add_file(archive, "oci-layout", io.BytesIO(_encode({"imageLayoutVersion": "1.0.0"})))


def _describe_image(diff_id: str) -> dict[str, object]:
    """Return the image's configuration: its program, and the digest of its unpacked layer."""
    words = ["dpkg", "--print-architecture"]
    machine = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    created = datetime.fromtimestamp(epoch(), UTC).isoformat()
    return {
        "created": created,
        "architecture": machine,  # amd64 and arm64 have this name in both worlds
        "os": "linux",
        "config": {
            "Entrypoint": [ENTRYPOINT],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
            "Labels": {
                "org.opencontainers.image.title": "hbatune",
                "org.opencontainers.image.description": description()[0],
                "org.opencontainers.image.version": deb.version(),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": created, "created_by": "mmdebstrap"}],
    }


def _copy(path: Path, target: gzip.GzipFile) -> str:
    """Copy the file's content and return its digest."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
            target.write(block)
    return f"sha256:{sha256.hexdigest()}"


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _add_document(
    archive: tarfile.TarFile, media_type: str, document: dict[str, object]
) -> dict[str, object]:
    return _add_blob(archive, media_type, io.BytesIO(_encode(document)))


def _add_blob(archive: tarfile.TarFile, media_type: str, blob: IO[bytes]) -> dict[str, object]:
    """Add a blob under its digest, and return its descriptor."""
    blob.seek(0)
    digest = hashlib.file_digest(blob, "sha256").hexdigest()  # type: ignore[arg-type]
    size = _add_file(archive, f"blobs/sha256/{digest}", blob)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _add_file(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> int:
    """Add a file, and return its size."""
    member = tarfile.TarInfo(name)
    member.size = content.seek(0, io.SEEK_END)
    member.mtime = epoch()
    content.seek(0)
    archive.addfile(member, content)
    return member.size


def main() -> int:
    """Build the image in the named directory, and print how to load it."""
    try:
        image = build(Path(sys.argv[1]))
    except BuildError as error:
        print(f"oci: {error}", file=sys.stderr)
        return 1
    print(f"oci: {os.path.relpath(image)} is built. To load it: podman load -i {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
