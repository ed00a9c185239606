"""Write all generated and committed files: ``python -m tools.docs`` (`make docs`).

They are docs/benchmarks.md, docs/exit-codes.md, docs/families.md, docs/profiles.md,
docs/settings.md, docs/vendors.md and the table in docs/verdicts.md. A test reports committed files
that differ from the code.
"""

import importlib.util
from pathlib import Path

from tools import (
    benchmarks_page,
    exit_codes_page,
    families_page,
    profiles_page,
    vendors_page,
    verdicts_page,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    texts = {
        benchmarks_page.PAGE: benchmarks_page.page(
            benchmarks_page.results(), benchmarks_page.curves()
        ),
        exit_codes_page.PAGE: exit_codes_page.page(),
        families_page.PAGE: families_page.page(),
        profiles_page.PAGE: profiles_page.page(),
        vendors_page.PAGE: vendors_page.page(),
        verdicts_page.PAGE: verdicts_page.page(),
    }
    if curve := benchmarks_page.curves():
        texts[benchmarks_page.PICTURE] = benchmarks_page.picture(curve)
    if importlib.util.find_spec("tools.settings_page") is not None:
        page = importlib.import_module("tools.settings_page").page
        texts[DOCS / "settings.md"] = page()
    return texts


def stale() -> list[Path]:
    """Return the generated files that differ from the code."""
    return [path for path, text in generated().items() if not _has(path, text)]


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main() -> None:
    """Write the outdated files."""
    wanted = generated()
    for path in stale():
        print(path.relative_to(DOCS.parent))
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    main()
