"""Write a chain in this process, as a worker would."""

from collections.abc import Iterator

from hbatune.act.chain import Chain, ChainWriter, WriteResult, decode_reply
from hbatune.act.rollback_record import UNGUARDED


def write_chain(chain: Chain) -> Iterator[WriteResult]:
    """Execute the steps of a chain in their order, and yield the result of each."""
    replies = (decode_reply(reply)[0] for reply in ChainWriter(5.0, UNGUARDED)(chain))
    return (result for result in replies if result is not None)
