"""``python -m tests.bench``: write docs/benchmarks.md anew from the results files."""

from tests.bench.page import PAGE, page, results

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(results()))
