"""`hbatune check`: findings with evidence. It compares with the counters that the daemon stores."""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from hbatune.checks.finding import CheckInput, Fact, Finding, Severity
from hbatune.checks.registry import is_clean
from hbatune.cli import arguments
from hbatune.errors import ExitCode, UsageError
from hbatune.facts.classify import name_array
from hbatune.operations.snapshot import check_host
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_leftovers, print_not_understood
from hbatune.text.plan_tables import fold_rows, label_targets, list_uses
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_line, print_note, show_json, show_table

_NOUNS = {
    Severity.CRITICAL: ("critical finding",),
    Severity.WARNING: ("warning",),
    Severity.ADVICE: ("piece of advice", "pieces of advice"),
}


class FindingEntry(Struct, frozen=True):
    """A finding with its text; ``facts`` are the typed values behind ``evidence``."""

    id: str
    severity: Severity
    target: str
    adapter: str | None
    evidence: str
    advice: str
    source: str
    facts: dict[str, Fact]


class CheckDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `check`; depths were compared with ``profile``."""

    schema: str = "hbatune.check/1"
    hostname: str
    kernel: str
    profile: str | None
    findings: tuple[FindingEntry, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    arguments.add_targets(parser, "what to check")
    arguments.add_options(parser, "--profile", "--json", "--no-pager", "--snapshot", "--since")


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit 1 if any is more than informational."""
    if args.snapshot is None and args.since is not None:
        raise UsageError("--since compares two snapshots", hint="name the later: --snapshot")
    inputs, findings, not_understood = check_host(
        print_leftovers, args.targets, args.profile, file=args.snapshot, since=args.since
    )
    print_not_understood(not_understood)
    if args.since is not None and inputs.earlier is None:
        print_note(f"{args.since}: no counters to compare, not an earlier moment of this boot")
    if args.json:
        show_json(make_check_document(inputs, findings))
    else:
        _show_findings(inputs, findings)
    return 0 if is_clean(findings) else ExitCode.FOUND


def make_check_document(inputs: CheckInput, findings: Iterable[Finding]) -> CheckDocument:
    """Return the JSON document of `check`."""
    return CheckDocument(
        hostname=inputs.machine.hostname,
        kernel=inputs.machine.kernel,
        profile=inputs.profile.name if inputs.profile else None,
        findings=tuple(map(_make_entry, findings)),
    )


def _make_entry(finding: Finding) -> FindingEntry:
    evidence = finding.evidence
    texts = {"evidence": evidence.describe(), "advice": evidence.advise(finding.target)}
    return FindingEntry(**asdict(finding) | texts, facts=to_builtins(evidence))


def _show_findings(inputs: CheckInput, findings: Sequence[Finding]) -> None:
    entries = map(_make_entry, findings)
    groups = fold_rows(entries, lambda entry: (entry.id, entry.severity, entry.evidence))
    table, endpoints = Table(load_columns("findings")), inputs.machine.endpoints_by_target
    for targets, entry in groups:
        disks = [endpoints[target] for target in targets if target in endpoints]
        paragraphs = [entry.evidence, f"→ {entry.advice}"]
        uses = list_uses(disks)
        if uses and entry.severity is not Severity.INFO:
            paragraphs.insert(1, f"used by {' '.join(uses)}")
        arrays = {name_array(disk.model) for disk in disks}
        if len(arrays) == 1 and (array := arrays.pop()):
            paragraphs.insert(1, f"on {array}")
        names = label_targets(targets, disks)
        table.rows.append([str(entry.severity), names, tuple(paragraphs), entry.source])
    if table.rows:
        show_table(table)
        print_line()
    print_line(_summarise_findings(findings))
    if inputs.profile is None:
        print_line("No profile is active: depths are compared with the drivers' defaults.")


def _summarise_findings(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    if is_clean(tuple(findings)):
        return f"Clean: nothing above info ({counts[Severity.INFO]} worth knowing)."
    parts = [
        format_count(counts[grade], *nouns) for grade, nouns in _NOUNS.items() if counts[grade]
    ]
    return f"Found: {', '.join(parts)}."
