"""Write a chain in this process, as a worker would."""

from collections.abc import Iterator

from hbatune.act.chain import Chain, ChainWriter, WriteResult, decode_reply


def write_chain(chain: Chain) -> Iterator[WriteResult]:
    """Execute the steps of a chain in their order, and yield the result of each."""
    return (decode_reply(reply).result for reply in ChainWriter()(chain))
