"""Compile a profile to udev rules, for disks that have not appeared yet.

The compilation uses no facts of the machine, since the rules must also hold for future disks.
Settings that depend on anything that udev cannot see stay with the daemon, and are listed. A rule
of the file sets the value that the plan would set (``plan.make``), or one that the kernel refuses.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from hbatune.act.paths import Paths
from hbatune.boot import conditions, lines
from hbatune.boot.conditions import UdevCondition, build_condition
from hbatune.boot.lines import RuleLine, RuleSection, exclude_key, match_property, set_wish
from hbatune.facts import classify, routes
from hbatune.facts.families import families
from hbatune.facts.model import Kind, Protocol, Storage, TargetKind
from hbatune.plan import joint_limits, rows
from hbatune.policy.config import Site
from hbatune.policy.profile import AtLeast, Exactly, Leave, LinkMatch, Multipath, Profile, Rule
from hbatune.render import render_template
from hbatune.settings import table
from hbatune.settings.limits import LOADABLE_SCHEDULERS
from hbatune.settings.setting import Cause, UdevWriter
from hbatune.settings.table import NR_REQUESTS, QUEUE_DEPTH, SCHEDULER, SETTINGS, find_target_kind

_INITIAL_DEPTH = ".HBATUNE_INITIAL_DEPTH"
"""Whether a disk has its driver's constant initial depth."""


class CompiledRules(Struct, frozen=True):
    """The parts of a rules file that depend on the profile (``udev/hbatune.rules.j2``).

    ``settings`` are set by udev, each to one of its texts, the ones in ``left`` by the daemon, for
    a reason. Of the lines, ``skips`` skip disks, ``classes`` classify them, and ``wishes`` note the
    rules' values. ``needs_names`` is whether a rule depends on a drive's vendor or model.
    """

    profile: str
    settings: dict[str, tuple[str, ...]] = {}
    left: tuple[tuple[str, str], ...] = ()
    skips: tuple[RuleSection, ...] = ()
    classes: tuple[RuleSection, ...] = ()
    wishes: tuple[RuleSection, ...] = ()
    map_wishes: tuple[RuleLine, ...] = ()
    sets_maps: bool = False
    needs_names: bool = False


def compile_rules(
    profile: Profile,
    site: Site,
    *,
    excluded: Collection[str] = (),
    reverted: Collection[rows.RevertedValue] = (),
    room: bool = True,
) -> CompiledRules:
    """Compile the profile.

    ``excluded`` are the ids that a rollback excluded, ``reverted`` the values that are not tried
    again. ``room`` is whether there is free memory for the requests of future disks, which udev
    cannot add up. Without it, nr_requests is left to the daemon.
    """
    steps = list[_Step]()
    for_daemon = list[tuple[str, str]]()
    for rule in profile.rules:
        if find_target_kind(rule.setting) is TargetKind.ENDPOINT:
            steps.append(_compile_rule(rule, room=room))
        elif not isinstance(rule.effect, Leave):
            for_daemon.append((rule.setting, "is not set on a disk"))
    # A map has names that udev's globs cannot express: if any is excluded, all maps are skipped.
    sets_maps = any(step.maps is True and step.text is not None for step in steps)
    mapped = sets_maps and not (site.exclude or excluded or reverted)
    values: dict[str, dict[str, None]] = {}
    for step in steps:
        if step.text is not None and (step.condition.sure or (mapped and step.maps)):
            values.setdefault(step.rule.setting, {})[step.text] = None
    for_daemon += _list_inexact(steps, mapped=mapped)
    for_daemon += _list_site_dependent(site, values)
    linked: set[str] = set()
    for step in steps:
        if step.rule.when.link != LinkMatch():
            linked.update(step.rule.when.family)
    wishes = [_make_wish_section(step) for step in steps if step.condition.possible]
    wishes += _clear_wishes(site, reverted, values)
    return CompiledRules(
        profile.name,
        {name: tuple(texts) for name, texts in values.items()},
        tuple(dict.fromkeys(for_daemon)),
        skips=tuple(lines.make_skip_sections(site, excluded, [value.id for value in reverted])),
        classes=tuple(conditions.make_class_sections(linked)),
        wishes=tuple(wishes),
        map_wishes=tuple(_list_map_wishes(steps, values)),
        sets_maps=mapped,
        needs_names=any(step.rule.when.vendor or step.rule.when.model for step in steps),
    )


