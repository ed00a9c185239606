"""Generate docs/vendors.md, the vendors' advice, from rules/vendors and rules/arrays.toml."""

from collections.abc import Iterator
from pathlib import Path

from hbatune.cli.commands.profiles import format_conditions, format_effect
from hbatune.policy.library import Library, load_sources
from hbatune.policy.profile import VendorRule
from hbatune.policy.vendors import list_uses, load_vendors
from hbatune.shipped import find_shipped
from hbatune.text.basic_output import format_sentence

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vendors.md"

_HEAD = """\
# Vendor recommendations

Vendors of arrays, clouds and storage software publish recommended host settings. hbatune contains
the values from public sources, each with its source. This page is generated from
`rules/vendors/*.toml` and `rules/arrays.toml`.

hbatune uses them only if you enable them in `/etc/hbatune/hbatune.toml`:

```toml
[site]
vendors = "advise"

[site.uses]
oracle-asm = ["sdb", "sdc"]
```

- `"off"` is the default: no advice is read, shown or followed.
- `"advise"`: `hbatune diff`, `hbatune explain` and `hbatune check` show it next to the profile, and
  name the rule that it contradicts. hbatune writes nothing for it.
- `"follow"`: it is part of every profile, after the profile's rules and before local rules. hbatune
  plans, limits, writes, measures, keeps and restores it like any other rule.

`diff` and the `advice` of its JSON compare the plan with each recommendation:

| stance | means |
| --- | --- |
| `agrees` | the disk has the value, or gets it by the plan; only `--all` shows it |
| `open` | the disk has another value, and no rule of the profile sets it |
| `conflict` | a rule of the profile sets another value: `check` reports it as advice |
| `fixed` | this kernel or device does not accept it; the row has the reason |

No recommendation lowers a queue depth: these rules raise it or leave it unchanged. Only your own
`[[site.array]]` lowers a depth, and it overrides all vendor rules for depths.

A rule with a *use* depends on the use of a disk, which hbatune cannot detect. hbatune shows it for
the disks in `[site.uses]` and never follows it. To apply it, write your own rule
([write-your-first-rule.md](write-your-first-rule.md)).

No rule depends on the release of the operating system or of the kernel. If a source is only
for some systems, its rule has a use (`suse`, `ubuntu`, `sap`): declare it only on their hosts. If
the value of a vendor depends on a release, the rule has the latest value and a footnote with the
others (`ontap-iopolicy`). On hosts with another release, write a local rule with their value. It
overrides the vendor's rule.
"""

_PORTS = """\
## Port limits

With `vendors = "follow"`, a `[[site.array]]` without `port_limit` gets the vendor's limit. Its
`hosts` share this limit, so you must specify `hosts`.

| array | vendor and model | commands of a port | source |
| --- | --- | --- | --- |"""

_LEFT = """\

## Not included

- Settings of dm-multipath (`no_path_retry`, `fast_io_fail_tmo`, `dev_loss_tmo`) and of `sysctl`:
  multipath-tools has the vendors' own table, and hbatune sets none of them.
- Timeouts and `cmds_max` of iSCSI sessions: open-iscsi sets them at login. The rules have its
  `node.session.queue_depth` as the `queue_depth` of each LUN. `cmds_max` limits this depth.
- Options of modules (`lpfc_sg_seg_cnt=256` for NetApp over NVMe/FC, `scsi_mod.inq_timeout=70` for
  IBM FlashSystem, `nvme_core.max_retries=10` for OpenShift): they apply to all devices of a driver,
  not to one vendor's LUNs. Set them with an `[[option]]` ([configuration.md](configuration.md)).
- NetApp's limit of a port: the document has a method for each host, but no figure. NetApp's
  page on host depths (docs.netapp.com, `ontap/san-config/set-queue-depth-task`) has no
  figure. The 512 in its FlexArray pages is the queue of ONTAP itself at another array's port.
- IBM's depths for its cloud's block storage: they depend on a tier that no disk reports, and they
  lower the depth.
- SUSE's bfq for HDDs with one hardware queue: no rule can test the number of queues.
- Google's table of depths for Hyperdisk: it describes the application's depth, not the disk's.
- Interrupt coalescing of LSI's MPT adapters and Emulex's LP adapters, from 2001 to 2010: their
  drivers have no such attribute today, or the values depend on the load.
- Dell PowerStore, PowerMax and XtremIO, HPE 3PAR except over iSCSI, Infinidat, Huawei, Nutanix and
  StorPool: no value was found in a public source.
"""


def page() -> str:
    """Return the page."""
    rules = load_vendors(find_shipped("rules"))
    vendors = dict.fromkeys(vendor_rule.vendor for vendor_rule in rules)
    parts = [_HEAD]
    parts.append("Uses with advice: " + ", ".join(f"`{name}`" for name in list_uses(rules)) + ".\n")
    for vendor in vendors:
        parts.append(
            "\n".join(
                _of(vendor, [vendor_rule for vendor_rule in rules if vendor_rule.vendor == vendor])
            )
        )
    parts.append("\n".join((_PORTS, *_ports())))
    return "\n".join(parts) + "\n" + _LEFT


def _of(vendor: str, rules: list[VendorRule]) -> Iterator[str]:
    sources = load_sources(find_shipped("rules"))
    yield f"## {vendor}\n"
    yield "| rule | for | setting | value | use | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for vendor_rule in rules:
        rule = vendor_rule.rule
        name = f"`{rule.name}`" + (f"[^{rule.name}]" if vendor_rule.note else "")
        use = f"`{vendor_rule.use}`" if vendor_rule.use else ""
        cells = (
            f"`{format_conditions(rule.when)}` | `{rule.setting}` | {format_effect(rule)} | {use}"
        )
        yield f"| {name} | {cells} | {rule.source} |"
    yield ""
    for id in dict.fromkeys(vendor_rule.rule.source for vendor_rule in rules):
        yield f"- {id}: {sources[id].section}. {sources[id].says}"
    yield ""
    noted = [vendor_rule for vendor_rule in rules if vendor_rule.note]
    for vendor_rule in noted:
        yield f"[^{vendor_rule.rule.name}]: {format_sentence(vendor_rule.note or '')}"
    if noted:
        yield ""


def _ports() -> Iterator[str]:
    for array in Library(find_shipped("rules")).arrays():
        if array.port_limit is not None:
            names = f"`{' or '.join(array.vendor)}`, `{' or '.join(array.model)}`"
            yield f"| {array.name} | {names} | {array.port_limit} | {array.port_source} |"
