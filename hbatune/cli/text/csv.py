"""Tables as comma-separated values, which a spreadsheet opens and does not obey.

A cell that begins as a formula does gets an apostrophe before it, as OWASP advises against CSV
injection: names in it come from devices and other hosts.
"""

import csv
import io
from collections.abc import Iterable, Sequence

from hbatune.cli.text.output import printable

_FULL_WIDTH = ("\uff1d", "\uff0b", "\uff0d", "\uff20")
_OBEYED = ("=", "+", "-", "@", "\t", "\r", "'", *_FULL_WIDTH)
"""What the cells begin with that spreadsheets calculate, and the apostrophe itself."""

Field = str | float | None


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Field]]) -> str:
    """Return a table with its head, in RFC 4180's form but for the ends of lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_field(each) for each in row] for row in rows)
    return text.getvalue()


def _field(field: Field) -> Field:
    if not isinstance(field, str):
        return field
    return f"'{printable(field)}" if field.lstrip().startswith(_OBEYED) else printable(field)
