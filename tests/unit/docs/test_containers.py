"""The examples for containers: the page and the manifests mount what hbatune uses."""

import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import yaml

from hbatune.act.paths import Paths
from hbatune.policy.config import load_config
from hbatune.policy.library import load_profile
from tests.pages import CHECKOUT, DOCS
from tests.unit.site_folder import SiteFolder

PAGE = (DOCS / "install.md").read_text()
KUBERNETES = CHECKOUT / "packaging/kubernetes"
SHARED = {str(Paths.run), str(Paths.state)}
"""The directories that hbatune writes for itself: host and containers have the same."""
READ = {"/sys", "/run/udev"}
"""The directories that a command without privileges reads."""


def manifest(name: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = yaml.safe_load((KUBERNETES / name).read_text())
    return document


def pod_of(name: str) -> Mapping[str, Any]:
    pod: Mapping[str, Any] = manifest(name)["spec"]["template"]["spec"]
    return pod


def mounts_of(pod: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Return the host's directories with their paths in the container, and if it can write them."""
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == hosts.keys()
    return {
        hosts[mount["name"]]: (mount["mountPath"], not mount.get("readOnly", False))
        for mount in container["volumeMounts"]
    }


def podman_options(variable: str) -> list[str]:
    """Return the options that the page puts into a variable of the shell."""
    words: list[str] = []
    for text in re.findall(rf'^ {{4}}{variable}="(.*)"$', PAGE, re.MULTILINE):
        words += [word for word in shlex.split(text) if word != f"${variable}"]
    return words


def podman_mounts(variable: str) -> dict[str, tuple[str, bool]]:
    words = podman_options(variable)
    found = {}
    for option, word in pairwise(words):
        if option == "-v":
            host, place, *flags = word.split(":")
            found[host] = (place, "ro" not in "".join(flags).split(","))
    return found


def test_daemonset_mounts_what_hbatune_uses() -> None:
    mounts = mounts_of(pod_of("daemonset.yaml"))
    assert mounts.keys() == {*SHARED, *READ, "/dev", "/"}
    writable = {host for host, (_, is_writable) in mounts.items() if is_writable}
    assert writable == {*SHARED, "/sys", "/dev"}
    moved = {host: place for host, (place, _) in mounts.items() if host != place}
    assert moved == {"/": "/host"}


def test_page_and_daemonset_agree() -> None:
    pod = pod_of("daemonset.yaml")
    assert podman_mounts("host") == mounts_of(pod)
    words = podman_options("host")
    for namespace, key in (("pid", "hostPID"), ("network", "hostNetwork")):
        assert f"--{namespace} host" in " ".join(words)
        assert pod[key] is True
    assert "--privileged" in words
    assert pod["containers"][0]["securityContext"]["privileged"] is True


def test_snapshot_needs_no_privilege() -> None:
    pod = pod_of("snapshot.yaml")
    assert mounts_of(pod) == podman_mounts("reader") == {host: (host, False) for host in READ}
    context = pod["containers"][0]["securityContext"]
    assert context["runAsUser"] != 0
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()


def test_daemonset_configuration_is_its_label(site: SiteFolder) -> None:
    pod = pod_of("daemonset.yaml")
    [container] = pod["containers"]
    assert container["args"] == ["daemon"]
    [variable] = container["env"]
    assert variable["name"] == "HBATUNE_CONFIG"
    site.put("hbatune.toml", variable["value"])
    profile = load_config(site.library).profile
    assert profile is not None
    assert load_profile(profile, site.library).title
    assert pod["nodeSelector"] == {"hbatune/profile": profile}


def test_pod_ends_as_the_unit_does() -> None:
    unit = (CHECKOUT / "systemd/hbatune.service.j2").read_text()
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert pod_of("daemonset.yaml")["terminationGracePeriodSeconds"] == int(seconds)
    assert f"--time {seconds} " in PAGE


@pytest.mark.parametrize("path", sorted(SHARED))
def test_page_lists_what_a_pod_leaves(path: str) -> None:
    section = PAGE.partition("### Remove it")[2].partition("\n## ")[0]
    assert f"- `{path}`: " in section
