"""The identity of a process."""

from hbatune.workers import Process, find_this_process


def test_reused_pid_is_not_alive() -> None:
    me = find_this_process()
    assert me.alive()
    assert not Process(me.pid, me.start_time + 1).alive()
    assert not Process(2**22 + 1, 1).alive()
