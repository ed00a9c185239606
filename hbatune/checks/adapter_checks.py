"""Checks of adapters: PCI Express links and errors, interrupts, and driver settings.

The driver settings (coalescing, target limits, adapter state) are SCSI host attributes or module
options that a family declares (``inspected``).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import UnsetType

from hbatune.checks.finding import Check, CheckEvidence, CheckInput, Finding, Severity
from hbatune.facts import families, names
from hbatune.facts.family import Purpose, Vectors
from hbatune.facts.health import AdapterHealth, Errors
from hbatune.facts.model import Adapter, Missing, Reason, Role, Vector
from hbatune.settings.limits import find_narrowed_masks, find_usable_cpus, is_free
from hbatune.settings.table import IRQ_AFFINITY, QUEUE_DEPTH, SETTINGS

_DRIVER_VECTORS = frozenset({Vectors.FREE, Vectors.MANAGED, Vectors.MIXED, Vectors.PINNED})


class _SlowLink(CheckEvidence, frozen=True):
    speed: float
    width: int
    possible_speed: float | None
    possible_width: int | None
    port: str | None


def find_slow_links(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find links below the maximum speed or width of both the card and the port above it."""
    for adapter in inputs.adapters:
        link, health = adapter.link, inputs.health.adapters.get(adapter.target)
        if link is None or isinstance(link.speed, Missing) or isinstance(link.width, Missing):
            continue  # `adapter-unread` reports an unread link
        port = health.port if health else None
        speed = _take_minimum(link.max_speed, port.max_speed if port else None)
        width = _take_minimum(link.max_width, port.max_width if port else None)
        slower = speed is not None and link.speed < speed
        narrower = width is not None and link.width < width
        if not slower and not narrower:
            continue
        # If the port's limit is unknown, the slot may be the bottleneck.
        is_sure = port is not None and not isinstance(port.max_speed, Missing)
        evidence = _SlowLink(
            speed=link.speed,
            width=link.width,
            possible_speed=speed,
            possible_width=int(width) if width is not None else None,
            port=port.address if port and is_sure else None,
        )
        yield check.report(Severity.WARNING if is_sure else Severity.ADVICE, adapter, evidence)


def _take_minimum(*limits: float | Missing | None) -> float | None:
    return min((limit for limit in limits if isinstance(limit, int | float)), default=None)


class _SlowPorts(CheckEvidence, frozen=True):
    ports: tuple[str, ...]
    rate: float
    possible: float
    fabric: str | None


