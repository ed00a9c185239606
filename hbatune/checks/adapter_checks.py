"""Checks of adapters: PCI Express links and errors, interrupts, and driver settings.

The driver settings (coalescing, target limits, adapter state) are SCSI host attributes or module
options that a family declares (``inspected``).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hbatune.checks.depth_checks import get_depth
from hbatune.checks.finding import (
    Check,
    CheckInput,
    Finding,
    Severity,
    get_family,
    make_root_evidence,
)
from hbatune.facts import names
from hbatune.facts.family import Purpose, Vectors
from hbatune.facts.health import AdapterHealth, Errors, Port
from hbatune.facts.model import Adapter, Link, Missing, Reason, Role, Vector
from hbatune.settings.limits import list_usable_cpus

_DRIVER_VECTORS = frozenset({Vectors.FREE, Vectors.MANAGED, Vectors.MIXED, Vectors.PINNED})


def find_slow_links(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find links below the maximum speed or width of both the card and the port above it."""
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        if adapter.link is None:
            continue
        finding = _check_link(check, adapter, adapter.link, health.port if health else None)
        if finding is not None:
            yield finding


def find_slow_ports(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find Fibre Channel ports and SAS phys that run below their maximum rate.

    A drive behind a phy may limit its rate, but no attribute shows this. For a Fibre Channel port,
    the limit is the switch, the array or the transceiver.
    """
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        slow: dict[tuple[float, float, bool], list[str]] = {}
        for name, rate in (health.rates if health else {}).items():
            if rate.now < rate.most:
                fabric = not name.startswith("phy-")
                slow.setdefault((rate.now, rate.most, fabric), []).append(name)
        for (current, maximum, fabric), ports in slow.items():
            yield check.found(
                Severity.ADVICE if fabric else Severity.INFO,
                adapter,
                ports=tuple(ports),
                rate=current,
                possible=maximum,
                fabric=ports[0] if fabric else None,
            )


def find_bus_errors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find errors counted at the adapter, at the port above it, and at the root port.

    A root port counts the messages of all devices below it. If only the root port has errors, the
    finding is only advice. Corrected errors are over if their count has not risen since an earlier
    check.
    """
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        if health is None or health.errors is None:
            continue
        sources = [health.errors, *([health.port.errors] if health.port else [])]
        root = health.root.errors if health.root else None
        counts, root_counts = _sum_errors(sources), _sum_errors([root] if root else [])
        if not any(counts) and not any(root_counts):
            continue
        is_over = not any(counts[1:]) and _is_over(inputs, adapter)
        yield check.found(
            Severity.INFO if is_over else _grade_errors(counts),
            adapter,
            correctable=counts[0],
            nonfatal=counts[1],
            fatal=counts[2],
            root=health.root.address if health.root else None,
            root_correctable=root_counts[0],
            root_nonfatal=root_counts[1],
            root_fatal=root_counts[2],
        )


def find_uncounted_errors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find PCI Express adapters whose errors the kernel does not count: firmware owns AER."""
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        if adapter.link is None or health is None or health.errors is None:
            continue
        if isinstance(health.errors.correctable, Missing):
            yield check.found(Severity.INFO, adapter, reason=str(health.errors.correctable.reason))


def find_missing_msix(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters on an interrupt line although their driver and card support MSI.

    A missing ``msi_irqs`` is not sufficient evidence. The card may have neither MSI-X nor MSI, the
    driver may not be working, and some hypervisors lack that directory.
    """
    for adapter, health in list_intx_adapters(inputs):
        if health.offers_msi is True:
            options = _find_options(adapter, health)
            kernel_option = inputs.health.msi_off
            yield check.found(
                Severity.WARNING,
                adapter,
                options=options,
                word=kernel_option,
                **make_root_evidence(inputs),
                set=() if kernel_option else options,
            )


def list_intx_adapters(inputs: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    """Yield the adapters with an active interrupt line although their driver would use MSI."""
    lines = {
        vector.adapter
        for vector in inputs.machine.vectors
        if vector.role is Role.LINE and vector.names
    }
    for adapter, health in _find_vector_adapters(inputs):
        is_bound = not isinstance(adapter.driver, Missing)
        vectors = health.vectors
        has_none = isinstance(vectors, Missing) and vectors.reason is Reason.ABSENT
        if is_bound and has_none and adapter.target in lines:
            yield adapter, health


def find_few_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with fewer vectors than the minimum of hardware queues and CPUs.

    Only data vectors count, if they are known. An adapter with a single queue needs a single
    vector. If the driver has no module options for vectors, the hardware sets the limit, and the
    finding is only informational.
    """
    for adapter, health in _find_vector_adapters(inputs):
        vectors = len(_find_data_vectors(inputs, adapter)) or health.vectors
        queues = adapter.hw_queues
        if isinstance(vectors, Missing) or isinstance(queues, Missing) or queues < 2:
            continue
        cpus = inputs.machine.cpus
        options = _find_options(adapter, health)
        if vectors >= cpus:
            continue
        is_short = vectors < min(queues, cpus) and bool(options)
        yield check.found(
            Severity.ADVICE if is_short else Severity.INFO,
            adapter,
            vectors=vectors,
            queues=queues,
            cpus=cpus,
            options=options,
        )


def find_crowded_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters whose data vectors all use one CPU although other CPUs are near.

    Only CPUs that may handle interrupts count.
    """
    online = inputs.machine.processors.online
    allowed = list_usable_cpus(inputs.machine.processors)
    for adapter in inputs.adapters:
        data = _find_data_vectors(inputs, adapter)
        cpus = {vector.effective for vector in data}
        local = inputs.machine.local_cpus.get(adapter.target, online)
        near = [cpu for cpu in local if cpu in allowed]
        if len(data) > 1 and len(near) > 1 and len(cpus) == 1 and None not in cpus:
            movable = _count_movable(data)
            yield check.found(
                # Managed vectors cannot be moved: no advice would help.
                Severity.ADVICE if movable else Severity.INFO,
                adapter,
                vectors=len(data),
                cpu=data[0].effective,
                near=len(near),
                movable=movable,
            )


def find_far_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with data vectors on CPUs of another NUMA node."""
    for adapter in inputs.adapters:
        near = inputs.machine.local_cpus.get(adapter.target, ())
        far_vectors = [
            vector
            for vector in _find_data_vectors(inputs, adapter)
            if near and _is_far(vector, near)
        ]
        if far_vectors:
            yield check.found(
                # Managed vectors follow the queues' CPUs and cannot be moved: no advice would help.
                Severity.ADVICE if _count_movable(far_vectors) else Severity.INFO,
                adapter,
                vectors=tuple(vector.target for vector in far_vectors),
                near=names.join_cpus(near),
                movable=_count_movable(far_vectors),
            )


def _check_link(check: Check, adapter: Adapter, link: Link, port: Port | None) -> Finding | None:
    speed = _take_minimum(link.max_speed, port.max_speed if port else None)
    width = _take_minimum(link.max_width, port.max_width if port else None)
    if isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return None  # reported by `unread`
    slower = speed is not None and link.speed < speed
    narrower = width is not None and link.width < width
    if not slower and not narrower:
        return None
    # If the port's limit is unknown, the slot may be the bottleneck.
    is_sure = port is not None and not isinstance(port.max_speed, Missing)
    return check.found(
        Severity.WARNING if is_sure else Severity.ADVICE,
        adapter,
        speed=link.speed,
        width=link.width,
        possible_speed=speed,
        possible_width=int(width) if width is not None else None,
        port=port.address if port and is_sure else None,
    )


def _take_minimum(*limits: float | Missing | None) -> float | None:
    return min((limit for limit in limits if isinstance(limit, int | float)), default=None)


def _grade_errors(counts: tuple[int, int, int]) -> Severity:
    _, nonfatal, fatal = counts
    if fatal:
        return Severity.CRITICAL
    return Severity.WARNING if nonfatal else Severity.ADVICE


def _is_over(inputs: CheckInput, adapter: Adapter) -> bool:
    """Return whether no counter of the adapter has risen since an earlier check."""
    if inputs.counted is None or inputs.earlier is None:
        return False
    earlier = inputs.earlier
    current = inputs.counted.values.get(adapter.target, {})
    return all(earlier.value(adapter.target, name) >= count for name, count in current.items())


def _sum_errors(sources: list[Errors]) -> tuple[int, int, int]:
    """Return the sums of the readable correctable, nonfatal and fatal counts."""
    kinds = zip(
        *((errors.correctable, errors.nonfatal, errors.fatal) for errors in sources), strict=True
    )
    totals = [sum(count for count in kind if isinstance(count, int)) for kind in kinds]
    return (totals[0], totals[1], totals[2]) if totals else (0, 0, 0)


def _count_movable(vectors: Sequence[Vector]) -> int | None:
    """Return the number of movable vectors, or None if no vector is movable."""
    return sum(not vector.managed for vector in vectors) or None


def _is_far(vector: Vector, near: Sequence[int]) -> bool:
    """Return whether all CPUs of a vector are far from its adapter."""
    try:
        served = names.parse_cpus(vector.effective or "")
    except ValueError:
        return False
    return bool(served) and not set(served) & set(near)


def _find_data_vectors(inputs: CheckInput, adapter: Adapter) -> list[Vector]:
    """Return an adapter's data vectors, or an empty list if they are unknown."""
    vectors = (vector for vector in inputs.machine.vectors if vector.adapter == adapter.target)
    return [vector for vector in vectors if vector.role is Role.DATA]


def _find_vector_adapters(inputs: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    for adapter in inputs.adapters:
        health = inputs.of_adapter(adapter)
        is_expected = get_family(adapter).interrupts.vectors in _DRIVER_VECTORS
        if is_expected and health is not None and adapter.pci is not None:
            yield adapter, health


def _find_options(adapter: Adapter, health: AdapterHealth) -> tuple[str, ...]:
    """Return the module options for vectors, with their values."""
    option_names = [o.name for o in get_family(adapter).options if o.purpose is Purpose.VECTORS]
    return tuple(
        f"{name}={value}"
        for name in option_names
        if not isinstance(value := health.options.get(name, Missing(Reason.ABSENT)), Missing)
    )


ZIO_DEFAULT = 200
"""Default µs of qla2xxx's completion coalescing with zio (qla_def.h: QLA_ZIO_DEFAULT_TIMER)."""

_TARGETS = "lpfc_tgt_queue_depth"
_TIME = "lpfc_max_scsicmpl_time"
_STATES = {"2": "fault", "3": "in reset", "4": "unrecoverable"}  # mpi3mr: MPI3MR_BSG_ADPSTATE_*


def find_coalescing(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that coalesce completions for longer than their driver's default."""
    for adapter in inputs.adapters:
        for host in adapter.hosts:
            delay, count = (
                _read_number(inputs, adapter, host.name, name)
                for name in ("lpfc_cr_delay", "lpfc_cr_count")
            )
            if delay and count != 1:  # a count of 1 delays nothing
                yield _report_delay(check, adapter, host.name, "lpfc_cr_delay", delay * 1000)
            zio = _read_text(inputs, adapter, host.name, "zio")
            timer = _read_text(inputs, adapter, host.name, "zio_timer").removesuffix("us").strip()
            if zio.startswith("Mode") and timer.isdecimal():
                severity = Severity.ADVICE if int(timer) > ZIO_DEFAULT else Severity.INFO
                yield _report_delay(check, adapter, host.name, "zio", int(timer), severity)
        # 1 coalesces on all queues, both in mpt3sas and in megaraid_sas.
        if _read_option(inputs, adapter, "perf_mode") == "1":
            yield _report_delay(check, adapter, None, "perf_mode=1", None)


def _report_delay(
    check: Check,
    adapter: Adapter,
    host: str | None,
    lever: str,
    micros: int | None,
    severity: Severity = Severity.ADVICE,
) -> Finding:
    return check.found(severity, adapter, host=host, lever=lever, micros=micros)


def find_target_limits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find targets whose LUNs' total depth exceeds the driver's limit for one target."""
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    luns: dict[tuple[str, str], int] = defaultdict(int)
    for endpoint in inputs.machine.endpoints:
        if (
            endpoint.host is not None
            and endpoint.address
            and (depth := get_depth(endpoint)) is not None
        ):
            target = (endpoint.host.name, endpoint.address.rpartition(":")[0])
            wanted[target] += depth
            luns[target] += 1
    for adapter in inputs.adapters:
        for host in adapter.hosts:
            limit = _read_number(inputs, adapter, host.name, _TARGETS)
            depths = {target: total for target, total in wanted.items() if target[0] == host.name}
            if not limit or not depths:
                continue
            target, largest = max(depths.items(), key=lambda item: item[1])
            if largest > limit:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    host=host.name,
                    limit=limit,
                    luns=luns[target],
                    depths=largest,
                    to=target[1],
                )


def find_time_limits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find hosts whose driver lowers the depth of targets with slow commands."""
    for adapter in inputs.adapters:
        for host in adapter.hosts:
            if limit := _read_number(inputs, adapter, host.name, _TIME):
                yield check.found(Severity.ADVICE, adapter, host=host.name, limit=limit)


def find_broken_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that report a fault or a reset in progress."""
    for adapter in inputs.adapters:
        for host in adapter.hosts:
            state = _STATES.get(_read_text(inputs, adapter, host.name, "adp_state"))
            if state is not None:
                is_resetting = state == "in reset"
                severity = Severity.WARNING if is_resetting else Severity.CRITICAL
                yield check.found(severity, adapter, host=host.name, state=state)


def _read_text(inputs: CheckInput, adapter: Adapter, host: str, name: str) -> str:
    health = inputs.of_adapter(adapter)
    value = health.inspected.get(f"{host} {name}") if health else None
    return value if isinstance(value, str) else ""


def _read_number(inputs: CheckInput, adapter: Adapter, host: str, name: str) -> int | None:
    text = _read_text(inputs, adapter, host, name)
    return int(text) if text.isdecimal() else None


def _read_option(inputs: CheckInput, adapter: Adapter, name: str) -> str | None:
    health = inputs.of_adapter(adapter)
    value = health.options.get(name, Missing(Reason.ABSENT)) if health else None
    return value if isinstance(value, str) else None
