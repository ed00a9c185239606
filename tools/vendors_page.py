"""Generate docs/vendors.md, the vendors' advice, from rules/vendors and rules/arrays.toml."""

from collections.abc import Iterator
from pathlib import Path

from hbatune.cli.commands.profiles import format_conditions, format_effect
from hbatune.policy.library import Library, load_sources
from hbatune.policy.profile import VendorRule
from hbatune.policy.vendors import list_uses, load_vendors
from hbatune.shipped import find_shipped

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vendors.md"

_HEAD = """\
# What vendors advise

Vendors of arrays and clouds, and the makers of what runs on disks, publish what they want of a
host. hbatune carries what was found in public sources, each value with its source. This page is
generated from `rules/vendors/*.toml` and `rules/arrays.toml`.

None of it counts until the site says so in `/etc/hbatune/hbatune.toml`:

```toml
[site]
vendors = "advise"

[site.uses]
oracle-asm = ["sdb", "sdc"]
```

- `"off"` is the default: no advice is read, shown or followed.
- `"advise"`: `hbatune diff`, `hbatune explain` and `hbatune check` show it beside the profile, and
  name the rule that it contradicts. Nothing is written for it.
- `"follow"`: it is part of every profile, after the profile's rules and before the site's own:
  planned, limited, written, proved, kept and put back like any other rule.

How a plan stands to an advice, in `diff` and in the `advice` of its JSON:

| stance | means |
| --- | --- |
| `agrees` | the disk has the value, or gets it by the plan; only `--all` shows it |
| `open` | the disk has another value, and no rule of the profile sets any |
| `conflict` | a rule of the profile wants another value: `check` finds it as advice |
| `fixed` | this kernel or device does not take it; the reason stands beside it |

No advice lowers a queue depth: rules for it raise, or leave. Only the site's own
`[[site.array]]` lowers one, and it goes before any vendor's rule for a depth.

A rule with a *use* is for disks of which hbatune cannot see what they are used for. It is shown for
the disks that `[site.uses]` names, and never followed: write a rule of your own where you want it
([write-your-first-rule.md](write-your-first-rule.md)).
"""

_PORTS = """\
## What a port takes

With `vendors = "follow"` a `[[site.array]]` without a `port_limit` of its own gets the vendor's,
which is then shared among its `hosts`: one of the site's own figures is needed in any case.

| array | vendor and model | commands of a port | source |
| --- | --- | --- | --- |"""

_LEFT = """\

## What is not carried

- Settings of dm-multipath (`no_path_retry`, `fast_io_fail_tmo`, `dev_loss_tmo`), of iSCSI sessions
  and of `sysctl`: multipath-tools has the vendors' own table, and hbatune sets none of these.
- Options of modules (`lpfc_sg_seg_cnt=256` for NetApp over NVMe/FC, `scsi_mod.inq_timeout=70` for
  IBM FlashSystem): they hold for everything that a driver serves, not for one vendor's LUNs. A site
  asks for them with an `[[option]]` ([configuration.md](configuration.md)).
- NetApp's limit of a port: the paper has a method, host by host, and no figure. Nor has its
  documentation of hosts' depths (docs.netapp.com, `ontap/san-config/set-queue-depth-task`); the 512
  of its FlexArray pages are what ONTAP itself queues at another array's port.
- IBM's depths for its cloud's block storage: they go by a tier that no disk shows, and lower.
- Dell PowerStore, PowerMax and XtremIO, HPE 3PAR, Infinidat, Huawei, Nutanix and StorPool: no value
  was found in a public source.
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
        yield f"[^{vendor_rule.rule.name}]: {_sentence(vendor_rule.note or '')}"
    if noted:
        yield ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _ports() -> Iterator[str]:
    for array in Library(find_shipped("rules")).arrays():
        if array.port_limit is not None:
            names = f"`{' or '.join(array.vendor)}`, `{' or '.join(array.model)}`"
            yield f"| {array.name} | {names} | {array.port_limit} | {array.port_source} |"
