"""XML from texts that others wrote: a tree is built, and nothing is ever pasted into a tag.

In: texts and names of tags. Out: elements, and their text. Characters that XML 1.0 forbids
(section 2.2: most controls, lone surrogates, U+FFFE, U+FFFF) are shown as replacements, for an
escape like `&#0;` would make the file unreadable too.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.core.sanitize import printable
from exporter.report.text.markdown import visible

_FORBIDDEN = re.compile("[\ufffe\uffff]")


def root(tag: str, attributes: dict[str, str]) -> Element:
    """The outermost element."""
    return Element(tag, _clean(attributes))


def add(parent: Element, tag: str, attributes: dict[str, str], text: str = "") -> Element:
    """A new last child of `parent`."""
    child = SubElement(parent, tag, _clean(attributes))
    child.text = clean(text) or None
    return child


def clean(text: str) -> str:
    """`text` with characters that XML can hold; newlines and tabs stay."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", visible(printable(text), keep="\n\t"))


def to_text(tree: Element, comment: str = "") -> str:
    """The document, UTF-8 as XML takes it without a declaration, with one trailing newline."""
    indent(tree)
    return f"{comment}{tostring(tree, encoding='unicode')}\n"


def _clean(attributes: dict[str, str]) -> dict[str, str]:
    return {name: clean(value) for name, value in attributes.items()}
