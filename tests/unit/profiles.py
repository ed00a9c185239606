"""Profiles made of single effects."""

from hbatune.policy.profile import Effect, Exactly, Match, Origin, ProbeSpec, Profile, Rule


def profile(*effects: tuple[str, Effect]) -> Profile:
    rules = tuple(
        Rule(f"rule-{number}", Match(), setting, effect, "because", "D0-2", "test.toml")
        for number, (setting, effect) in enumerate(effects)
    )
    return Profile("test", "A test", Origin.SHIPPED, rules, (), ProbeSpec(), ("test.toml",))


DEADLINE = ("scheduler", Exactly("mq-deadline"))


REQUESTS = ("nr_requests", Exactly(2048))
