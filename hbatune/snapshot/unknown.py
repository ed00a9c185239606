"""What a newer hbatune has put into a snapshot's rules, and this one does not understand.

The snapshot keeps such rules; a plan is made without them, and says so.
"""

from msgspec.structs import replace

from hbatune.facts.families import known_options
from hbatune.policy.model import Leave, OptionRule, Profile, Rule
from hbatune.policy.rules import allowed
from hbatune.settings.table import SETTINGS


def understood(profile: Profile) -> Profile:
    """Return the profile with those of its rules that this version understands."""
    return replace(
        profile,
        rules=tuple(filter(_known, profile.rules)),
        options=tuple(filter(_known_option, profile.options)),
    )


def not_understood(profile: Profile) -> tuple[str, ...]:
    """Return the settings of the other rules, each once: unknown ones, and unknown values."""
    unknown: list[Rule | OptionRule] = [each for each in profile.rules if not _known(each)]
    unknown += [each for each in profile.options if not _known_option(each)]
    return tuple(dict.fromkeys(each.setting for each in unknown))


def _known(rule: Rule) -> bool:
    setting = SETTINGS.get(rule.setting)
    if setting is None or isinstance(rule.effect, Leave):
        return setting is not None
    return setting.check(rule.effect.value) is None


def _known_option(rule: OptionRule) -> bool:
    option = known_options().get(rule.module, {}).get(rule.option)
    if option is None:
        return False
    return allowed(option, rule.effect.value) is None
