"""The JSON document of ``apply``: the document of ``diff`` with the measurements."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from hbatune.facts.model import Machine
from hbatune.operations.verify import VerificationResult
from hbatune.plan.rows import Plan, Row
from hbatune.probe import comparison, history, result
from hbatune.text.documents import DiffDocument, make_diff_document


class PlanDocument(DiffDocument, frozen=True, kw_only=True):
    """The JSON document of ``diff`` and ``apply``.

    ``left_alone`` are unclassified disks, which no rule may change. ``verdicts`` are the
    comparisons of an apply, and ``bursts`` describe deeper queues, which decide nothing. ``probes``
    has the representatives that were not measured, each with the reason and without a second
    outcome. ``standings`` compare the last result of each target with the source documents.
    """

    # Omitted, not null, if the command does not measure.
    probes: tuple[result.ProbePair, ...] | UnsetType = UNSET
    verdicts: tuple[history.Proof, ...] | UnsetType = UNSET
    bursts: tuple[history.Proof, ...] | UnsetType = UNSET
    standings: dict[str, comparison.Standing] | UnsetType = UNSET


def make_plan_document(
    plan: Plan,
    rows: Sequence[Row],
    machine: Machine,
    verified: VerificationResult,
    standings: dict[str, comparison.Standing],
) -> PlanDocument:
    """Return the document of ``apply``: rows, counts and measurements."""
    # Vendors' advice is for ``diff``.
    fields = asdict(make_diff_document(plan, rows, machine, ()))
    return PlanDocument(
        **fields | {"summary": replace(fields["summary"], worse=len(verified.worse))},
        probes=tuple(result.ProbePair(endpoint, None) for endpoint in verified.unmeasured),
        verdicts=tuple(verified.proofs),
        bursts=tuple(verified.bursts),
        standings=standings,
    )
