"""What is generated from the code and committed is up to date, and the pages name all of it."""

import re
from pathlib import Path

import jsonschema
import pytest

from tests.documented import validate
from tools import docs, schemas

CHECKOUT = Path(__file__).resolve().parents[2]


def test_what_is_generated_is_up_to_date() -> None:
    stale = [str(path.relative_to(CHECKOUT)) for path in docs.stale()]
    assert not stale, "`make docs` writes them"


def test_every_command_with_json_has_a_schema() -> None:
    folder = CHECKOUT / "hbatune/cli/commands"
    printing = [each for each in folder.glob("*.py") if "add_json(parser)" in each.read_text()]
    shared = {"apply": "plan", "diff": "plan", "list": "facts", "uninstall": "removal"}
    ids = {id.removeprefix("hbatune.").partition("/")[0] for id in schemas.documents()}
    for command in printing:
        assert shared.get(command.stem, command.stem) in ids, command.name


@pytest.mark.parametrize("id", schemas.schemas())
def test_every_schema_is_one_and_is_in_the_documentation(id: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schemas.schemas()[id])
    assert f"`{id}`" in (CHECKOUT / "docs/json.md").read_text()


def test_no_schema_shows_where_a_type_is_defined() -> None:
    shown = [name for name, text in schemas.files().items() if re.search(r"hbatune\.\w+\.", text)]
    assert not shown


def test_a_document_that_breaks_its_schema_is_refused() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate({"schema": "hbatune.facts/1", "hostname": "db1"})


def test_pages_link_to_files_that_are_there() -> None:
    pages = [*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
