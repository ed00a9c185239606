"""Checks of adapters: links, errors, interrupts, and the settings of their drivers.

Checks of adapters: PCI Express links, errors on them, and the CPUs of interrupts.

Checks of what a driver's own levers are set to: coalescing, limits of targets, its state.

Each is an attribute of a SCSI host, or a module option, that a family declares (``inspected``).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hbatune.checks.depth_checks import depth_of
from hbatune.checks.finding import Check, CheckInput, Finding, Severity, family_of, needs_root
from hbatune.facts import names
from hbatune.facts.family import Purpose, Vectors
from hbatune.facts.health import AdapterHealth, Errors, Port
from hbatune.facts.model import Adapter, Link, Missing, Reason, Role, Vector
from hbatune.settings.limits import usable

_OWN = frozenset({Vectors.FREE, Vectors.MANAGED, Vectors.MIXED, Vectors.PINNED})


def find_slow_links(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find links slower or narrower than both the card and the port above it can do."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if adapter.link is None:
            continue
        finding = _below(check, adapter, adapter.link, health.port if health else None)
        if finding is not None:
            yield finding


def find_slow_ports(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find Fibre Channel ports and SAS phys that run below what they can do.

    Behind a phy may be a drive that can do no more, which no attribute shows; behind a Fibre
    Channel port it is the switch, the array or the transceiver.
    """
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        slow: dict[tuple[float, float, bool], list[str]] = {}
        for name, rate in (health.rates if health else {}).items():
            if rate.now < rate.most:
                fabric = not name.startswith("phy-")
                slow.setdefault((rate.now, rate.most, fabric), []).append(name)
        for (now, most, fabric), ports in slow.items():
            yield check.found(
                Severity.ADVICE if fabric else Severity.INFO,
                adapter,
                ports=tuple(ports),
                rate=now,
                possible=most,
                fabric=ports[0] if fabric else None,
            )


def find_bus_errors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find errors counted at the adapter or the port above it, and those of the root port.

    A root port counts the messages of all devices below it, so its errors alone are only advice.
    Errors that were corrected, and have not become more since an earlier look, are over.
    """
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if health is None or health.errors is None:
            continue
        near = [health.errors, *([health.port.errors] if health.port else [])]
        root = health.root.errors if health.root else None
        own, above = _sum(near), _sum([root] if root else [])
        if not any(own) and not any(above):
            continue
        over = not any(own[1:]) and _over(seen, adapter)
        yield check.found(
            Severity.INFO if over else _severity(own),
            adapter,
            correctable=own[0],
            nonfatal=own[1],
            fatal=own[2],
            root=health.root.address if health.root else None,
            root_correctable=above[0],
            root_nonfatal=above[1],
            root_fatal=above[2],
        )


def find_uncounted_errors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find PCI Express adapters whose errors the kernel does not count: firmware owns AER."""
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        if adapter.link is None or health is None or health.errors is None:
            continue
        if isinstance(health.errors.correctable, Missing):
            yield check.found(Severity.INFO, adapter, reason=str(health.errors.correctable.reason))


