"""A profile with one wish for each endpoint."""

from hbatune.policy.profile import Effect, Match, Origin, ProbeSpec, Profile, Rule


def wishes(setting: str, effect: Effect) -> Profile:
    """Return a profile that wants one thing of every endpoint, as a site's rule may."""
    rule = Rule("wish", Match(), setting, effect, "because", "site", "site.toml")
    return Profile("test", "A test", Origin.SITE, (rule,), (), ProbeSpec(), ("site.toml",))
