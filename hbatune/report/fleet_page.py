"""The page of an audit: the answer and the remedies first, then tables of common facts and hosts.

Like every page of hbatune, it has no script, so it can be opened from any source under any policy.
The filters are radio buttons. Style sheets hide the rows without the class of the selected button
with the selector ``:has``. Browsers support it since 2023, and older browsers show every row.
"""

import time
from collections import Counter, defaultdict

from hbatune import __version__
from hbatune.checks.finding import Severity
from hbatune.fleet.audit import Audit, AuditedHost
from hbatune.fleet.hosts import HostState
from hbatune.render import render_template
from hbatune.shipped import find_message
from hbatune.text import fleet_tables, units

_SERIOUS = (Severity.CRITICAL, Severity.WARNING)


def render_fleet_page(audit: Audit) -> str:
    """Return the page of an audit as HTML, the worst hosts first."""
    profiles = Counter(host.profile for host in audit.hosts).most_common()
    groups = [(group, fleet_tables.format_adapters(group.adapters)) for group in audit.groups]
    odd: dict[str, list[str]] = defaultdict(list)
    for outlier in audit.odd:
        odd[outlier.host].append(fleet_tables.describe_outlier(outlier))
    rows = []
    for host in sorted(audit.hosts, key=_rank_host):
        command = _find_host_command(audit, host)
        rows.append((host, units.format_time(host.taken), odd[host.name], command))
    return render_template(
        "templates",
        "fleet.html.j2",
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        headline=fleet_tables.summarise_audit(audit),
        states={state: find_message(state) for state in HostState},
        remedies=fleet_tables.list_remedies(audit)[: fleet_tables.MAX_REMEDIES],
        hosts=rows,
        groups=groups,
        profiles=profiles,
        marks={profile: f"p{number}" for number, (profile, _) in enumerate(profiles, 1)},
        tables=fleet_tables.list_audit_rows(audit),
    )


def _rank_host(host: AuditedHost) -> tuple[bool, int, int]:
    critical, warnings = (host.findings.get(severity, 0) for severity in _SERIOUS)
    return host.state is HostState.OK, -critical, -warnings


def _find_host_command(audit: Audit, host: AuditedHost) -> str:
    if host.state is not HostState.OK:
        return fleet_tables.find_command(audit, [host])
    if host.odd or host.findings.keys() & {*_SERIOUS}:
        return fleet_tables.command_on(host, "check")
    return ""
