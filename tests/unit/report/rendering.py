"""Markdown as a reader sees it, parsed with the tables of GitHub.

Input: markdown. Output: `Page` with the parts that a hostile text could forge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Page:
    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, markdown: str) -> Page:
        return cls(tuple(_flat(_PARSER.parse(markdown))))

    def count(self, *types: str) -> int:
        return sum(token.type in types for token in self.tokens)

    @property
    def links(self) -> list[str]:
        return [str(token.attrGet("href")) for token in self.tokens if token.type == "link_open"]

    @property
    def html(self) -> list[str]:
        kinds = ("html_block", "html_inline")
        return [token.content for token in self.tokens if token.type in kinds]

    @property
    def headings(self) -> list[str]:
        return [
            _text(after)
            for token, after in zip(self.tokens, self.tokens[1:], strict=False)
            if token.type == "heading_open"
        ]

    @property
    def rows(self) -> list[list[str]]:
        rows: list[list[str]] = []
        cells = ("td_open", "th_open")
        for token, after in zip(self.tokens, self.tokens[1:], strict=False):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in cells:
                rows[-1].append(_text(after))
        return rows

    @property
    def shape(self) -> list[str]:
        """Return every token without texts and code spans: the structure of a page."""
        return [token.type for token in self.tokens if token.type not in ("text", "code_inline")]

    @property
    def paragraphs(self) -> list[str]:
        return [_text(token) for token in self.tokens if token.type == "inline"]


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def _text(inline: Token) -> str:
    """Return the text; a line break is a space, as in a table that is wide enough."""
    text = "".join(child.content for child in inline.children or [])
    return text.replace("<br>", " ").translate({0xA0: " ", 0x2011: "-"})