def find_slow_ports(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find Fibre Channel ports and SAS phys that run below their maximum rate.

    A drive behind a phy may limit its rate, but no attribute shows this. For a Fibre Channel port,
    the limit is the switch, the array or the transceiver.
    """
    for adapter, health in inputs.list_adapter_health():
        slow: dict[tuple[float, float, bool], list[str]] = {}
        for name, rate in health.rates.items():
            if rate.now < rate.most:
                is_fabric = not name.startswith("phy-")
                slow.setdefault((rate.now, rate.most, is_fabric), []).append(name)
        for (current, maximum, is_fabric), ports in slow.items():
            evidence = _SlowPorts(tuple(ports), current, maximum, ports[0] if is_fabric else None)
            yield check.report(Severity.ADVICE if is_fabric else Severity.INFO, adapter, evidence)


class _BusErrors(CheckEvidence, frozen=True):
    correctable: int
    nonfatal: int
    fatal: int
    root: str | None
    root_correctable: int
    root_nonfatal: int
    root_fatal: int


def find_bus_errors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find errors counted at the adapter, at the port above it, and at the root port.

    A root port counts the messages of all devices below it. If only the root port has errors, the
    finding is only advice. Corrected errors are over if their count has not risen since an earlier
    check.
    """
    for adapter, health in inputs.list_adapter_health():
        if health.errors is None:
            continue
        sources = [health.errors, health.port.errors] if health.port else [health.errors]
        correctable, nonfatal, fatal = _sum_errors(sources)
        root_counts = _sum_errors([health.root.errors] if health.root else [])
        if not any((correctable, nonfatal, fatal, *root_counts)):
            continue
        if fatal:
            severity = Severity.CRITICAL
        elif nonfatal:
            severity = Severity.WARNING
        else:
            severity = Severity.INFO if inputs.is_over(adapter.target) else Severity.ADVICE
        root = health.root.address if health.root else None
        evidence = _BusErrors(correctable, nonfatal, fatal, root, *root_counts)
        yield check.report(severity, adapter, evidence)


def _sum_errors(sources: list[Errors]) -> tuple[int, int, int]:
    """Return the sums of the readable correctable, nonfatal and fatal counts."""
    totals = [0, 0, 0]
    for errors in sources:
        for place, count in enumerate((errors.correctable, errors.nonfatal, errors.fatal)):
            totals[place] += count if isinstance(count, int) else 0
    return totals[0], totals[1], totals[2]


class _UncountedErrors(CheckEvidence, frozen=True):
    reason: str


def find_uncounted_errors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find PCI Express adapters whose errors the kernel does not count: firmware owns AER."""
    for adapter, health in inputs.list_adapter_health():
        if adapter.link and health.errors and isinstance(health.errors.correctable, Missing):
            evidence = _UncountedErrors(str(health.errors.correctable.reason))
            yield check.report(Severity.INFO, adapter, evidence)


class _MissingMsix(CheckEvidence, frozen=True):
    options: tuple[str, ...]
    word: str | None
    denied: str | UnsetType
    set: tuple[str, ...]


def find_missing_msix(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters on an interrupt line although their driver and card support MSI.

    A missing ``msi_irqs`` is not sufficient evidence. The card may have neither MSI-X nor MSI, the
    driver may not be working, and some hypervisors lack that directory.
    """
    kernel_option = inputs.health.msi_off
    for adapter, health in list_intx_adapters(inputs):
        if health.offers_msi is True:
            options = _find_options(inputs, adapter, health)
            advised = () if kernel_option else options
            evidence = _MissingMsix(options, kernel_option, inputs.denied_log, advised)
            yield check.report(Severity.WARNING, adapter, evidence)


def list_intx_adapters(inputs: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    """Yield the adapters with an active interrupt line although their driver would use MSI."""
    vectors = inputs.machine.vectors
    lines = {vector.adapter for vector in vectors if vector.role is Role.LINE and vector.names}
    for adapter, health in _find_vector_adapters(inputs):
        is_bound = not isinstance(adapter.driver, Missing)
        has_none = isinstance(health.vectors, Missing) and health.vectors.reason is Reason.ABSENT
        if is_bound and has_none and adapter.target in lines:
            yield adapter, health


class _FewVectors(CheckEvidence, frozen=True):
    vectors: int
    queues: int
    cpus: int
    options: tuple[str, ...]


def find_few_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with fewer vectors than the minimum of hardware queues and CPUs.

    Only data vectors count, if they are known. An adapter with a single queue needs a single
    vector, unless its driver has several queues behind it. If no module option can keep vectors
    back, the hardware sets the limit, and the finding is only informational.
    """
    cpus = inputs.machine.cpus
    for adapter, health in _find_vector_adapters(inputs):
        vectors = len(_find_data_vectors(inputs, adapter)) or health.vectors
        driver_queues = families.family_named(adapter.family).interrupts.driver_queues
        queues = driver_queues or adapter.hw_queues
        if isinstance(vectors, Missing) or isinstance(queues, Missing):
            continue
        if queues < 2 or vectors >= min(cpus, driver_queues or cpus):
            continue
        options = _find_options(inputs, adapter, health) or _find_hidden_options(adapter)
        # If each queue has its vector, only an option that is a number of them limits both.
        if vectors >= queues and not any(map(_is_number_above_one, options)):
            continue
        severity = Severity.ADVICE if vectors < queues and options else Severity.INFO
        yield check.report(severity, adapter, _FewVectors(vectors, queues, cpus, options))


def _is_number_above_one(option: str) -> bool:
    value, *_ = option.partition("=")[2].split() or ("",)
    return value.isdecimal() and int(value) > 1


class _VectorPlacement(CheckEvidence, frozen=True, kw_only=True):
    movable: int | None
    profile: str

    def advise(self, target: str) -> str:
        if self.movable is None:
            return "no action: none of these interrupts can be placed better"
        return f"move them: `hbatune apply --profile {self.profile} {target}`"


def _choose_profile(inputs: CheckInput) -> str:
    """Return the name of the profile if it places interrupts, or else of one that does."""
    profile = inputs.profile
    if profile and any(rule.setting == IRQ_AFFINITY for rule in profile.rules):
        return profile.name
    return "oltp"


class _CrowdedVectors(_VectorPlacement, frozen=True):
    vectors: int
    cpu: str | None
    near: int


def find_crowded_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with all data vectors on one CPU, while others near may handle interrupts."""
    online = inputs.machine.processors.online
    allowed = find_usable_cpus(inputs.machine.processors)[0]
    for adapter in inputs.adapters:
        data = _find_data_vectors(inputs, adapter)
        unpinned = _find_unpinned_vectors(inputs, adapter)
        cpus = {vector.effective for vector in data}
        near = sum(cpu in allowed for cpu in inputs.machine.local_cpus.get(adapter.target, online))
        if unpinned and len(data) > 1 and near > 1 and len(cpus) == 1 and None not in cpus:
            movable = _count_movable(unpinned)
            if movable == 1:  # the profile leaves a single vector on its CPU
                movable = None
            cpu, profile = data[0].effective, _choose_profile(inputs)
            evidence = _CrowdedVectors(len(data), cpu, near, movable=movable, profile=profile)
            yield check.report(Severity.ADVICE if movable else Severity.INFO, adapter, evidence)


class _FarVectors(_VectorPlacement, frozen=True):
    vectors: tuple[str, ...]
    near: str


def find_far_vectors(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with data vectors on CPUs of another NUMA node."""
    for adapter in inputs.adapters:
        near = inputs.machine.local_cpus.get(adapter.target, ())
        far = []
        for vector in _find_unpinned_vectors(inputs, adapter):
            served = names.find_cpus(vector.effective or "")
            if served and set(near).isdisjoint(served):
                far.append(vector)
        if near and far:
            targets, cpus = tuple(vector.target for vector in far), names.join_cpus(near)
            movable, profile = _count_movable(far), _choose_profile(inputs)
            evidence = _FarVectors(targets, cpus, movable=movable, profile=profile)
            yield check.report(Severity.ADVICE if movable else Severity.INFO, adapter, evidence)


def _count_movable(vectors: Sequence[Vector]) -> int | None:
    """Return the number of movable vectors, or None if no vector is movable.

    Managed vectors follow the queues' CPUs and cannot be moved: no advice would help.
    """
    return sum(not vector.managed for vector in vectors) or None


def _find_data_vectors(inputs: CheckInput, adapter: Adapter) -> list[Vector]:
    """Return an adapter's data vectors, or an empty list if they are unknown."""
    vectors = (vector for vector in inputs.machine.vectors if vector.adapter == adapter.target)
    return [vector for vector in vectors if vector.role is Role.DATA]


def _find_unpinned_vectors(inputs: CheckInput, adapter: Adapter) -> list[Vector]:
    """Return the data vectors whose mask no administrator has narrowed: `apply` keeps those."""
    data, machine = _find_data_vectors(inputs, adapter), inputs.machine
    pinned = find_narrowed_masks(filter(is_free, data), machine.processors, machine.local_cpus)
    return [vector for vector in data if vector.id not in pinned]


def _find_vector_adapters(inputs: CheckInput) -> Iterator[tuple[Adapter, AdapterHealth]]:
    for adapter, health in inputs.list_adapter_health():
        is_expected = families.family_named(adapter.family).interrupts.vectors in _DRIVER_VECTORS
        if is_expected and adapter.pci is not None:
            yield adapter, health


def _find_options(inputs: CheckInput, adapter: Adapter, health: AdapterHealth) -> tuple[str, ...]:
    """Return the module options that may keep vectors back, with their values.

    The last line in modprobe.d is the witness of an option that the module does not show.
    """
    lines = {(line.module, line.option): line for line in inputs.health.module_options}
    options = []
    for option in families.family_named(adapter.family).options:
        value = health.options.get(option.name)
        line = lines.get((adapter.family, option.name))
        if isinstance(value, str) and option.is_neutral(value):
            continue
        if option.purpose is Purpose.VECTORS and isinstance(value, str):
            options.append(f"{option.name}={value}")
        elif option.purpose is Purpose.VECTORS and not option.shown and line is not None:
            options.append(f"{option.name}={line.value} ({line.file}, line {line.line})")
    return tuple(options)


def _find_hidden_options(adapter: Adapter) -> tuple[str, ...]:
    """Return the module options for vectors that the module does not show."""
    options = families.family_named(adapter.family).options
    hidden = (option for option in options if not option.shown)
    return tuple(option.name for option in hidden if option.purpose is Purpose.VECTORS)


ZIO_DEFAULT = 200
"""Default µs of qla2xxx's completion coalescing with zio (qla_def.h: QLA_ZIO_DEFAULT_TIMER)."""

_STATES = {"2": "fault", "3": "in reset", "4": "unrecoverable"}  # mpi3mr: MPI3MR_BSG_ADPSTATE_*


class _Coalescing(CheckEvidence, frozen=True):
    host: str | None
    lever: str
    micros: int | None

    def advise(self, target: str) -> str:
        reset = " with --allow-reset, which resets the link" if self.lever == "zio" else ""
        return self._fill_text("perf_mode" if self.host is None else "advice", reset=reset)


def find_coalescing(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that coalesce completions for longer than their driver's default."""
    for adapter, health in inputs.list_adapter_health():
        for host in adapter.hosts:
            delay = _read_number(health, host.name, "lpfc_cr_delay")
            # A count of 1 delays nothing.
            if delay and _read_number(health, host.name, "lpfc_cr_count") != 1:
                evidence = _Coalescing(host.name, "lpfc_cr_delay", delay * 1000)
                yield check.report(Severity.ADVICE, adapter, evidence)
            zio = _read_text(health, host.name, "zio")
            timer = _read_text(health, host.name, "zio_timer").removesuffix("us").strip()
            if zio.startswith("Mode") and timer.isdecimal():
                severity = Severity.ADVICE if int(timer) > ZIO_DEFAULT else Severity.INFO
                yield check.report(severity, adapter, _Coalescing(host.name, "zio", int(timer)))
        # 1 coalesces on all queues, both in mpt3sas and in megaraid_sas.
        if health.options.get("perf_mode") == "1":
            yield check.report(Severity.ADVICE, adapter, _Coalescing(None, "perf_mode=1", None))


class _TargetLimit(CheckEvidence, frozen=True):
    host: str
    limit: int
    luns: int
    depths: int
    to: str


def find_target_limits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find targets whose LUNs' total depth exceeds the driver's limit for one target."""
    depths: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for endpoint in inputs.machine.endpoints:
        depth = SETTINGS[QUEUE_DEPTH].read_number(endpoint.attributes)
        if endpoint.host is not None and endpoint.address and depth is not None:
            depths[endpoint.host.name].setdefault(endpoint.scsi_target, []).append(depth)
    for adapter, health in inputs.list_adapter_health():
        for host in adapter.hosts:
            limit = _read_number(health, host.name, "lpfc_tgt_queue_depth")
            if not limit or host.name not in depths:
                continue
            target, largest = max(depths[host.name].items(), key=lambda item: sum(item[1]))
            if sum(largest) > limit:
                evidence = _TargetLimit(host.name, limit, len(largest), sum(largest), target)
                yield check.report(Severity.ADVICE, adapter, evidence)


class _TimeLimit(CheckEvidence, frozen=True):
    host: str
    limit: int


def find_time_limits(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find hosts whose driver lowers the depth of targets with slow commands."""
    for adapter, health in inputs.list_adapter_health():
        for host in adapter.hosts:
            if limit := _read_number(health, host.name, "lpfc_max_scsicmpl_time"):
                yield check.report(Severity.ADVICE, adapter, _TimeLimit(host.name, limit))


class _BrokenAdapter(CheckEvidence, frozen=True):
    host: str
    state: str


def find_broken_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that report a fault or a reset in progress."""
    for adapter, health in inputs.list_adapter_health():
        for host in adapter.hosts:
            state = _STATES.get(_read_text(health, host.name, "adp_state"))
            if state is not None:
                severity = Severity.WARNING if state == "in reset" else Severity.CRITICAL
                yield check.report(severity, adapter, _BrokenAdapter(host.name, state))


def _read_text(health: AdapterHealth, host: str, name: str) -> str:
    value = health.inspected.get(f"{host} {name}")
    return value if isinstance(value, str) else ""


def _read_number(health: AdapterHealth, host: str, name: str) -> int | None:
    text = _read_text(health, host, name)
    return int(text) if text.isdecimal() else None
