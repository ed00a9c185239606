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
from hbatune.policy.library import Library, load_profile
from hbatune.policy.profile import Profile
from hbatune.probe.history import (
    CandidateTried,
    Measurement,
    Proof,
    Record,
    Searched,
    SearchedDepth,
    SearchedSettings,
    ValueChange,
)
from hbatune.probe.knee import Knee
from hbatune.probe.result import (
    ADAPTER_ID,
    BulkWriter,
    Figures,
    InForce,
    Pattern,
    ProbeResult,
    Served,
    Workload,
)
from hbatune.probe.run import evaluate_together, make_kept_together
from hbatune.probe.verdict import evaluate_pairs
from hbatune.report.page import ReportData
from hbatune.shipped import find_shipped
from tests.unit.machines import adapter, attributes, endpoint, link, machine, vector
from tests.unit.noisy_disks import Noise, NoisyDisk
from tests.unit.noisy_disks import figures as noisy

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
    return Library(find_shipped("rules"), site=find_shipped("rules") / "nowhere")


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


def record(server: Machine, result: ProbeResult, command: str, at: float) -> Record:
    """Return the record of a result on this machine, ``at`` seconds after the first."""
    return Record(
        time=NOW + at,
        command=command,
        kernel=server.kernel,
        boot_id=server.boot_id,
        profile="oltp",
        target=result.target,
        id=result.id,
        result=result,
    )


def result(disk: Endpoint, workload: Workload, measured: Figures, by: Adapter) -> ProbeResult:
    """Return a result of a disk, with its adapter's current versions."""
    served = Served(by.target, by.driver, by.driver_version, by.firmware)
    return ProbeResult(disk.target, disk.id, workload, measured, "3.33", (served,), blank=False)


def depth_sweep(server: Machine, at: float = 0.0, depths: tuple[int, ...] = DEPTHS) -> list[Record]:
    """Return a sweep whose knee is at ``KNEE``: beyond it only the latency grows."""
    disk, by = server.endpoints[0], server.adapters[0]
    records = []
    for number, deep in enumerate(depths):
        rate = min(deep, KNEE) / 120e-6 * (1 if deep <= KNEE else 1.02)
        wait = deep / rate * 1e6 / 1.02
        workload = replace(SWEEP, depth=deep)
        tail = 0.4 if deep <= KNEE else 0.9
        measured = figures(rate, wait, tail, cpu=4 + 6 / deep)
        records.append(
            record(server, result(disk, workload, measured, by), "probe", at + 3 * number)
        )
    return records


def kept(server: Machine) -> list[Record]:
    """Return the sweep as `probe` records it: with one time, its CPU cost and its knee."""
    settings = tuple(InForce("sda", name, values[0]) for name, values in VALUES.items())
    records = []
    for swept in depth_sweep(server):
        assert swept.result is not None
        cost = replace(swept.result.figures, interrupt_us_per_io=2.0, busy=0.5)
        if swept.result.workload.depth == DEPTHS[-1]:
            cost = replace(cost, busy=0.97)
        with_cost = replace(swept.result, figures=cost, settings=settings, temperature=38.0)
        records.append(replace(swept, time=NOW, command="probe depth-sweep", result=with_cost))
    knee = Knee(KNEE, 16, 64, 64, 0.02, 0.9)
    return [*records, replace(records[-1], result=None, knee=knee)]


def lun_depths(server: Machine, at: float = 500.0) -> list[Record]:
    """Return a sweep for each of five LUN depths. I/Os beyond the LUN depth wait."""
    disk, by = server.endpoints[0], server.adapters[0]
    runs, knees = list[Record](), list[Record]()
    for lun_depth in (8, 16, 32, 64, 128):
        for deep in DEPTHS[:-1]:
            rate = min(deep, lun_depth) / 20e-3
            workload = replace(SWEEP, depth=deep, block_size=8192, queue_depth=lun_depth)
            measured = figures(rate, deep / rate * 1e6 / 1.02, 0.1, 8192)
            probed = result(disk, workload, measured, by)
            runs.append(record(server, probed, "probe queue-depth", at))
        knee = (
            Knee(lun_depth, lun_depth, lun_depth, 2 * lun_depth, 0.0, 1.0)
            if lun_depth < 128
            else None
        )
        knees.append(replace(runs[-1], result=None, knee=knee, queue_depth=lun_depth))
    return [*runs, *knees]


