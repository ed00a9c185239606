import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.probe.model import Pattern, Workload, Zone
from hbatune.render import UnsafeNameError, fio_filename, render

SIZE = 1 << 30


def job(node: str, workload: Workload | None = None) -> list[str]:
    """Return the lines of a rendered job file that are not comments."""
    text = render(
        "templates",
        "probe.fio.j2",
        node=node,
        workload=workload or Workload(),
        size=SIZE,
        cpus=None,
    )
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_job_says_what_the_workload_asks_for() -> None:
    workload = Workload(block_size=8192, depth=7, jobs=3, ramp=0.5, runtime=2.25)
    lines = job("/dev/sda", workload)
    assert {"bs=8192", "iodepth=7", "numjobs=3", "ramp_time=500ms", "runtime=2250ms"} <= set(lines)
    assert "filename=/dev/sda" in lines


def test_the_job_reads_past_every_cache_at_addresses_that_differ_from_run_to_run() -> None:
    assert {"rw=randread", "direct=1", "randrepeat=0", "invalidate=0", "ioengine=libaio"} <= set(
        job("/dev/sda")
    )


def test_a_colon_does_not_part_two_files() -> None:
    assert r"filename=/dev/disk/by-path/pci-0\:1\:2" in job("/dev/disk/by-path/pci-0:1:2")


@pytest.mark.parametrize(
    "name",
    [
        "/dev/a\nrw=randwrite",
        "/dev/a\rrw=randwrite",
        "/dev/a#b",
        "/dev/a;b",
        "/dev/${HOME}",
        "/dev/$jobname",
        "/dev/a\\:b",
        "/dev/a b",
        "/dev/a\n",
        "sda",
        "-",
        "",
        "/dev/\u0661",
        "/" + "a" * 5000,
    ],
)
def test_a_name_that_fio_would_misread_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        job(name)


@given(st.one_of(st.text(), st.text(st.sampled_from("/dev:\\\n#;$ \"'=[]{}%a"))).map("/".__add__))
def test_no_name_breaks_out_of_its_line(name: str) -> None:
    expected = job("/dev/sda")
    at = expected.index("filename=/dev/sda")
    try:
        lines = job(name)
    except UnsafeNameError:
        return
    assert lines[at].removeprefix("filename=").replace("\\:", ":") == name
    assert [*lines[:at], expected[at], *lines[at + 1 :]] == expected
    assert not set(fio_filename(name)) & set("#;$\n\r \"'")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("templates", "probe.fio.j2", workload=Workload(), size=SIZE, cpus=None)
    with pytest.raises(jinja2.UndefinedError):
        render("templates", "probe.fio.j2", node="/dev/sda", size=SIZE, cpus=None)


def test_readers_and_writers_of_a_mix_have_zones_of_their_own() -> None:
    zones = (Zone(50, 4096), Zone(50)), (Zone(33, 4096), Zone(34, 8192), Zone(33))
    workload = Workload(
        Pattern.RANDOM_MIX, depth=24, reads=70, read_zones=zones[0], write_zones=zones[1]
    )
    lines = job("/dev/sda", workload)
    reads, writes = lines.index("[reads]"), lines.index("[writes]")
    rest = f"33/{SIZE - 4096 - 8192}"
    assert {"rw=randread", "flow=70", "iodepth=17"} <= set(lines[reads:writes])
    assert {"rw=randwrite", "flow=30", "iodepth=7"} <= set(lines[writes:])
    assert f"random_distribution=zoned_abs:33/4096:34/8192:{rest}" in lines[writes:]
    assert "rw=randrw" not in lines
