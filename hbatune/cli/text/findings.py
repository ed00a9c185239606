"""The text of findings: evidence and advice for each check."""

from typing import NamedTuple

from hbatune.checks.model import Fact, Finding
from hbatune.cli.text.table import NOTHING


class Text(NamedTuple):
    """The two sentences of a finding; names in braces stand for its evidence."""

    evidence: str
    advice: str


TEXTS = {
    "pcie-link": Text(
        "the link runs at {speed} GT/s x{width}, where {possible_speed} GT/s x{possible_width} is "
        "possible; port above: {port}",
        "reseat the card, look at the slot, its riser and the firmware's settings for it",
    ),
    "pcie-errors": Text(
        "errors at the adapter and its port: {correctable} correctable, {nonfatal} nonfatal, "
        "{fatal} fatal; reported to root port {root} by everything below it: {root_correctable}, "
        "{root_nonfatal}, {root_fatal}",
        "look at cable, slot and riser, and whether the numbers grow",
    ),
    "pcie-errors-not-counted": Text(
        "the kernel counts no PCI Express errors of this adapter ({reason})",
        "look at the log of the management controller: the firmware keeps the errors to itself",
    ),
    "msix-off": Text(
        "one interrupt line, neither MSI-X nor MSI; options: {options}",
        "take pci=nomsi off the kernel's command line and what switches MSI-X off out of the "
        "module's options",
    ),
    "msix-few": Text(
        "{vectors} interrupt vectors for {queues} hardware queues and {cpus} CPUs; options: "
        "{options}",
        "let the module have as many vectors as the adapter offers",
    ),
    "vectors-crowded": Text(
        "all {vectors} data vectors are served by CPU {cpu}, one of {near} near the adapter",
        "`apply` spreads those that may be moved; irqbalance must not gather them again",
    ),
    "vectors-far": Text(
        "{vectors}: served by CPUs of another NUMA node than the adapter's ({near})",
        "`apply` moves those that may be moved; managed ones follow the queues' CPUs",
    ),
    "firmware-not-approved": Text(
        "firmware {version} is not among the approved ones: {approved}",
        "plan the update to an approved version, or approve this one in [site]",
    ),
    "driver-not-approved": Text(
        "driver {version} is not among the approved ones: {approved}",
        "plan the update to an approved version, or approve this one in [site]",
    ),
    "host-depth-share": Text(
        "{host} takes {can_queue} commands for {luns} LUNs: {share} for each, where a depth of "
        "{wanted} is wanted",
        "raise the adapter's own limit where its module has an option, or spread the LUNs",
    ),
    "host-credits": Text(
        "{host} was loaded with {option}={value}, and the firmware offers {offered} commands",
        "take the option away, or raise it, and reload the module",
    ),
    "depth-sunk": Text(
        "queue_depth is {depth}, where {began} is to be expected; module option: {option}",
        "find out why the target's queue is full; the driver raises the depth by one every two "
        "minutes, `apply` at once",
    ),
    "command-timeouts": Text(
        "{timeouts} of {done} commands timed out",
        "look at the kernel's log for this disk, its cables and its path",
    ),
    "command-errors": Text(
        "{errors} of {done} commands failed",
        "look whether the number grows; probing a drive fails a few, too",
    ),
    "counters-rising": Text(
        "{counter}: from {was} to {now} within {minutes} minutes",
        "find out what goes wrong now: the kernel's log, cables, the path, the drive",
    ),
    "preferred-paths": Text(
        "{preferred} targets prefer this adapter, another of {adapters} only {least}",
        "let the array prefer half of the paths over each adapter",
    ),
    "single-path": Text(
        "one path to the drive; profile {profile} wants a p99 of {objective_ms} ms",
        "plan two paths where more than 200,000 IOPS have to be sustained",
    ),
    "same-name": Text(
        "reports the same WWN or serial number as {others}: {name}",
        "where these are paths to one LUN, join them with multipath before either is used; where "
        "they are two drives, give each a name of its own with the maker's tool: until then they "
        "are distinguished by their paths alone",
    ),
    "no-name": Text(
        "reports neither a WWN nor a serial number",
        "give it one where that can be set (a virtual disk's serial): it is known by its place "
        "alone, and what is rolled back there holds for whatever disk is in that place",
    ),
    "site-name": Text(
        "[site] {key}: {name} is no disk or adapter of this machine",
        "correct the name in hbatune.toml; `hbatune list` shows them all",
    ),
    "drive-cache": Text(
        "the drive's cache: {cache}",
        "nothing: it is shown because it moves results, and is never changed",
    ),
    "adapter-cache": Text(
        "volumes {volumes} ({family}): no attribute shows the controller's cache",
        "see with the maker's tool that the controller's protected write cache is on and its "
        "battery or flash is well; leave the drives' own caches as they are",
    ),
    "atime": Text(
        "{point} is mounted without noatime; relatime: {relatime}",
        "mount it with noatime where nothing needs to know when files were read",
    ),
    "iostats-off": Text(
        "disk statistics are off (iostats=0)",
        "it saves a little CPU time, and nothing can watch this disk",
    ),
    "tuned-running": Text(
        "tuned is running",
        "see with `tuned-adm active` that its profile leaves disks alone: it would set "
        "schedulers and read-ahead its own way",
    ),
    "irqbalance-running": Text(
        "irqbalance is running; it asks: {asks}; interrupts placed by the profile: {placed}",
        "start it with --policyscript={policy} where interrupts are placed; nothing, as long as "
        "they are left to it",
    ),
    "udev-rule": Text(
        "{file}, line {line}, sets {setting} to {value}",
        "let one of the two set it: take the line out, or exclude the disks in [site]",
    ),
    "fio-missing": Text("fio is not installed", "install it: without it `apply` proves nothing"),
    "bpftrace-missing": Text(
        "bpftrace is not installed", "install it to see latencies while the machine works"
    ),
    "adapter-unread": Text(
        "could not be read: {facts}", "run `check` as root, or look at the kernel's log"
    ),
    "disk-unread": Text(
        "could not be read: {facts}", "run `check` as root, or look at the kernel's log"
    ),
    "processes-hidden": Text(
        "not known whether they run: {daemons}", "run `check` as root, who sees all processes"
    ),
}
"""The text of each check, by its id."""


def text_of(finding: Finding) -> Text:
    """Return the text of a finding, with its evidence filled in."""
    told = {name: _said(fact) for name, fact in finding.evidence.items()}
    return Text(*(sentence.format_map(told) for sentence in TEXTS[finding.id]))


def _said(fact: Fact) -> str:
    if fact is None or fact == ():
        return NOTHING
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, tuple):
        return ", ".join(fact)
    return f"{fact:g}" if isinstance(fact, float) else str(fact)