def block_sweep(server: Machine, at: float = 100.0) -> list[Record]:
    """Return a sweep that ends at the link's 3 GB/s; its first run breaks Little's law."""
    disk, by = server.endpoints[0], server.adapters[0]
    records = []
    for number, size in enumerate(BLOCKS):
        rate = min(200_000.0, 3e9 / size)
        wait = 24 / rate * 1e6 / 1.02 * (0.7 if not number else 1)
        workload = replace(SWEEP, block_size=size)
        measured = figures(rate, wait, 0.6, size)
        records.append(
            record(server, result(disk, workload, measured, by), "probe", at + 3 * number)
        )
    return records


def corners(server: Machine, at: float = -600.0) -> list[Record]:
    """Return the four corners of the NVMe drive, whose reads come near to its link of 7.88 GB/s."""
    drive, by = server.endpoints[12], server.adapters[1]
    tops = {
        (Pattern.RANDOM_READ, 4096): 420_000,
        (Pattern.READ, 1 << 20): 6_800,
        (Pattern.RANDOM_WRITE, 4096): 190_000,
        (Pattern.WRITE, 1 << 20): 3_100,
    }
    records = []
    for (order, size), top in tops.items():
        for deep in (1, 8, 24, 48, 96, 192) if size == 4096 else (1, 24, 48, 96):
            rate = top * deep / (deep + (12 if size == 4096 else 2))
            workload = replace(SWEEP, pattern=order, block_size=size, depth=deep)
            measured = figures(rate, deep / rate * 1e6 / 1.02, 0.8, size)
            probed = result(drive, workload, measured, by)
            records.append(record(server, probed, "probe four-corners", at))
    return records


def rising_load(
    server: Machine, disks: tuple[int, ...] = (0, 1, 12), at: float = 700.0
) -> list[Record]:
    """Return OLTP1 under rising load on several disks of different speeds."""
    records = []
    for number, disk in enumerate(disks):
        by = server.adapters[0 if disk < 12 else 1]
        top = (140_000, 60_000, 380_000, 90_000, 30_000, 12_000)[number % 6]
        for deep in (1, 2, 4, 8, 16, 32, 64, 128):
            rate = top * deep / (deep + 10)
            workload = replace(SWEEP, pattern=Pattern.RANDOM_MIX, reads=60, depth=deep)
            measured = figures(rate, deep / rate * 1e6 / 1.02, 0.6 + deep / 200)
            probed = result(server.endpoints[disk], workload, measured, by)
            records.append(record(server, probed, "probe oltp1-load", at + number))
    return records


def beside_writer(server: Machine, at: float = 800.0) -> list[Record]:
    """Return a reader alone and beside a bulk writer, with each of three schedulers."""
    disk, by, records = server.endpoints[0], server.adapters[0], []
    workload = replace(SWEEP, depth=4)
    for number, (scheduler, slower) in enumerate({"none": 30, "mq-deadline": 9, "bfq": 2}.items()):
        in_force = (InForce(disk.target, "scheduler", scheduler),)
        alone = result(disk, workload, figures(30_000, 4 / 30_000 * 1e6 / 1.02, 0.8), by)
        rate = 30_000 / slower
        measured = figures(rate, 4 / rate * 1e6 / 1.02, 2.0)
        loaded = replace(measured, written_beside=2e8 * (1 + slower / 10))
        busy = result(disk, replace(workload, writer=BulkWriter()), loaded, by)
        for probed in (alone, busy):
            with_scheduler = replace(probed, settings=in_force)
            records.append(record(server, with_scheduler, "probe interference", at + number))
    return records


