"""Disposable worker processes with deadlines, for reads and writes that may never return.

A write to ``queue/*`` waits uninterruptibly for the I/O in flight, and reads of the same disk then
wait behind it (block/blk-sysfs.c, block/blk-mq.c: blk_mq_freeze_queue_wait). A process in that wait
ignores SIGKILL, so the parent must be able to abandon it. A worker holds only its own pipes, no
lock, and no thread, and its end is never awaited.
"""

from hbatune.workers.pool import Died, Finished, Pool, Replied, Stuck, Unstarted
from hbatune.workers.worker import Process, WorkerPool, find_process, find_this_process

__all__ = [
    "Died",
    "Finished",
    "Pool",
    "Process",
    "Replied",
    "Stuck",
    "Unstarted",
    "WorkerPool",
    "find_process",
    "find_this_process",
]
