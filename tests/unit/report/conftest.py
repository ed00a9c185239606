"""The page of a server with everything that a report can show."""

import pytest

from tests.unit import report_server as reported
from tests.unit.report.parsed_page import Parsed, parse_report


@pytest.fixture(scope="package")
def full() -> Parsed:
    """Return the elements of this page."""
    return parse_report(reported.seen())
