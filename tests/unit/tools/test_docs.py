"""What is generated from the code and committed is up to date, and the pages name all of it."""

import os
import re
from pathlib import Path

import jsonschema
import pytest

from tests.documented import validate
from tests.pages import DOCS, README, pages
from tools import docs, schemas
from tools.packaging import documentation

CHECKOUT = Path(__file__).resolve().parents[3]


def test_generated_docs_are_current() -> None:
    stale = [str(path.relative_to(CHECKOUT)) for path in docs.stale()]
    assert not stale, "`make docs` writes them"


def test_json_commands_have_schemas() -> None:
    folder = CHECKOUT / "hbatune/cli/commands"
    printing = [module for module in folder.glob("*.py") if '"--json"' in module.read_text()]
    assert len(printing) > 15
    shared = {"apply": "plan", "diff": "plan", "list": "facts", "uninstall": "removal"}
    ids = {id.removeprefix("hbatune.").partition("/")[0] for id in schemas.documents()}
    for command in printing:
        assert shared.get(command.stem, command.stem) in ids, command.name


@pytest.mark.parametrize("id", schemas.schemas())
def test_schemas_are_valid_and_documented(id: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.schemas()[id])
    assert f"`{id}`" in (CHECKOUT / "docs/json.md").read_text()


def test_schemas_hide_module_paths() -> None:
    exposing = [
        name for name, text in schemas.files().items() if re.search(r"hbatune\.\w+\.", text)
    ]
    assert not exposing


def test_invalid_document_is_refused() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate({"schema": "hbatune.facts/1", "hostname": "db1"})


def test_written_pages_are_few_and_mapped() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    written = [name for name, text in texts.items() if "This page is generated" not in text]
    assert len(written) <= 16, "merge pages by their meaning"
    documentation = README.read_text(encoding="utf-8").partition("## Documentation\n")[2]
    assert set(re.findall(r"\]\(docs/([^)#]+)", documentation)) == set(texts)


def test_packaged_links_lead_somewhere() -> None:
    places = documentation()
    texts = {p: path.read_text(encoding="utf-8") for path, p in places.items() if p.suffix == ".md"}
    for place, text in texts.items():
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)", text):
            file, _, anchor = target.partition("#")
            page = Path(os.path.normpath(place.parent / file)) if file else place
            assert page in places.values(), f"{place}: {target}"
            assert not anchor or anchor in anchors(texts[page]), f"{place}: {target}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings in lower case, with hyphens for spaces."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_rows_have_the_cells_of_their_table(page: Path) -> None:
    cells = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        # A renderer splits a row at each bar that is not escaped, also within code.
        count = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and count) or count == cells, line
        cells = count


@pytest.mark.parametrize("path", docs.generated(), ids=lambda path: path.name)
def test_generated_items_are_short(path: Path) -> None:
    items = re.findall(r"(?m)^ *- (.*(?:\n +(?![- ]).*)*)", path.read_text(encoding="utf-8"))
    assert not [item for item in items if len(item) > 300]


def test_page_links_exist() -> None:
    for page in (*CHECKOUT.glob("*.md"), *DOCS.glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
