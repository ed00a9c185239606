from collections.abc import Sequence

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.boot.compile import CompiledRules, format_rules
from hbatune.boot.lines import RuleSection, match_key
from hbatune.probe.replay import ReplayJob
from hbatune.probe.result import BulkWriter, Pattern, TracePart, Workload, Zone
from hbatune.render import UnsafeNameError, fio_filename, render_template, require_safe

SIZE = 1 << 30


def job(
    node: str, workload: Workload | None = None, replays: Sequence[ReplayJob] = ()
) -> list[str]:
    """Return the lines of a rendered job file that are not comments."""
    text = render_template(
        "templates",
        "probe.fio.j2",
        nodes=(node,),
        workload=workload or Workload(),
        size=SIZE,
        cpus=None,
        jobs=replays,
    )
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_job_follows_workload() -> None:
    workload = Workload(block_size=8192, depth=7, jobs=3, ramp=0.5, runtime=2.25)
    lines = job("/dev/sda", workload)
    assert {"bs=8192", "iodepth=7", "numjobs=3", "ramp_time=500ms", "runtime=2250ms"} <= set(lines)
    assert "filename=/dev/sda" in lines


def test_job_bypasses_all_caches() -> None:
    assert {"rw=randread", "direct=1", "randrepeat=0", "invalidate=0", "ioengine=libaio"} <= set(
        job("/dev/sda")
    )


def test_colon_is_escaped() -> None:
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
def test_unsafe_name_is_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        job(name)


@given(st.one_of(st.text(), st.text(st.sampled_from("/dev:\\\n#;$ \"'=[]{}%a"))).map("/".__add__))
def test_name_stays_on_one_line(name: str) -> None:
    expected = job("/dev/sda")
    at = expected.index("filename=/dev/sda")
    try:
        lines = job(name)
    except UnsafeNameError:
        return
    assert lines[at].removeprefix("filename=").replace("\\:", ":") == name
    assert [*lines[:at], expected[at], *lines[at + 1 :]] == expected
    assert not set(fio_filename(name)) & set("#;$\n\r \"'")


def test_replay_has_job_for_each_log() -> None:
    part = TracePart("/disk.trace", rate=9.0, unit=512, unwritten=0.0, lost=0.0)
    replays = [ReplayJob(pause_us=70), ReplayJob(depth=4, blocks=9, pause_us=80), ReplayJob()]
    for pattern, direction in ((Pattern.RANDOM_READ, "rw=read"), (Pattern.RANDOM_MIX, "rw=rw")):
        lines = job("/dev/a:b", Workload(pattern, trace=part), replays)
        assert {"ioengine=psync", "direct=1", "exitall=1", "exit_what=all"} <= set(lines)
        assert not any(line.startswith(("filename", "time_based")) for line in lines)
        jobs = lines[lines.index("replay_redirect=/dev/a:b") + 1 :]
        expected = ["[replay-0]", direction, "read_iolog=log-0", "thinktime=70"]
        expected += ["[replay-1]", direction, "read_iolog=log-1", "ioengine=libaio", "iodepth=4"]
        expected += ["thinktime=1", "thinktime_blocks=9", "thinktime_blocks_type=issue"]
        expected += ["[end]", "new_group=1", "ioengine=null", direction, "read_iolog=log-2"]
        assert jobs == [*expected, "thinktime=0"]


def test_missing_template_value_raises() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render_template("templates", "probe.fio.j2", workload=Workload(), size=SIZE, cpus=None)
    with pytest.raises(jinja2.UndefinedError):
        render_template("templates", "probe.fio.j2", nodes=("/dev/sda",), size=SIZE, cpus=None)


def test_zoned_mix_is_one_job() -> None:
    zones = (Zone(33, 4096), Zone(34, 8192), Zone(33))
    lines = job("/dev/sda", Workload(Pattern.RANDOM_MIX, depth=24, reads=70, zones=zones))
    assert {"rw=randrw", "rwmixread=70", "iodepth=24"} <= set(lines)
    remaining = f"33/{SIZE - 4096 - 8192}"
    assert f"random_distribution=zoned_abs:33/4096:34/8192:{remaining}" in lines
    assert not [line for line in lines if line.startswith("flow")]


def test_seed_fixes_addresses() -> None:
    assert "randseed=17" in job("/dev/sda", Workload(seed=17))
    assert "randrepeat=0" not in job("/dev/sda", Workload(seed=17))
    assert "randrepeat=0" in job("/dev/sda", Workload())


def test_open_loop_splits_rate() -> None:
    mix = Workload(Pattern.RANDOM_MIX, depth=256, jobs=2, reads=70, rate=1000)
    assert {"rate_iops=350,150", "iodepth=256"} <= set(job("/dev/sda", mix))
    assert not [line for line in job("/dev/sda", Workload()) if line.startswith("rate")]


def test_bulk_writer_is_separate_job() -> None:
    lines = job("/dev/sda", Workload(depth=4, writer=BulkWriter(1 << 20, 32)))
    reader, writer = lines.index("[probe]"), lines.index("[beside]")
    assert reader < writer
    assert {"rw=randread", "iodepth=4"} <= set(lines[reader:writer])
    assert {"rw=write", "bs=1048576", "iodepth=32", "numjobs=1"} <= set(lines[writer:])
    assert "[beside]" not in job("/dev/sda", Workload(depth=4))


@pytest.mark.parametrize("name", ["$id", "a$id", "$env{X}/a", "%k/a", "$idx/a", "$name/a", "$"])
def test_attribute_path_allows_only_id(name: str) -> None:
    assert require_safe("udev_name", "sas_device/$id/target_port_protocols")
    with pytest.raises(UnsafeNameError):
        require_safe("udev_name", name)


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "é", "\x1b"])
def test_unsafe_rule_value_is_refused(value: str) -> None:
    with pytest.raises(UnsafeNameError):
        require_safe("udev_value", value)
    section = RuleSection("t", ((match_key("KERNEL", value),),))
    with pytest.raises(UnsafeNameError):
        format_rules(CompiledRules("p", {"nomerges": ("2",)}, wishes=(section,)))


@pytest.mark.parametrize("path", ["relative", "/a b", "/a%i", "/a$b", "/a\nExecStartPre=/x", '/a"'])
def test_unit_path_refuses_expansion(path: str) -> None:
    with pytest.raises(UnsafeNameError):
        require_safe("unit_path", path)