def searched(server: Machine, at: float = 900.0) -> Record:
    """Return a search that found a depth within 2 ms and a better scheduler."""
    disk, by = server.endpoints[0], server.adapters[0]
    probes = tuple(
        Measurement(deep, min(deep, 40) * 8_000.0, 90.0 + deep**1.5)
        for deep in (6, 24, 96, 254, 150, 120, 126)
    )
    depth = SearchedDepth(254, probes, "best", 126, 0.91)
    tried = {"none": 14_000.0, "mq-deadline": 5_200.0, "bfq": 1_900.0}
    candidates = tuple(
        CandidateTried(
            {} if name == "none" else {"scheduler": name},
            tuple(p99 * factor for factor in (0.9, 1.0, 1.15, 1.05)[: 2 if name == "none" else 4]),
            4e8,
        )
        for name, p99 in tried.items()
    )
    beside = SearchedSettings(candidates, {"scheduler": "none"}, 126, True, "best", 2)
    rates = (CandidateTried({}, (310e3, 305e3)), CandidateTried({"rq_affinity": 2}, (311e3, 312e3)))
    alone = SearchedSettings(rates, {"rq_affinity": 1}, 126, False, "as good as", 0)
    last = result(disk, SWEEP, figures(320_000, 72, 5), by)
    return replace(
        record(server, last, "autotune", at),
        search=Searched(2000.0, depth, (alone, beside)),
        settings=(ValueChange(disk.target, "queue_depth", 254, 126),),
    )


def all_disks(
    server: Machine, at: float = 1000.0, pattern: Pattern = Pattern.RANDOM_READ
) -> list[Record]:
    """Return runs on two, four and eight disks at once, whose adapter carries 6.5 GB/s."""
    by, records = server.adapters[0], []
    for number, count in enumerate((2, 4, 8)):
        for size in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
            workload = replace(SWEEP, pattern=pattern, block_size=size)
            lone_rate = min(180_000, 1.6e9 / size)
            disks = server.endpoints[:count]
            alone = [result(disk, workload, figures(lone_rate, 120, 1, size), by) for disk in disks]
            most = min(count * lone_rate, 640_000, 6.5e9 / size)
            at_once = figures(most, count * 24 / most * 1e6, 2, size, cpu=3.0)
            together = evaluate_together(by.target, by.link, alone, replace(at_once, busy=0.5))
            command = f"probe block-sweep{'-writes' if workload.writes else '-small'}"
            records.append(
                Record(
                    NOW + at + number,
                    command,
                    server.kernel,
                    server.boot_id,
                    "oltp",
                    by.target,
                    f"{ADAPTER_ID}{by.target}",
                    result=None,
                    together=make_kept_together(together),
                )
            )
    return records


def by_jobs(server: Machine, at: float = -300.0) -> list[Record]:
    """Return the same I/Os in flight by one to eight jobs: two jobs are all that the disk needs."""
    disk, by, records = server.endpoints[1], server.adapters[0], []
    for jobs in (1, 2, 4, 8):
        for deep in (1, 2, 4, 8, 16, 32, 64):
            most = 90_000 if jobs == 1 else 170_000
            rate = min(jobs * deep / 120e-6, most)
            workload = replace(SWEEP, jobs=jobs, depth=deep)
            measured = figures(rate, jobs * deep / rate * 1e6 / 1.02, 0.5)
            records.append(
                record(server, result(disk, workload, measured, by), "probe jobs-sweep", at)
            )
    return records


