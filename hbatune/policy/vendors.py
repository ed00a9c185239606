"""Select the vendors' advice: separate rules, by vendor and model, that a site enables.

Vendors of arrays, clouds and software on the disks publish recommendations for hosts. Such a rule
is never part of a shipped profile. With ``vendors = "advise"`` it is shown with the profile's rows.
With ``"follow"`` it comes after the profile's rules and before the local rules. A rule with a
``use`` is never followed, because only the site knows the use of its disks. To apply it, write a
local rule.
"""

from collections.abc import Collection

from hbatune.policy.config import Site, Vendors
from hbatune.policy.library import Library
from hbatune.policy.profile import Rule, VendorRule
from hbatune.policy.toml_files import PolicyError, quote_value, suggest_nearest


def list_uses(rules: Collection[VendorRule]) -> tuple[str, ...]:
    """Return the uses that the rules know for disks."""
    return tuple(sorted({rule.use for rule in rules if rule.use is not None}))


def load_enabled_rules(library: Library, site: Site) -> tuple[VendorRule, ...]:
    """Return the vendor rules that a site enables, without rules for uses it does not list.

    Raise ``PolicyError`` for a use that no rule has.
    """
    if site.vendors is Vendors.OFF and not site.uses:
        return ()
    from hbatune.policy.vendor_files import load_vendors  # few sites need it

    rules = load_vendors(library.shipped)
    use_names = list_uses(rules)
    for name in site.uses:
        if name not in use_names:
            raise PolicyError(
                f"unknown use {quote_value(name)}, expected one of {', '.join(use_names)}",
                place="table [site.uses]",
                found=quote_value(name),
                allowed=", ".join(use_names),
                hint=suggest_nearest(name, use_names),
            )
    if site.vendors is Vendors.OFF:
        return ()
    return tuple(rule for rule in rules if rule.use is None or rule.use in site.uses)


def load_followed_rules(library: Library, site: Site) -> tuple[Rule, ...]:
    """Return the vendor rules that are part of every profile of the site (default: no rules)."""
    if site.vendors is not Vendors.FOLLOW:
        return ()
    return tuple(
        vendor_rule.rule
        for vendor_rule in load_enabled_rules(library, site)
        if vendor_rule.use is None
    )
