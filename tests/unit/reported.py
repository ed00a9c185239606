"""A server with everything that a report can show, its names hostile and long."""

from random import Random

from msgspec.structs import replace

from hbatune.act.journal import Entry, Journal
from hbatune.facts.model import (
    Adapter,
    Attribute,
    Endpoint,
    Machine,
    Medium,
    Processors,
    Protocol,
    Role,
    Vector,
)
from hbatune.plan import make
from hbatune.policy.load import Library, load_profile
from hbatune.policy.model import Profile
from hbatune.probe.history import Record, ValueChange
from hbatune.probe.knee import Knee
from hbatune.probe.model import Figures, InForce, Pattern, ProbeResult, Served, Workload
from hbatune.probe.prove import Proof
from hbatune.probe.verdict import judge_pairs
from hbatune.report.page import ReportData
from hbatune.shipped import shipped
from tests.unit.factory import adapter, attributes, endpoint, link, machine, vector
from tests.unit.noisy import Noise, NoisyDisk
from tests.unit.noisy import figures as noisy

HOSTILE = "<script>alert('x')</script>\"&]]>"
NOW = 1_800_000_000.0
SWEEP = Workload(ramp=0.5, runtime=2.0)
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BLOCKS = (4096, 8192, 16384, 32768, 65536, 131072, 262144)
KNEE = 32
NVME = "0000:81:00.0"


def figures(iops: float, p50: float, tail: float, size: int = 4096, cpu: float = 6.0) -> Figures:
    """Return figures that obey Little's law as far as IOPS and latencies do."""
    return Figures(
        iops=iops,
        bandwidth=iops * size,
        mean_us=p50 * 1.02,
        p50_us=p50,
        p95_us=p50 * (1 + tail / 4),
        p99_us=p50 * (1 + tail),
        p999_us=p50 * (1 + 2.5 * tail),
        cpu_us_per_io=cpu,
        ios=round(iops * 2),
        runtime=2.0,
        job_iops=(iops,),
    )


def library() -> Library:
    """Return what ships, with no site's own."""
    return Library(shipped("rules"), site=shipped("rules") / "nowhere")


def oltp() -> Profile:
    """Return the profile as it ships."""
    return load_profile("oltp", library())


def host() -> Machine:
    """Return two adapters with their interrupts: SAS below what its slot can do, and NVMe."""
    sas = adapter(product=f"HBA 9400-16e {HOSTILE}", link=link(max_width=16, max_speed=16.0))
    nvme = adapter(
        target=NVME,
        family="nvme",
        product=None,
        link=link(speed=16.0, width=4, max_speed=16.0, max_width=4),
        driver="nvme",
        driver_version="1.0",
        firmware="GDC5602Q",
        hosts=(),
        controller="nvme0",
        numa_node=1,
        hw_queues=16,
    )
    return machine(
        *(endpoint(**_lun(number)) for number in range(12)),
        _drive(),
        adapters=(sas, nvme),
        vectors=(*_vectors(sas), *_queues(nvme)),
        cpus=32,
        memory=256 << 30,
        processors=Processors(tuple(range(32)), isolated=(30, 31)),
        local_cpus={sas.target: tuple(range(16)), NVME: tuple(range(16, 32))},
    )


def _lun(number: int) -> dict[str, object]:
    return {
        "target": f"sd{chr(97 + number)}",
        "model": f"XS3840SE70084 {HOSTILE}",
        "attributes": attributes(
            queue__scheduler="none [mq-deadline]",
            queue__nr_requests="256" if number else "2048",
            device__queue_depth="254",
        ),
    }


def _drive() -> Endpoint:
    return endpoint(
        target="nvme0n1",
        adapter=NVME,
        family="nvme",
        protocol=Protocol.NVME,
        medium=Medium.NVME,
        vendor="",
        model="INTEL SSDPE2KX040T8",
        host=None,
        controller="nvme0",
        tags=1023,
        attributes=attributes(queue__scheduler="[none] mq-deadline", queue__nr_requests="1023"),
    )


def _vectors(sas: Adapter) -> list[Vector]:
    return [
        vector(
            irq=40 + number,
            adapter=sas.target,
            names=(f"mpt3sas0-msix{number}",),
            affinity=Attribute(f"{2 * number}-{2 * number + 1}", True),
            effective=str(2 * number),
        )
        for number in range(8)
    ]


def _queues(nvme: Adapter) -> list[Vector]:
    admin = vector(irq=80, adapter=nvme.target, names=("nvme0q0",), role=Role.ADMIN, effective="3")
    managed = [
        vector(
            irq=81 + number,
            adapter=nvme.target,
            names=(f"nvme0q{number + 1}",),
            managed=True,
            affinity=Attribute(f"{2 * number}-{2 * number + 1}", False),
            effective=str(2 * number + 1),
        )
        for number in range(16)
    ]
    return [admin, *managed]


