"""A hundred runs of `why` on planted causes, each on a new disk with a new load."""

from contextlib import ExitStack

import pytest

from tests.lab.guest.kit import loaded_scsi_debug
from tests.lab.guest.planted_causes import PLANTS, ask
from tests.soak.guest.results import save_results

KERNELS = ("6.12",)
RUNS = 10
"""Of each cause, so a hundred in all."""


@pytest.mark.deadline(7200)
def test_planted_causes_are_found() -> None:
    right, wrong = dict[str, int](), list[str]()
    for plant in PLANTS:
        name = plant.__name__.removeprefix("plant_")
        right[name] = 0
        for _ in range(RUNS):
            with ExitStack() as modules:

                def load(modules: ExitStack = modules, **options: object) -> list[str]:
                    return modules.enter_context(loaded_scsi_debug(**options))

                with plant(load) as (disk, expected):
                    answer = ask(disk)
            if {field: answer[field] for field in expected} == expected:
                right[name] += 1
            else:
                wrong.append(f"{name}: {answer['cause']}, {answer['requests']} requests")
    runs = RUNS * len(PLANTS)
    save_results(
        "answers of `why` to planted causes", name="why_causes", runs=runs, right=right, wrong=wrong
    )
    assert sum(right.values()) >= 0.95 * runs, wrong
