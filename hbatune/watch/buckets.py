"""The buckets of latencies as the shipped bpftrace script counts them, at most 1/32 wide. Pure.

bpftrace's own histograms double from bucket to bucket, which is no good for a p99.
"""

BITS = 5
"""Each octave has 2**BITS buckets of equal width; below 2**(BITS + 1) ns each is 1 ns wide."""


def number(ns: int) -> int:
    """Return the bucket of a latency in nanoseconds."""
    shift = (ns >> (BITS + 1)).bit_length()
    return (shift << BITS) + (ns >> shift)


def bounds(bucket: int) -> tuple[int, int]:
    """Return the least latency of a bucket and that of the next one, in nanoseconds."""
    shift = max(0, (bucket >> BITS) - 1)
    low = (bucket - (shift << BITS)) << shift
    return low, low + (1 << shift)


def middle(bucket: int) -> int:
    """Return the latency in nanoseconds that stands for a bucket."""
    low, beyond = bounds(bucket)
    return (low + beyond) // 2