def baselines(server: Machine, at: float = 1200.0) -> list[Record]:
    """Return one I/O at a time: random and in order, read and written."""
    disk, by, records = server.endpoints[0], server.adapters[0], []
    for order, size, wait in (
        (Pattern.RANDOM_READ, 4096, 90.0),
        (Pattern.READ, 131072, 60.0),
        (Pattern.RANDOM_WRITE, 4096, 20.0),
        (Pattern.WRITE, 131072, 77.0),
    ):
        workload = replace(SWEEP, pattern=order, block_size=size, depth=1)
        command = "probe qd1-writes" if workload.writes else "probe qd1"
        measured = figures(1e6 / wait, wait / 1.02, 1.2, size)
        records.append(record(server, result(disk, workload, measured, by), command, at))
    return records


def mix_sweep(server: Machine, at: float = 200.0) -> list[Record]:
    """Return a mix sweep whose rate falls with the share of writes."""
    disk, by = server.endpoints[0], server.adapters[0]
    records = []
    for number, reads in enumerate((100, 70, 50, 0)):
        rate = 90_000 + 1_100 * reads
        workload = replace(SWEEP, pattern=Pattern.RANDOM_MIX, reads=reads)
        measured = figures(rate, 24 / rate * 1e6 / 1.02, 1.5 - reads / 100)
        records.append(
            record(server, result(disk, workload, measured, by), "probe", at + 3 * number)
        )
    return records


def proof(server: Machine, slower: float, number: int, at: float) -> Record:
    """Return the proof of a change after which an I/O takes ``slower`` times as long.

    A change without an effect is measured with much noise, so its verdict is "cannot tell".
    """
    disk, by, tolerance = server.endpoints[number], server.adapters[0], oltp().tolerance
    noise = Noise(0.1 if slower == 1 else 0.02)
    pairs = NoisyDisk(noise, number).pairs(10, slower)
    verdict = evaluate_pairs(pairs, tolerance, 6.0)
    last = result(disk, SWEEP, noisy(60_000 / slower, 400 * slower, 900 * slower), by)
    reverted = bool(verdict.beyond)
    settings = ("nr_requests",) if slower > 1.1 else ("scheduler", "nr_requests")
    return replace(
        record(server, last, "apply --verify", at),
        proof=Proof(disk.target, disk.id, None, settings, verdict, last),
        settings=tuple(ValueChange(disk.target, name, *VALUES[name]) for name in settings),
        reverted=settings if reverted else (),
    )


VALUES: dict[str, tuple[str | int, str | int]] = {
    "scheduler": ("none", "mq-deadline"),
    "nr_requests": (256, 2048),
}


def lone(server: Machine, at: float = 400.0) -> list[Record]:
    """Return a run by the daemon and one by hand, on each of two disks."""
    random, records = Random(7), []
    for number in (2, 12):
        disk = server.endpoints[number]
        by = server.adapters[0 if number == 2 else 1]
        for command in ("daemon", "probe reference-short"):
            rate = 150_000 * random.uniform(0.9, 1.1)
            measured = figures(rate, 24 / rate * 1e6 / 1.02, random.uniform(0.5, 4))
            records.append(record(server, result(disk, SWEEP, measured, by), command, at))
            at += 5
    return records


def journal(server: Machine) -> Journal:
    """Return a journal in which the first disk got more requests."""
    disk = server.endpoints[0]
    entry = Entry(disk.id, disk.target, disk.adapter, "nr_requests", 256, 2048)
    return Journal(server.boot_id, (entry,))


def seen() -> ReportData:
    """Return a server on which everything was measured."""
    server, profile = host(), oltp()
    records = (
        *kept(server),
        *lun_depths(server),
        *block_sweep(server),
        *mix_sweep(server),
        *corners(server),
        *rising_load(server),
        *beside_writer(server),
        searched(server),
        *all_disks(server),
        *by_jobs(server),
        *baselines(server),
        proof(server, 0.8, 3, 300),
        proof(server, 1.0, 4, 320),
        proof(server, 1.25, 5, 340),
        *lone(server),
    )
    return ReportData(
        machine=server,
        profile=profile,
        plan=make.make_plan(server, profile),
        journal=journal(server),
        records=records,
        yardsticks=library().yardsticks(),
    )