def record(made: Machine, result: ProbeResult, command: str, at: float) -> Record:
    """Return the record of a result on this machine, ``at`` seconds after the first."""
    return Record(
        time=NOW + at,
        command=command,
        kernel=made.kernel,
        boot_id=made.boot_id,
        profile="oltp",
        target=result.target,
        id=result.id,
        result=result,
    )


def result(disk: Endpoint, asked: Workload, measured: Figures, by: Adapter) -> ProbeResult:
    """Return a result of a disk as its adapter is now."""
    served = Served(by.target, by.driver, by.driver_version, by.firmware)
    return ProbeResult(disk.target, disk.id, asked, measured, "3.33", (served,), blank=False)


def depth_sweep(made: Machine, at: float = 0.0, depths: tuple[int, ...] = DEPTHS) -> list[Record]:
    """Return a sweep whose knee is at ``KNEE``: beyond it the disk only lets wait."""
    disk, by = made.endpoints[0], made.adapters[0]
    found = []
    for number, deep in enumerate(depths):
        rate = min(deep, KNEE) / 120e-6 * (1 if deep <= KNEE else 1.02)
        wait = deep / rate * 1e6 / 1.02
        asked = replace(SWEEP, depth=deep)
        tail = 0.4 if deep <= KNEE else 0.9
        measured = figures(rate, wait, tail, cpu=4 + 6 / deep)
        found.append(record(made, result(disk, asked, measured, by), "probe", at + 3 * number))
    return found


def kept(made: Machine) -> list[Record]:
    """Return the sweep as `probe` keeps it: all of one time, with what it cost, and its knee."""
    settings = tuple(InForce("sda", name, values[0]) for name, values in VALUES.items())
    found = []
    for each in depth_sweep(made):
        assert each.result is not None
        cost = replace(each.result.figures, interrupt_us_per_io=2.0, busy=0.5)
        if each.result.workload.depth == DEPTHS[-1]:
            cost = replace(cost, busy=0.97)
        whole = replace(each.result, figures=cost, settings=settings, temperature=38.0)
        found.append(replace(each, time=NOW, command="probe depth-sweep", result=whole))
    knee = Knee(KNEE, 16, 64, 64, 0.02, 0.9)
    return [*found, replace(found[-1], result=None, knee=knee)]


def lun_depths(made: Machine, at: float = 500.0) -> list[Record]:
    """Return a sweep for each of five depths of the disk itself, beyond which the rest waits."""
    disk, by = made.endpoints[0], made.adapters[0]
    runs, knees = list[Record](), list[Record]()
    for own in (8, 16, 32, 64, 128):
        for deep in DEPTHS[:-1]:
            rate = min(deep, own) / 20e-3
            asked = replace(SWEEP, depth=deep, block_size=8192, queue_depth=own)
            measured = figures(rate, deep / rate * 1e6 / 1.02, 0.1, 8192)
            told = result(disk, asked, measured, by)
            runs.append(record(made, told, "probe queue-depth", at))
        knee = Knee(own, own, own, 2 * own, 0.0, 1.0) if own < 128 else None
        knees.append(replace(runs[-1], result=None, knee=knee, queue_depth=own))
    return [*runs, *knees]


def block_sweep(made: Machine, at: float = 100.0) -> list[Record]:
    """Return a sweep that ends at the link's 3 GB/s; its first run breaks Little's law."""
    disk, by = made.endpoints[0], made.adapters[0]
    found = []
    for number, size in enumerate(BLOCKS):
        rate = min(200_000.0, 3e9 / size)
        wait = 24 / rate * 1e6 / 1.02 * (0.7 if not number else 1)
        asked = replace(SWEEP, block_size=size)
        measured = figures(rate, wait, 0.6, size)
        found.append(record(made, result(disk, asked, measured, by), "probe", at + 3 * number))
    return found


def mix_sweep(made: Machine, at: float = 200.0) -> list[Record]:
    """Return a sweep in which writes cost."""
    disk, by = made.endpoints[0], made.adapters[0]
    found = []
    for number, reads in enumerate((100, 70, 50, 0)):
        rate = 90_000 + 1_100 * reads
        asked = replace(SWEEP, pattern=Pattern.RANDOM_MIX, reads=reads)
        measured = figures(rate, 24 / rate * 1e6 / 1.02, 1.5 - reads / 100)
        found.append(record(made, result(disk, asked, measured, by), "probe", at + 3 * number))
    return found


