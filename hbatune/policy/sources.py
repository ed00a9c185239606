"""What rules stand on: the documents' recommendations and the kernel's facts, by id."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hbatune.policy.errors import PolicyError, nearest
from hbatune.policy.files import read_toml
from hbatune.policy.model import Source
from hbatune.policy.schema import SourcesFile, decode

FILE = "sources.toml"


@cache
def load_sources(shipped: Path) -> Mapping[str, Source]:
    """Return every shipped source by its id, such as ``D0-1`` or ``K-nr-requests``.

    Raises ``PolicyError`` where one cites a document that the file does not name.
    """
    file = read_toml(shipped / FILE)
    table = decode(file, SourcesFile)
    sources = {}
    for name, entry in table.source.items():
        document = table.document.get(entry.document)
        if document is None:
            raise PolicyError(
                f"cites document {entry.document}, which has no table",
                file=file.path,
                place=f"source {name}",
                hint=nearest(entry.document, table.document),
            )
        sources[name] = Source(name, entry.document, document.title, entry.section, entry.says)
    return sources
