"""The text of findings: evidence and advice for each check."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from hbatune.checks.finding import Fact, Finding
from hbatune.text.tables import EMPTY_CELL


class Text(NamedTuple):
    """The two sentences of a finding; names in braces are replaced by its evidence or target.

    A part in square brackets is omitted if any of its evidence is unknown. If no part of the
    advice remains, ``otherwise`` is used.
    """

    evidence: str
    advice: str
    otherwise: str = "nothing: it is only worth knowing"


TEXTS_BY_CHECK = {
    "pcie-link": Text(
        "the link runs at {speed} GT/s x{width}, where {possible_speed} GT/s x{possible_width} is "
        "possible[; port above: {port}]",
        "reseat the card, look at the slot, its riser and the firmware's settings for it",
    ),
    "pcie-errors": Text(
        "errors at the adapter and its port: {correctable} correctable, {nonfatal} nonfatal, "
        "{fatal} fatal[; reported to root port {root} by everything below it: {root_correctable}, "
        "{root_nonfatal}, {root_fatal}]",
        "look at cable, slot and riser, and whether the numbers grow",
    ),
    "pcie-errors-not-counted": Text(
        "the kernel counts no PCI Express errors of this adapter ({reason})",
        "look at the log of the management controller: the firmware keeps the errors to itself",
    ),
    "msix-off": Text(
        "served over one interrupt line, though the card offers MSI-X or MSI[; the module's "
        "options: {options}][; the kernel's command line: {word}]",
        "[take {word} off the kernel's command line][see whether one of the module's options "
        "switches MSI-X off: {set}]",
        "look in the kernel's log for why the driver got no vectors: `journalctl -k -g msi`"
        "[, as root, who may read the {denied}]",
    ),
    "msix-few": Text(
        "{vectors} interrupt vectors for {queues} hardware queues and {cpus} CPUs[; the module's "
        "options: {options}]",
        "[see whether one of these options keeps vectors back: {options}]",
        "nothing: the driver has no option for it",
    ),
    "vectors-crowded": Text(
        "all {vectors} data vectors are served by CPU {cpu}, one of {near} near the adapter",
        "[have a profile that places interrupts: `hbatune apply` moves the {movable} that may be "
        "moved]",
        "nothing: the kernel has placed them, and nobody can move them",
    ),
    "vectors-far": Text(
        "{vectors}: served by CPUs of another NUMA node than the adapter's ({near})",
        "[have a profile that places interrupts: `hbatune apply` moves the {movable} that may be "
        "moved]",
        "nothing: the kernel has placed them for their queues' CPUs, and nobody can move them",
    ),
    "firmware-not-approved": Text(
        "[firmware {version} is not among the approved ones: {approved}]"
        "[the version of its firmware is not known ({unread}), and only these are approved: "
        "{approved}]",
        "[plan the update from {version} to an approved one, or approve it in hbatune.toml]"
        "[look with the vendor's own tool: for the kernel it is {unread}]",
    ),
    "driver-not-approved": Text(
        "[driver {version} is not among the approved ones: {approved}]"
        "[the version of its driver is not known ({unread}), and only these are approved: "
        "{approved}]",
        "[plan the update from {version} to an approved one, or approve it in hbatune.toml]"
        "[look with the vendor's own tool: for the kernel it is {unread}]",
    ),
    "host-depth-share": Text(
        "{host} takes {can_queue} commands for {luns} LUNs: {share} for each, where a depth of "
        "{wanted} is wanted",
        "[raise {options} of the adapter's module for the next load]",
        "spread the LUNs over more hosts",
    ),
    "host-commands": Text(
        "{host} takes {can_queue} commands, and the firmware offers {offered}",
        "[see whether one of the module's options holds it back: {options}]",
        "nothing: the driver keeps the rest for itself, and has no option for it",
    ),
    "array-port": Text(
        "{luns} paths of this host through port {port} of {array} may have {depths} commands in "
        "flight, where the port takes {limit} of all hosts together ({paper})",
        "describe the array in [[site.array]] of hbatune.toml, with its port_limit and the hosts "
        "that share it: `apply` then shares that among them",
    ),
    "target-commands": Text(
        "{host} lets a target have {limit} commands (lpfc_tgt_queue_depth), and the {luns} LUNs of "
        "target {to} are {depths} deep together",
        "see that this is what the array's port is to get; else raise lpfc_tgt_queue_depth, which "
        "stands beside the depth of each LUN",
    ),
    "target-time": Text(
        "{host} lowers what a target may have in flight where commands take longer than {limit} ms "
        "(lpfc_max_scsicmpl_time)",
        "set it to 0, unless depths are meant to follow the array's response time",
    ),
    "coalescing-on": Text(
        "[{host}: ]completions wait for company[ for up to {micros} µs] ({lever})",
        "take it back, where tails count: 0 for lpfc_cr_delay; 2 for perf_mode at the next load; "
        "zio with `apply --allow-reset`, since that resets the link",
    ),
    "adapter-state": Text(
        "{host} says of itself: {state}",
        "look in the kernel's log for what happened: `journalctl -k -g mpi3mr`",
    ),
    "port-rate": Text(
        "{ports}: at {rate} Gbit/s, where {possible} are possible",
        "[look at the transceiver, the cable and the switch port of {fabric}]",
        "nothing where the drive can do no more; else look at the cable of these phys",
    ),
    "host-credits": Text(
        "{host} was loaded with {option}={value}, and the firmware offers {offered} commands",
        "take the option away, or raise it, and reload the module",
    ),
    "depth-sunk": Text(
        "queue_depth is {depth}, where {began} is to be expected[ by the module's option {option}]",
        "find out why the target's queue is full; the driver raises the depth by one every two "
        "minutes, `apply` at once",
    ),
    "device-state": Text(
        "the kernel has given it up: its state is {state}",
        "[see that it answers again, then have the kernel try it: "
        "`echo running > /sys/block/{disk}/device/state`]"
        "[look in the kernel's log for why: `journalctl -k -g {controller}`]"
        "[, as root, who may read the {denied}]",
        "look in the kernel's log for why",
    ),
    "medium-errors": Text(
        "failed I/O in the kernel's log that the drive is to blame for: {count} ({kinds})",
        "[see that the data of {drive} is safe elsewhere, then replace the drive]"
        "[see with the controller's tool which drive of volume {volume} fails, and replace that]",
    ),
    "space-errors": Text(
        "failed I/O in the kernel's log, for want of room behind this thin volume: {count}",
        "make room in the array's pool, or free what filesystems no longer use: `fstrim -av`",
    ),
    "transport-errors": Text(
        "failed I/O in the kernel's log that did not get through to the drive or back: "
        "{count}[; resets of the device: {resets}]",
        "[look at the cable and the connectors of {cabled}]"
        "[look at the path to the array of {fabric}: cable, transceiver, switch port]",
        "ask whoever runs the storage below this host",
    ),
    "io-errors": Text(
        "failed I/O in the kernel's log, without a reason: {count}",
        "look at what the log says around them: `journalctl -k -g {target}`",
    ),
    "command-timeouts": Text(
        "{timeouts}[ of {done}] commands timed out",
        "look in the kernel's log for what happened then: `journalctl -k -g {target}`"
        "[, as root, who may read the {denied}]",
    ),
    "command-errors": Text(
        "{errors}[ of {done}] commands ended without good status; polls of the drive's health "
        "count as well, and the kernel's log, which would tell, could not be read",
        "[run `check` as root, who may read the {denied}]",
        "nothing: the count alone is no reason to doubt the disk",
    ),
    "counters-rising": Text(
        "{counter}: from {was} to {now} within {minutes} minutes",
        "[look in the kernel's log for what happens now: `journalctl -k -g {disk}`]"
        "[, as root, who may read the {denied}]"
        "[look at slot and riser of {card}]"
        "[look at the cable or the transceiver at {link}]",
        "look in the kernel's log for what happens now",
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
    "adapter-cacheless": Text(
        "volumes {volumes}: {product} has no write cache[; disks that turn: {spinning}]",
        "keep arrays that are written to at RAID 0, 5 or 10: without a cache RAID 6 costs half of "
        "the writes[; put {spinning} behind an adapter with a cache, where response time matters]",
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
        "tuned is running[ with the profile {profile}][ (it sets {values})][, which sets what "
        "hbatune sets: {settings} ({files})][; what its profile sets could not be read ({unread})]",
        "[choose a profile of tuned's that leaves {settings} alone (`tuned-adm profile NAME`): "
        "whichever of the two writes last wins]"
        "[see with `tuned-adm active` that its profile leaves disks alone; here: {unread}]",
    ),
    "irqbalance-running": Text(
        "irqbalance is running[; it asks: {asks}]; interrupts placed by the profile: {placed}",
        "[start it with --policyscript={start}, so that it leaves those alone]",
    ),
    "udev-rule": Text(
        "{file}, line {line}, sets {setting}[ to {value}][ of {of}]",
        "let one of the two set it: take the line out, or exclude the disks in [site]",
    ),
    "vendor-advice": Text(
        "{setting} is {current}, where {vendor} asks for {advised}[; rule {against} of the profile "
        "wants {planned}][; here: {limit}][; note: {note}]",
        "[decide whose word holds: a rule for {setting} in rules.d outweighs {against}]"
        '[to have {open} set, say vendors = "follow" in hbatune.toml, or write a rule for it]',
        "nothing: this kernel or device does not take it",
    ),
    "fio-missing": Text("fio is not installed", "install it: without it `apply` proves nothing"),
    "bpftrace-missing": Text(
        "bpftrace is not installed", "install it to see latencies while the machine works"
    ),
    "iotune-installed": Text(
        "iotune is installed: it measures as deep as nr_requests is, and the profile sets "
        "{settings}",
        "run it after `hbatune apply`, and once more when one of these has changed: what it has "
        "measured holds for the values of then",
    ),
    "adapter-unread": Text(
        "could not be read: {facts} ({reasons})",
        "[run `check` as root to have these read: {roots}]"
        "[look in the kernel's log for why these failed: {failed}]",
    ),
    "disk-unread": Text(
        "could not be read: {facts} ({reasons})",
        "[run `check` as root to have these read: {roots}]"
        "[look in the kernel's log for why these failed: {failed}]",
    ),
    "processes-hidden": Text(
        "not known whether they run: {daemons}[: {process}]",
        "[run it as {unit}, or stop it: hbatune does not follow the settings of another process]",
        "run `check` as root, who sees all processes",
    ),
}
"""The text of each check, by its id."""


_PART = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")


def format_finding(finding: Finding) -> Text:
    """Return the text of a finding, with its evidence filled in."""
    text = TEXTS_BY_CHECK[finding.id]
    known_names = {
        name for name, fact in finding.evidence.items() if fact is not None and fact != ()
    }
    fact_texts = {name: _format_fact(fact) for name, fact in finding.evidence.items()}
    fact_texts["target"] = finding.target
    evidence, advice, otherwise = (
        _fill_sentence(sentence, {*known_names, "target"}, fact_texts) for sentence in text
    )
    return Text(evidence, advice or otherwise)


def _fill_sentence(sentence: str, known_names: set[str], fact_texts: Mapping[str, str]) -> str:
    """Fill the evidence into a sentence, and omit the parts without evidence."""
    template = _PART.sub(
        lambda part: part[1] if known_names.issuperset(_NAME.findall(part[1])) else "", sentence
    )
    return template.format_map(fact_texts)


def _format_fact(fact: Fact) -> str:
    if fact is None or fact == ():
        return EMPTY_CELL
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, tuple):
        return ", ".join(fact)
    return f"{fact:g}" if isinstance(fact, float) else str(fact)
