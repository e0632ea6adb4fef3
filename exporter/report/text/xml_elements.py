"""XML elements with text from models, tools and manifests."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.core.text import remove_controls

_FORBIDDEN = re.compile("[\ufffe\uffff]")


def create_root(tag: str, attributes: dict[str, str]) -> Element:
    """Return the outermost element."""
    return Element(tag, _clean_attributes(attributes))


def add_element(parent: Element, tag: str, attributes: dict[str, str], text: str = "") -> Element:
    """Append an element to the parent and return it."""
    child = SubElement(parent, tag, _clean_attributes(attributes))
    child.text = clean_text(text) or None
    return child


def clean_text(text: str) -> str:
    """Return the text without characters that XML forbids; newlines and tabs remain."""
    text = remove_controls(text)
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def format_document(tree: Element, comment: str = "") -> str:
    """Return the document without an XML declaration, with one trailing newline."""
    indent(tree)
    return f"{comment}{tostring(tree, encoding='unicode')}\n"


def _clean_attributes(attributes: dict[str, str]) -> dict[str, str]:
    return {name: clean_text(value) for name, value in attributes.items()}
