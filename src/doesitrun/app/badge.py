"""A badge for a model card: an SVG, and the Markdown line that shows it. Pure."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from doesitrun.app.words import address, shown
from doesitrun.catalog import Line

_COLOURS = {"PASS": "#1a7f4b", "FAIL": "#b3261e", "EXCLUDED": "#7a5b00", "INCONCLUSIVE": "#6b4fa0"}
_UNTESTED = "#5b6470"
_ADVANCES = {**dict.fromkeys("iljtfI.,:;'|!()[] ", 4.0), **dict.fromkeys("mwMW@%", 10.2), **dict.fromkeys("ABCDEFGHKNOPQRSUVXYZ", 8.2)}
"""Width of a character in 11 px Verdana, roughly; the SVG fits its text to the width that this gives."""


def _width(text: str) -> int:
    return round(sum(_ADVANCES.get(c, 6.8) for c in text)) + 12


def _cut(text: str) -> str:
    text = " ".join(str(shown(text)).split())
    return text if len(text) <= 60 else text[:59] + "…"


def message(line: Line) -> str:
    """The result in a few words; a forecast is never shown as a result."""
    if not line.result:
        return "not tested"
    cores = f" on {line.cores} core{'s' if line.cores > 1 else ''}" if line.result == "PASS" and line.cores else ""
    return line.result.lower() + cores


def svg(line: Line) -> str:
    """The badge of one line: where it was run on the left, the result on the right."""
    versions = " ".join(part for part in (line.compiler, line.compiler_version) if part)
    left = _cut(f"{line.device or line.target or 'doesitrun'}{' · ' if versions else ''}{versions}")
    right = _cut(message(line))
    a, b = _width(left), _width(right)
    colour = _COLOURS.get(line.result, _UNTESTED)
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{a + b}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{a + b}" height="20" rx="4"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{a}" height="20" fill="#2b3036"/><rect x="{a}" width="{b}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{a / 2}" y="14" textLength="{a - 12}" lengthAdjust="spacingAndGlyphs">{escape(left)}</text>'
        f'<text x="{a + b / 2}" y="14" textLength="{b - 12}" lengthAdjust="spacingAndGlyphs">{escape(right)}</text>'
        "</g></svg>"
    )


def parameters(line: Line) -> dict[str, str]:
    """What names the line's model and pair in an address of the app."""
    named = {"target": line.target, "compiler": line.compiler_version, "transformers": line.library_version}
    return {name: value for name, value in named.items() if value}


def markdown(line: Line, base: str) -> str:
    """One line for a model card. `base` is the app's address without a trailing slash."""
    image = f"{base}/badge/{quote(line.model_id, errors='replace')}.svg{address(parameters(line))}".removesuffix("?")
    page = f"{base}/{address({'model': line.model_id, **parameters(line)})}"
    words = f"{line.target or 'doesitrun'}: {message(line)}"
    return f"[![{words}]({image})]({page})"
