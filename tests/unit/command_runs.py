"""A command run on a described machine, with its output."""

from collections.abc import Callable

from hbatune.facts.model import Machine
from tests.unit.machines import attributes

See = Callable[[Machine], None]


def lun(number: int, requests: str = "256", **overrides: object) -> dict[str, object]:
    return {
        "target": f"sd{chr(97 + number)}",
        "attributes": attributes(
            queue__scheduler="none [mq-deadline]",
            queue__nr_requests=requests,
            device__queue_depth="254",
        ),
        **overrides,
    }