def find_missing_msix(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that are served over an interrupt line although driver and card could do MSI.

    A missing ``msi_irqs`` alone says nothing: a card may have neither MSI-X nor MSI, its driver
    may not be at work, and not every hypervisor has that folder.
    """
    for adapter, health in on_a_line(seen):
        if health.offers_msi is True:
            options = _options(adapter, health)
            word = seen.health.msi_off
            yield check.found(
                Severity.WARNING,
                adapter,
                options=options,
                word=word,
                **needs_root(seen),
                set=() if word else options,
            )


def on_a_line(seen: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    """Yield adapters that have an interrupt line at work, where their driver would use MSI."""
    lines = {
        vector.adapter
        for vector in seen.machine.vectors
        if vector.role is Role.LINE and vector.names
    }
    for adapter, health in _with_vectors(seen):
        bound = not isinstance(adapter.driver, Missing)
        none = isinstance(health.vectors, Missing) and health.vectors.reason is Reason.ABSENT
        if bound and none and adapter.target in lines:
            yield adapter, health


def find_few_vectors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters with fewer vectors than hardware queues, or than CPUs, whichever is less.

    Only vectors that serve data count, where they are known. An adapter with a single queue needs
    a single vector; one without module options for vectors has what its hardware offers, which is
    only informational.
    """
    for adapter, health in _with_vectors(seen):
        vectors, queues = len(_data(seen, adapter)) or health.vectors, adapter.hw_queues
        if isinstance(vectors, Missing) or isinstance(queues, Missing) or queues < 2:
            continue
        cpus = seen.machine.cpus
        options = _options(adapter, health)
        if vectors >= cpus:
            continue
        short = vectors < min(queues, cpus) and bool(options)
        yield check.found(
            Severity.ADVICE if short else Severity.INFO,
            adapter,
            vectors=vectors,
            queues=queues,
            cpus=cpus,
            options=options,
        )


def find_crowded_vectors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters whose data vectors are all served by one CPU although others are near.

    Only CPUs that may serve interrupts count.
    """
    online = seen.machine.processors.online
    allowed = usable(seen.machine.processors)
    for adapter in seen.adapters:
        data = _data(seen, adapter)
        cpus = {vector.effective for vector in data}
        local = seen.machine.local_cpus.get(adapter.target, online)
        near = [cpu for cpu in local if cpu in allowed]
        if len(data) > 1 and len(near) > 1 and len(cpus) == 1 and None not in cpus:
            movable = _movable(data)
            yield check.found(
                # Managed vectors cannot be moved: no advice would help.
                Severity.ADVICE if movable else Severity.INFO,
                adapter,
                vectors=len(data),
                cpu=data[0].effective,
                near=len(near),
                movable=movable,
            )


def find_far_vectors(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters with data vectors that are served by CPUs of another NUMA node."""
    for adapter in seen.adapters:
        near = seen.machine.local_cpus.get(adapter.target, ())
        away = [each for each in _data(seen, adapter) if near and _elsewhere(each, near)]
        if away:
            yield check.found(
                # Managed vectors follow the queues' CPUs and cannot be moved: no advice would help.
                Severity.ADVICE if _movable(away) else Severity.INFO,
                adapter,
                vectors=tuple(each.target for each in away),
                near=names.join_cpus(near),
                movable=_movable(away),
            )


def _below(check: Check, adapter: Adapter, now: Link, port: Port | None) -> Finding | None:
    speed = _least(now.max_speed, port.max_speed if port else None)
    width = _least(now.max_width, port.max_width if port else None)
    if isinstance(now.speed, Missing) or isinstance(now.width, Missing):
        return None  # reported by `unread`
    slower = speed is not None and now.speed < speed
    narrower = width is not None and now.width < width
    if not slower and not narrower:
        return None
    # Without the port's own limit, the slot itself may be the bottleneck.
    sure = port is not None and not isinstance(port.max_speed, Missing)
    return check.found(
        Severity.WARNING if sure else Severity.ADVICE,
        adapter,
        speed=now.speed,
        width=now.width,
        possible_speed=speed,
        possible_width=int(width) if width is not None else None,
        port=port.address if port and sure else None,
    )


def _least(*limits: float | Missing | None) -> float | None:
    return min((limit for limit in limits if isinstance(limit, int | float)), default=None)


def _severity(own: tuple[int, int, int]) -> Severity:
    _, nonfatal, fatal = own
    if fatal:
        return Severity.CRITICAL
    return Severity.WARNING if nonfatal else Severity.ADVICE


def _over(seen: CheckInput, adapter: Adapter) -> bool:
    """Whether none of the adapter's counters has risen since an earlier look."""
    if seen.counted is None or seen.earlier is None:
        return False
    before = seen.earlier
    now = seen.counted.values.get(adapter.target, {})
    return all(before.value(adapter.target, name) >= count for name, count in now.items())


def _sum(counted: list[Errors]) -> tuple[int, int, int]:
    """Return the sums of correctable, nonfatal and fatal errors that could be read."""
    kinds = zip(*((each.correctable, each.nonfatal, each.fatal) for each in counted), strict=True)
    totals = [sum(count for count in kind if isinstance(count, int)) for kind in kinds]
    return (totals[0], totals[1], totals[2]) if totals else (0, 0, 0)


def _movable(vectors: Sequence[Vector]) -> int | None:
    """Return how many of the vectors may be moved, None if none may."""
    return sum(not vector.managed for vector in vectors) or None


def _elsewhere(vector: Vector, near: Sequence[int]) -> bool:
    """Whether no CPU that serves a vector is near its adapter."""
    try:
        served = names.parse_cpus(vector.effective or "")
    except ValueError:
        return False
    return bool(served) and not set(served) & set(near)


def _data(seen: CheckInput, adapter: Adapter) -> list[Vector]:
    """Return the vectors that serve an adapter's data; none where they are not known."""
    own = (vector for vector in seen.machine.vectors if vector.adapter == adapter.target)
    return [vector for vector in own if vector.role is Role.DATA]


def _with_vectors(seen: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        wanted = family_of(adapter).interrupts.vectors in _OWN
        if wanted and health is not None and adapter.pci is not None:
            yield adapter, health


def _options(adapter: Adapter, health: AdapterHealth) -> tuple[str, ...]:
    """Return the module's options for vectors with their values."""
    names = [o.name for o in family_of(adapter).options if o.purpose is Purpose.VECTORS]
    return tuple(
        f"{name}={value}"
        for name in names
        if not isinstance(value := health.options.get(name, Missing(Reason.ABSENT)), Missing)
    )


ZIO_DEFAULT = 200
"""µs for which qla2xxx gathers completions once zio is on (qla_def.h: QLA_ZIO_DEFAULT_TIMER)."""

_TARGETS = "lpfc_tgt_queue_depth"
_TIME = "lpfc_max_scsicmpl_time"
_STATES = {"2": "fault", "3": "in reset", "4": "unrecoverable"}  # mpi3mr: MPI3MR_BSG_ADPSTATE_*


def find_coalescing(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that gather completions for longer than their driver does by itself."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            delay, count = (
                _number(seen, adapter, host.name, name)
                for name in ("lpfc_cr_delay", "lpfc_cr_count")
            )
            if delay and count != 1:  # a count of 1 waits for nobody
                yield _waiting(check, adapter, host.name, "lpfc_cr_delay", delay * 1000)
            zio = _text(seen, adapter, host.name, "zio")
            timer = _text(seen, adapter, host.name, "zio_timer").removesuffix("us").strip()
            if zio.startswith("Mode") and timer.isdecimal():
                grave = Severity.ADVICE if int(timer) > ZIO_DEFAULT else Severity.INFO
                yield _waiting(check, adapter, host.name, "zio", int(timer), grave)
        # 1 coalesces on all queues: of mpt3sas and of megaraid_sas alike.
        if _option(seen, adapter, "perf_mode") == "1":
            yield _waiting(check, adapter, None, "perf_mode=1", None)


def _waiting(
    check: Check,
    adapter: Adapter,
    host: str | None,
    lever: str,
    micros: int | None,
    severity: Severity = Severity.ADVICE,
) -> Finding:
    return check.found(severity, adapter, host=host, lever=lever, micros=micros)


def find_target_limits(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find targets whose LUNs together want more commands than the driver lets one target have."""
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    luns: dict[tuple[str, str], int] = defaultdict(int)
    for endpoint in seen.machine.endpoints:
        if (
            endpoint.host is not None
            and endpoint.address
            and (depth := depth_of(endpoint)) is not None
        ):
            target = (endpoint.host.name, endpoint.address.rpartition(":")[0])
            wanted[target] += depth
            luns[target] += 1
    for adapter in seen.adapters:
        for host in adapter.hosts:
            limit = _number(seen, adapter, host.name, _TARGETS)
            own = {target: sum for target, sum in wanted.items() if target[0] == host.name}
            if not limit or not own:
                continue
            target, most = max(own.items(), key=lambda each: each[1])
            if most > limit:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    host=host.name,
                    limit=limit,
                    luns=luns[target],
                    depths=most,
                    to=target[1],
                )


def find_time_limits(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find hosts whose driver lowers the depth of targets with slow commands."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            if limit := _number(seen, adapter, host.name, _TIME):
                yield check.found(Severity.ADVICE, adapter, host=host.name, limit=limit)


def find_broken_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that say of themselves that they are not at work."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            state = _STATES.get(_text(seen, adapter, host.name, "adp_state"))
            if state is not None:
                resetting = state == "in reset"
                grave = Severity.WARNING if resetting else Severity.CRITICAL
                yield check.found(grave, adapter, host=host.name, state=state)


def _text(seen: CheckInput, adapter: Adapter, host: str, name: str) -> str:
    health = seen.of_adapter(adapter)
    found = health.inspected.get(f"{host} {name}") if health else None
    return found if isinstance(found, str) else ""


def _number(seen: CheckInput, adapter: Adapter, host: str, name: str) -> int | None:
    text = _text(seen, adapter, host, name)
    return int(text) if text.isdecimal() else None


def _option(seen: CheckInput, adapter: Adapter, name: str) -> str | None:
    health = seen.of_adapter(adapter)
    found = health.options.get(name, Missing(Reason.ABSENT)) if health else None
    return found if isinstance(found, str) else None
