"""Write all generated and committed files: ``python -m tools.docs`` (`make docs`).

They are docs/benchmarks.md, docs/exit-codes.md, docs/families.md, docs/profiles.md,
docs/settings.md, docs/vendors.md, the table in docs/verdicts.md, and docs/diff.svg, the picture of
the README. A test reports committed files that differ from the code.
"""

import importlib.util
import io
import os
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from unittest.mock import patch

from hbatune.cli import main as run_command
from tools import (
    benchmarks_page,
    exit_codes_page,
    families_page,
    profiles_page,
    vendors_page,
    verdicts_page,
)

_CHECKOUT = Path(__file__).resolve().parents[1]
DOCS = _CHECKOUT / "docs"
_SCREEN = ("diff", "--profile", "oltp", "--no-pager", "--color", "never", "0000:01:00.0")
"""The command of the README's picture. A recorded host has this adapter."""
_RECORDED = _CHECKOUT / "tests/lab/boots/hba-9400-6.12.snap"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def picture() -> str:
    """Return the output of `hbatune diff` at 80 columns as a picture."""
    with redirect_stdout(_Terminal()) as screen, patch.dict(os.environ, COLUMNS="80"):
        run_command((*_SCREEN, "--snapshot", str(_RECORDED)))
    lines = ["# hbatune diff --profile oltp", *screen.getvalue().strip().splitlines()]
    spans = [
        f'<text x="16" y="{30 + 18 * number}" xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    style = "text { font: 14px ui-monospace, monospace; fill: #e8ebef; }"
    size = f"0 0 712 {30 + 18 * len(lines)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">',
            f"<title>hbatune diff</title><style>{style}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#11151a"/>',
            *(*spans, "</svg>", ""),
        ]
    )


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
        DOCS / "diff.svg": picture(),
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