def proof(made: Machine, slower: float, number: int, at: float) -> Record:
    """Return the proof of a change after which an I/O takes ``slower`` times as long."""
    disk, by, tolerance = made.endpoints[number], made.adapters[0], oltp().tolerance
    pairs = NoisyDisk(Noise(0.02), number).pairs(10, slower)
    verdict = judge_pairs(pairs, tolerance, 6.0)
    last = result(disk, SWEEP, noisy(60_000 / slower, 400 * slower, 900 * slower), by)
    reverted = bool(verdict.beyond)
    settings = ("nr_requests",) if slower > 1.1 else ("scheduler", "nr_requests")
    return replace(
        record(made, last, "apply --verify", at),
        proof=Proof(disk.target, disk.id, None, settings, verdict, last),
        settings=tuple(ValueChange(disk.target, name, *VALUES[name]) for name in settings),
        reverted=settings if reverted else (),
    )


VALUES: dict[str, tuple[str | int, str | int]] = {
    "scheduler": ("none", "mq-deadline"),
    "nr_requests": (256, 2048),
}


def lone(made: Machine, at: float = 400.0) -> list[Record]:
    """Return a run before and one after an apply, on each of two disks."""
    random, found = Random(7), []
    for number in (2, 12):
        disk = made.endpoints[number]
        by = made.adapters[0 if number == 2 else 1]
        for command in ("apply, before", "apply, after"):
            rate = 150_000 * random.uniform(0.9, 1.1)
            measured = figures(rate, 24 / rate * 1e6 / 1.02, random.uniform(0.5, 4))
            found.append(record(made, result(disk, SWEEP, measured, by), command, at))
            at += 5
    return found


def journal(made: Machine) -> Journal:
    """Return a journal in which the first disk got more requests."""
    disk = made.endpoints[0]
    entry = Entry(disk.id, disk.target, disk.adapter, "nr_requests", 256, 2048)
    return Journal(made.boot_id, (entry,))


def seen() -> ReportData:
    """Return a server on which everything was measured."""
    made, profile = host(), oltp()
    records = (
        *kept(made),
        *lun_depths(made),
        *block_sweep(made),
        *mix_sweep(made),
        proof(made, 0.8, 3, 300),
        proof(made, 1.0, 4, 320),
        proof(made, 1.25, 5, 340),
        *lone(made),
    )
    return ReportData(
        machine=made,
        profile=profile,
        plan=make.make(made, profile),
        journal=journal(made),
        records=records,
        yardsticks=library().yardsticks(),
    )


def unmeasured() -> ReportData:
    """Return a server on which nothing was measured or changed, with no profile."""
    made = machine(adapters=(), vectors=(), memory=1 << 30)
    made = replace(made, endpoints=())
    return ReportData(made, None, None, Journal(made.boot_id), (), library().yardsticks())


def crowded() -> ReportData:
    """Return a server that leaves a picture no room: long names, many vectors, equal figures."""
    small, long = host(), "a-handler-with-a-very-long-name-" * 6
    by = small.adapters[0]
    vectors = [
        vector(
            irq=1000 + number,
            names=(f"{long}{number}",),
            adapter=by.target,
            affinity=Attribute(f"{number}-{number + 3}", True),
            effective=str(number),
        )
        for number in range(160)
    ]
    named = replace(by, product=long)
    made = replace(
        small,
        adapters=(named, *small.adapters[1:]),
        vectors=tuple(vectors),
        cpus=1024,
        hostname=long,
    )
    return replace(
        seen(),
        machine=made,
        records=(*_equal(made), *_few(made), _unsure(made), *lone(made, 8000)),
        plan=make.make(made, oltp()),
    )


def _equal(made: Machine) -> list[Record]:
    """Return a depth sweep whose runs all did nearly the same, twenty of them."""
    disk, by, found = made.endpoints[0], made.adapters[0], []
    for number in range(20):
        rate = 50 + number / 10
        asked = replace(SWEEP, depth=10 + number, jobs=13)
        measured = figures(rate, 20_000 + 3 * number, 0.01)
        found.append(record(made, result(disk, asked, measured, by), "probe", 3 * number))
    return found


def _few(made: Machine) -> list[Record]:
    """Return a depth sweep over a range as wide as can be, from a few µs to a minute."""
    disk, by, found = made.endpoints[1], made.adapters[0], []
    for number, deep in enumerate((1, 4000, 4001, 4096)):
        measured = figures(3_900_000 - number, 6 if deep == 1 else 2e7, 2)
        asked = replace(SWEEP, depth=deep)
        found.append(record(made, result(disk, asked, measured, by), "probe", 900 + number))
    return found


def _unsure(made: Machine) -> Record:
    """Return a proof whose intervals go from nothing to anything."""
    disk = made.endpoints[3]
    known = proof(made, 1.0, 3, 2000)
    assert known.proof is not None
    changes = tuple(
        replace(each, low=2e-9, ratio=1.3, high=4.8e8) for each in known.proof.verdict.changes
    )
    verdict = replace(known.proof.verdict, changes=changes)
    return replace(known, proof=replace(known.proof, verdict=verdict, target=disk.target))
