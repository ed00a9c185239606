"""Events of disks and maps, as the udev rules see them."""

from functools import cache
from pathlib import Path

from hbatune.boot.compile import CompiledRules, compile_rules
from hbatune.facts.model import Endpoint, Kind
from hbatune.policy.config import Site
from hbatune.policy.library import Library, load_profile
from hbatune.policy.profile import Profile
from hbatune.shipped import find_shipped
from tests.hosts.udev import Event


@cache
def shipped_profile(name: str) -> Profile:
    """A profile as it ships, without any site's rules."""
    return load_profile(name, Library(find_shipped("rules"), Path("/nowhere")))


@cache
def shipped_rules(name: str) -> CompiledRules:
    """The compiled rules of a profile as it ships."""
    return compile_rules(shipped_profile(name), Site())


def event(root: Path, endpoint: Endpoint, rules: CompiledRules, **environment: str) -> Event:
    """The disk as it appears, the map as it is activated."""
    properties = {"ACTION": "add", "DEVTYPE": "disk", **environment}
    if endpoint.kind is Kind.MAP:
        properties |= {
            "ACTION": "change",
            "DM_ACTIVATION": "1",
            "DM_UUID": "mpath-1",
            **environment,
        }
    if endpoint.kind is Kind.PATH:
        properties["DM_MULTIPATH_DEVICE_PATH"] = "1"
    return Event(root, endpoint.target, properties).run(rules)
