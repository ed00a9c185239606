"""The advice of vendors: rules of their own, by vendor and model, which count where a site asks.

A vendor of arrays or clouds, or the maker of what runs on the disks, says what it wants of a host.
Such a rule is never part of a shipped profile: a site that says ``vendors = "advise"`` has it shown
beside the profile's rows, with ``"follow"`` it stands after the profile's rules and before the
site's own. A rule with a ``use`` is for disks of which only the site knows what they are used for,
and is never followed: a site that wants it writes a rule.
"""

from collections.abc import Collection

from hbatune.policy.config import Site, Vendors
from hbatune.policy.library import Library
from hbatune.policy.profile import Rule, VendorRule
from hbatune.policy.toml_files import PolicyError, nearest, quoted


def uses(rules: Collection[VendorRule]) -> tuple[str, ...]:
    """Return what disks may be said to be used for."""
    return tuple(sorted({rule.use for rule in rules if rule.use is not None}))


def asked(library: Library, site: Site) -> tuple[VendorRule, ...]:
    """Return the rules that a site asks to see: none, or all but those for uses it does not name.

    Raises ``PolicyError`` for a use that no rule has.
    """
    if site.vendors is Vendors.OFF and not site.uses:
        return ()
    from hbatune.policy.vendor_files import load_vendors  # few sites ask

    rules = load_vendors(library.shipped)
    known = uses(rules)
    for name in site.uses:
        if name not in known:
            raise PolicyError(
                f"unknown use {quoted(name)}, expected one of {', '.join(known)}",
                place="table [site.uses]",
                found=quoted(name),
                allowed=", ".join(known),
                hint=nearest(name, known),
            )
    if site.vendors is Vendors.OFF:
        return ()
    return tuple(rule for rule in rules if rule.use is None or rule.use in site.uses)


def rules_followed(library: Library, site: Site) -> tuple[Rule, ...]:
    """Return the rules of vendors that are part of every profile of the site, none by default."""
    if site.vendors is not Vendors.FOLLOW:
        return ()
    return tuple(each.rule for each in asked(library, site) if each.use is None)