def format_rules(compiled: CompiledRules) -> str:
    """Return the file's text. Raises ``UnsafeNameError`` for a value that a rule cannot contain."""
    disk_settings = [name for name in SETTINGS if SETTINGS[name].on is TargetKind.ENDPOINT]
    return render_template(
        "udev",
        "hbatune.rules.j2",
        compiled=compiled,
        saved_properties=map(table.make_property_name, disk_settings),
        saved_lines=lines.save_values(compiled.settings),
        write_lines=lines.write_values(compiled.settings),
        writer_line=lines.start_writer(compiled.settings),
        paths=Paths,
        routes=routes,
        classify=classify,
    )


def format_writer() -> str:
    """Return the text of the program that the rules start."""
    marks = (Paths.hands_off, Paths.hands_off_now)
    return render_template("udev", "hbatune-write.sh.j2", marks=marks, how=UdevWriter)


class _Step(Struct, frozen=True):
    """One rule of the profile: its condition, and the text that udev writes, or None for no write.

    ``maps`` is whether it applies to maps, or None if udev cannot see that. ``why`` is the reason
    why a rule that sets something is left to the daemon.
    """

    rule: Rule
    condition: UdevCondition
    maps: bool | None
    text: str | None = None
    why: str | None = None


def _compile_rule(rule: Rule, *, room: bool) -> _Step:
    criteria, of_maps = build_condition(rule.when), lines.is_for_maps(rule.when)
    if isinstance(rule.effect, Leave):
        return _Step(rule, criteria, of_maps)
    setting = SETTINGS[rule.setting]
    value = rule.effect.value if isinstance(rule.effect, Exactly | AtLeast) else None
    reason = None
    # Written if there is a scheduler, since the scheduler allocates the requests.
    if setting.udev is UdevWriter.SCHEDULED and not room:
        reason = "the memory of the requests is nearly used up, and udev cannot add it up"
    elif value is None or isinstance(value, bool):
        reason = "udev cannot see what is within a limit"
    elif isinstance(rule.effect, AtLeast) and setting.udev is not UdevWriter.LOWER:
        reason = "udev cannot see whether it would be lowered"
    elif isinstance(value, int):
        # Rounded like the kernel does: this text is compared with the file's content.
        value -= value % setting.step
    return _Step(rule, criteria, of_maps, None if reason else str(value), reason)


def _list_inexact(steps: Iterable[_Step], *, mapped: bool) -> Iterator[tuple[str, str]]:
    for step in steps:
        if isinstance(step.rule.effect, Leave):
            continue
        description = f"{step.rule.setting} ({step.rule.name})"
        if step.why is not None:
            yield description, step.why
        elif step.condition.possible:
            if not step.condition.exact:
                yield description, "udev cannot always see whether it is for a disk"
        elif not (mapped and step.maps):
            yield description, "is for maps and their paths"
        elif (step.rule.when.kind, step.rule.when.multipath) != ((Kind.MAP,), (Multipath.DM,)):
            yield description, "is for more than dm-multipath maps"


def _list_site_dependent(site: Site, settings: Collection[str]) -> Iterator[tuple[str, str]]:
    if QUEUE_DEPTH in settings:
        names = [family.name for family in families() if not family.initial_depths]
        reason = "udev cannot see whether another rule lowered it, or it cannot be set"
        yield f"queue_depth of {', '.join(names)}", reason
        if site.array or site.members:
            yield "queue_depth of devices in [site]", "follows from the configured limits"
    if NR_REQUESTS in settings:
        reason = "udev cannot see whether another rule lowered it"
        yield f"nr_requests unlike the kernel's {2 * joint_limits.DEFAULT_DEPTH}", reason


def _make_wish_section(step: _Step) -> RuleSection:
    """Return the lines that note the wish of one rule: the last one overrides, as in the plan."""
    criteria = step.condition
    wishes: list[RuleLine] = []
    # First every disk that the rule may apply to loses the wish of an earlier rule. Then the disks
    # that it certainly applies to get this one's. A doubtful case is left to the daemon.
    if step.text is None or not criteria.exact:
        is_left = not criteria.exact or step.why is not None
        no_wish = set_wish(step.rule.setting, "", is_left=is_left)
        wishes += lines.append_parts(criteria.possible, *no_wish)
    if step.text is not None:
        wishes += lines.append_parts(criteria.sure, *set_wish(step.rule.setting, step.text))
    return RuleSection(f"{step.rule.name}: {step.rule.because} ({step.rule.source})", tuple(wishes))


