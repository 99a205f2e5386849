"""Changes as an Atom feed (RFC 4287); pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from doesitrun.catalog.answers import Event, Line
from doesitrun.catalog.words import pair_words
from doesitrun.store.table import clean_text

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

ATOM = "http://www.w3.org/2005/Atom"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def atom(events: Sequence[Event], title: str, address: str, page: str = "{address}/model?{query}") -> str:
    """The text of the feed. `address` is the app's own, without a slash at its end; `page` makes a model's address of it."""
    from xml.etree import ElementTree as ET

    feed = ET.Element("feed", xmlns=ATOM)
    newest = max((event.at for event in events), default=datetime(1970, 1, 1, tzinfo=UTC))
    _add(feed, "title", title)
    _add(feed, "id", f"{address}/")
    _add(feed, "updated", newest.isoformat())
    ET.SubElement(ET.SubElement(feed, "author"), "name").text = "doesitrun"
    ET.SubElement(feed, "link", rel="self", href=f"{address}/changes.atom")
    ET.SubElement(feed, "link", rel="alternate", href=f"{address}/")
    for event in events:
        entry = ET.SubElement(feed, "entry")
        link = page.format(address=address, query=page_query(event.after))
        _add(entry, "title", f"{event.model_id}: {change_words(event)}")
        _add(
            entry,
            "id",
            f"urn:sha256:{sha256(f'{link} {event.at.isoformat()} {event.after.result}'.encode('utf-8', 'replace')).hexdigest()}",
        )
        _add(entry, "updated", event.at.isoformat())
        ET.SubElement(entry, "link", rel="alternate", href=_legal(link))
        _add(entry, "summary", _summary(event))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(feed, encoding="unicode") + "\n"


def page_query(line: Line) -> str:
    """The parameters that name a line's row in an address: model, target, task, versions and cores."""
    named = {
        "model": line.model_id,
        "target": line.target,
        "task": line.task,
        "compiler": line.compiler_version,
        "transformers": line.library_version,
        "cores": "" if line.cores is None else str(line.cores),
    }
    return urlencode({key: clean_text(value) for key, value in named.items() if value}, quote_via=quote)


def change_words(event: Event) -> str:
    """What changed, in a few words."""
    if event.before is None:
        return f"{event.after.result}, its first result on {event.after.target or 'this target'}"
    return f"{event.before.result} became {event.after.result}"


def _summary(event: Event) -> str:
    cores = f" on {event.after.cores} cores" if event.after.cores else ""
    why = f" {event.after.why}" if event.after.why else ""
    return f"{event.task or 'Tested'}{cores} with {pair_words(event.after.pair)}.{why}"


def _add(parent: ET.Element, name: str, text: str) -> None:
    from xml.etree import ElementTree as ET

    ET.SubElement(parent, name).text = _legal(text)


def _legal(text: str) -> str:
    """The text without characters that no XML document may hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", clean_text(text))
