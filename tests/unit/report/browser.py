"""Headless Chromium, asked what a page looks like once it is laid out."""

import json
import subprocess
import zlib
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.page_session import find_browser

SECONDS = 120
DESK = 1280
POLICY = '<meta http-equiv="Content-Security-Policy"'

# Looks at every picture and at the page as a whole, and leaves what it found in the document. A
# text may touch another by a pixel: boxes are a little higher than letters.
_LOOK = """
<script>
const found = {overlaps: [], outside: [], wide: [], faint: [], over: [], cut: []};
const rects = (list) => [...list].map((e) => [e, e.getBoundingClientRect()]);
const hit = (a, b, slack) => a.left < b.right - slack && b.left < a.right - slack
  && a.top < b.bottom - slack && b.top < a.bottom - slack;
const levels = (css) => css.match(/[\\d.]+/g).map(Number);
const light = (css) => levels(css).slice(0, 3).map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const page = light(getComputedStyle(document.body).backgroundColor);
let smallest = 99;
document.querySelectorAll('details').forEach((e) => { e.open = true; });
document.querySelectorAll('svg').forEach((svg, number) => {
  const frame = svg.getBoundingClientRect(), texts = rects(svg.querySelectorAll('text'));
  const scale = frame.width / svg.viewBox.baseVal.width;
  smallest = Math.min(smallest, 13 * scale);
  texts.forEach(([a, box], n) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      found.outside.push([number, a.textContent]);
    texts.slice(n + 1).forEach(([b, other]) => {
      if (hit(box, other, 1.5 * scale)) found.overlaps.push([number, a.textContent, b.textContent]);
    });
  });
});
document.querySelectorAll('p, h1, h2, h3, h4, a, td, th, dt, dd, caption, svg text')
  .forEach((e) => {
    const style = getComputedStyle(e), raised = e.closest('pre, .tiles li');
    const ground = raised ? light(getComputedStyle(raised).backgroundColor) : page;
    const ratio = contrast(light(e.closest('svg') ? style.fill : style.color), ground);
    if (ratio < 4.5) found.faint.push([e.tagName, ratio]);
  });
document.querySelectorAll('svg .mark:not(.doubted):not(.chosen), svg polyline').forEach((e) => {
  const ratio = contrast(light(getComputedStyle(e).stroke), page);
  if (ratio < 3) found.faint.push([e.tagName, ratio]);
});
const kinds = 'figure, h2, h3, .tables, p, .tiles, dl, nav, .tree';
const parts = rects(document.querySelectorAll(kinds));
parts.forEach(([a, box], n) => parts.slice(n + 1).forEach(([b, other]) => {
  if (!a.contains(b) && hit(box, other, 1))
    found.over.push([a.tagName + a.className, b.tagName + b.className, b.textContent.slice(0, 40)]);
}));
document.querySelectorAll('.scroll table').forEach((e) => {
  const shown = getComputedStyle(e.parentElement).overflowX;
  if (shown === 'visible' && e.getBoundingClientRect().right > innerWidth + 1)
    found.wide.push(e.textContent.slice(0, 60));
});
document.querySelectorAll('.scroll').forEach((e) => {
  if (e.scrollWidth > e.clientWidth + 1) found.cut.push(e.getAttribute('aria-label'));
});
const cards = [...document.querySelectorAll('.cards tbody tr')]
  .filter((e) => getComputedStyle(e).display === 'flex').length;
if (document.documentElement.scrollWidth > innerWidth) found.wide.push('the page');
parent.document.body.textContent = JSON.stringify({...found, smallest, cards, width: innerWidth,
  dark: page < 0.2, scripts: document.scripts.length,
  pictures: document.querySelectorAll('svg').length});
</script>
"""

# A window is 500 pixels wide at least; a frame is as narrow as a phone.
_FRAME = """<!DOCTYPE html><html style="color-scheme: light dark"><body>
<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
</body></html>"""


class Look(Struct, frozen=True):
    """What a page looks like: numbers of pictures and words where something is wrong.

    ``overlaps`` are texts on texts, ``outside`` texts beyond their picture, ``over`` parts of the
    page on others, ``wide`` what is wider than the page, ``cut`` the labels of tables that only
    scrolling shows in full, ``faint`` what has too little contrast. ``cards`` counts the rows of
    tables that are laid out as cards.
    ``smallest`` is the smallest font in a picture, in pixels; ``dark`` whether its ground is.
    """

    overlaps: list[tuple[int, str, str]]
    outside: list[tuple[int, str]]
    over: list[tuple[str, str, str]]
    wide: list[str]
    cut: list[str]
    faint: list[tuple[str, float]]
    smallest: float
    width: int
    dark: bool
    scripts: int
    cards: int
    pictures: int


class Browser:
    """A browser with a profile of its own below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._program, self._folder = find_browser(), folder

    def look(self, html: str, width: int, *, dark: bool = False, paper: bool = False) -> Look:
        """Lay the page out and measure it; ``paper`` gives it the style that is printed with."""
        assert POLICY in html, "the page forbids scripts; ours needs its leave"
        open_ = html.replace(POLICY, '<meta name="taken-away"')
        styled = open_.replace("@media print", "@media all") if paper else open_
        framed = escape(styled.replace("</body>", f"{_LOOK}</body>"), quote=True)
        page = self._page(_FRAME.format(width=width, page=framed))
        dom = self._run(page, DESK, 900, dark, "--dump-dom")
        body = dom.split("<body>", 1)[1].split("</body>", 1)[0]
        return msgspec.convert(json.loads(body), Look)

    def count(self, html: str, selector: str) -> int:
        """Return how many of the elements are shown, the page laid out as it is."""
        assert POLICY in html, "the page forbids scripts; ours needs its leave"
        script = (
            "<script>document.body.textContent = [...document.querySelectorAll("
            f"{json.dumps(selector)})].filter((e) => e.offsetHeight).length;</script></body>"
        )
        page = html.replace(POLICY, '<meta name="taken-away"').replace("</body>", script)
        dom = self._run(self._page(page), DESK, 900, False, "--dump-dom")
        return int(dom.split("<body>", 1)[1].split("</body>", 1)[0])

    def picture(self, html: str, width: int, *, dark: bool = False) -> tuple[int, int, int]:
        """Take a picture of the page as it is; return the colour of its upper left corner."""
        shot = self._folder / "page.png"
        self._run(self._page(html), width, 2000, dark, f"--screenshot={shot}")
        return _corner(shot.read_bytes())

    def printed(self, html: str) -> bytes:
        """Return the page as a PDF."""
        pdf = self._folder / "page.pdf"
        flags = (f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
        self._run(self._page(html), DESK, 900, False, *flags)
        return pdf.read_bytes()

    def _page(self, html: str) -> Path:
        page = self._folder / "page.html"
        page.write_text(html)
        return page

    def _run(self, page: Path, width: int, height: int, dark: bool, *flags: str) -> str:
        done = subprocess.run(
            [
                self._program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={self._folder / 'profile'}",
                f"--window-size={width},{height}",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                *flags,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout


def _corner(png: bytes) -> tuple[int, int, int]:
    """Return the first pixel of an RGB picture: no filter of PNG changes that one."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    data, at = b"", 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    red, green, blue = zlib.decompressobj().decompress(data, 4)[1:4]
    return red, green, blue