def _list_map_wishes(steps: Iterable[_Step], settings: Collection[str]) -> Iterator[RuleLine]:
    """Yield the wishes for a map. A known one gets only ``settings`` that a new table resets."""
    for step in steps:
        if step.maps is not False:
            text = step.text if step.maps and step.text is not None else ""
            is_left = step.maps is None or step.why is not None
            yield set_wish(step.rule.setting, text, is_left=is_left)
    unaffected = [name for name in settings if Cause.LOADED not in SETTINGS[name].reset_by]
    if unaffected:
        no_wishes = (lines.set_property(lines.make_wish_property(name), "") for name in unaffected)
        yield match_property(lines.KNOWN_PROPERTY, "1"), *no_wishes


def _clear_wishes(
    site: Site, reverted: Collection[rows.RevertedValue], values: Mapping[str, Collection[str]]
) -> Iterator[RuleSection]:
    [no_depth] = set_wish(QUEUE_DEPTH, "")
    depths: list[RuleLine] = []
    if QUEUE_DEPTH in values:
        # Any other depth may be a decision of an administrator or a drive (plan/make.py). udev can
        # compare a depth only with a constant. A wish that is not higher needs no write.
        wish = lines.make_wish_property(QUEUE_DEPTH)
        is_initial = lines.set_property(_INITIAL_DEPTH, "1")
        for family in families():
            for protocol, depth in family.initial_depths.items():
                if higher := [text for text in values[QUEUE_DEPTH] if int(text) > depth]:
                    is_driver = match_property(conditions.FAMILY, family.name)
                    is_protocol = match_property(conditions.PROTOCOL, protocol)
                    has_depth = lines.match_attribute(SETTINGS[QUEUE_DEPTH].path, str(depth))
                    is_raised = match_property(wish, "|".join(higher))
                    depths.append((is_driver, is_protocol, has_depth, is_raised, is_initial))
        depths.append((exclude_key("ENV", "1", _INITIAL_DEPTH), no_depth))
        if site.array:
            depths.append((match_property(conditions.STORAGE, Storage.ARRAY), no_depth))
        if site.members:
            depths.append((match_property(conditions.PROTOCOL, f"*{Protocol.VOLUME}*"), no_depth))
    yield RuleSection("Depths that only the daemon can evaluate.", tuple(depths))
    if SCHEDULER in values:
        chosen = "|".join(f"*[[]{name}[]]*" for name in sorted(LOADABLE_SCHEDULERS))
        is_chosen = lines.match_attribute(SETTINGS[SCHEDULER].path, chosen)
        line: RuleLine = (is_chosen, *set_wish(SCHEDULER, ""))
        yield RuleSection("Schedulers of other rules, which only the daemon can evaluate.", (line,))
    if NR_REQUESTS in values:
        lowered = tuple(_keep_requests(values.get(SCHEDULER, ())))
        yield RuleSection("A number of requests that only the daemon can evaluate.", lowered)
    tried: list[RuleLine] = []
    for value in reverted:
        if value.setting in values:
            no_wish = lines.set_property(lines.make_wish_property(value.setting), "")
            tried += lines.append_parts(lines.match_disks(value.id), no_wish)
    yield RuleSection("Tried, measured, and reverted.", tuple(tried))


def _keep_requests(schedulers: Iterable[str]) -> Iterator[RuleLine]:
    """Yield the lines that keep a number of requests that another rule may have lowered.

    udev can compare it only with a constant, so a smaller tag set's default is kept, too. A switch
    of the scheduler discards the number. These lines apply to disks that keep theirs.
    """
    default = exclude_key("ATTR", str(2 * joint_limits.DEFAULT_DEPTH), SETTINGS[NR_REQUESTS].path)
    wish = lines.make_wish_property(SCHEDULER)
    yield match_property(wish, ""), default, *set_wish(NR_REQUESTS, "")
    for scheduler in schedulers:
        is_active = lines.match_attribute(SETTINGS[SCHEDULER].path, f"*[[]{scheduler}[]]*")
        yield match_property(wish, scheduler), is_active, default, *set_wish(NR_REQUESTS, "")