def unmeasured() -> ReportData:
    """Return a server on which nothing was measured or changed, with no profile."""
    server = machine(adapters=(), vectors=(), memory=1 << 30)
    server = replace(server, endpoints=())
    return ReportData(
        machine=server,
        journal=Journal(server.boot_id),
        records=(),
        yardsticks=library().yardsticks(),
    )


def crowded() -> ReportData:
    """Return a server that crowds the charts: long names, many vectors, equal figures."""
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
    server = replace(
        small,
        adapters=(named, *small.adapters[1:]),
        vectors=tuple(vectors),
        cpus=1024,
        hostname=long,
    )
    return replace(
        seen(),
        machine=server,
        records=(*_equal(server), *_few(server), _unsure(server), *lone(server, 8000)),
        plan=make.make_plan(server, oltp()),
    )


def many_adapters() -> ReportData:
    """Return a server with 40 adapters of one disk each, all of them measured, with long names."""
    small = host()
    hba, disk = small.adapters[0], small.endpoints[0]
    names = [f"0000:{number:02x}:00.0" for number in range(1, 41)]
    adapters = tuple(replace(hba, target=name, product="adapter " * 12) for name in names)
    disks = tuple(
        replace(disk, target=f"nvme{number}n1", id=f"disk-{number}", adapter=name)
        for number, name in enumerate(names)
    )
    vectors = tuple(
        vector(irq=100 + number, adapter=name, names=("a-handler-" * 9,), effective="1")
        for number, name in enumerate(names)
    )
    server = replace(small, adapters=adapters, endpoints=disks, vectors=vectors, local_cpus={})
    records: list[Record] = []
    for number in range(len(disks)):
        subset = replace(server, adapters=adapters[number:], endpoints=disks[number:])
        subset = replace(subset, endpoints=subset.endpoints * 13, adapters=subset.adapters * 2)
        for measured in (kept, corners, baselines, beside_writer, block_sweep, all_disks):
            records += measured(subset)
        records += [searched(subset), *rising_load(subset, (0,))]
    return replace(
        seen(), machine=server, records=tuple(records), plan=make.make_plan(server, oltp())
    )


def _equal(server: Machine) -> list[Record]:
    """Return a depth sweep of twenty runs with nearly equal figures."""
    disk, by, records = server.endpoints[0], server.adapters[0], []
    for number in range(20):
        rate = 50 + number / 10
        workload = replace(SWEEP, depth=10 + number, jobs=13)
        measured = figures(rate, 20_000 + 3 * number, 0.01)
        records.append(record(server, result(disk, workload, measured, by), "probe", 3 * number))
    return records


def _few(server: Machine) -> list[Record]:
    """Return a depth sweep over a range as wide as can be, from a few µs to a minute."""
    disk, by, records = server.endpoints[1], server.adapters[0], []
    for number, deep in enumerate((1, 4000, 4001, 4096)):
        measured = figures(3_900_000 - number, 6 if deep == 1 else 2e7, 2)
        workload = replace(SWEEP, depth=deep)
        records.append(record(server, result(disk, workload, measured, by), "probe", 900 + number))
    return records


def _unsure(server: Machine) -> Record:
    """Return a proof with extremely wide intervals."""
    disk = server.endpoints[3]
    proof_record = proof(server, 1.0, 3, 2000)
    assert proof_record.proof is not None
    changes = tuple(
        replace(change, low=2e-9, ratio=1.3, high=4.8e8)
        for change in proof_record.proof.verdict.changes
    )
    verdict = replace(proof_record.proof.verdict, changes=changes)
    return replace(
        proof_record, proof=replace(proof_record.proof, verdict=verdict, target=disk.target)
    )
