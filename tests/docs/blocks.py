"""The code blocks of the documentation, and the HTML comments that say how a test runs them.

A comment in the line above a block is one of

    <!-- file: PIPELINE/PATH -->      the block is that file of a pipeline: a shipped one, or the page's own
    <!-- until Ctrl-C: TEXT -->       its command runs until it is interrupted, which a test does when it has said TEXT
    <!-- second terminal: TEXT -->    its command runs in a second terminal, after Ctrl-C there, until TEXT at least
    <!-- after Ctrl-C: WHERE -->      its commands are typed after Ctrl-C in the second terminal
    <!-- again until: TEXT -->        its commands are repeated until they say TEXT
    <!-- run: in order -->           the block is Python that a test runs after those above it
    <!-- not run: REASON -->          why a test can't run or load the block
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
GUIDES = sorted(DOCS.joinpath("how-to").glob("*.md"))

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<marker>[^\n]*) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
_HEREDOC = re.compile(r"<<'?(\w+)'?([^\n]*)\n.*?^\1$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^cat >>? pipelines/(\S+) <<'(\w+)'\n(.*?)^\2$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s+)#\s.*$", re.MULTILINE)
_SUBSTITUTION = re.compile(r"\$\(([^)]*)\)")
_SEPARATORS = ";&|<>\n"
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, without its indentation."""

    page: Path
    line: int
    language: str
    text: str
    marker: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def marked(self, name: str) -> str | None:
        """Return what the comment above the block says after `name:`, or None."""
        head, _, value = self.marker.partition(": ")
        return value if head == name else None


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, match.start("indent")) + 1,
            match["language"],
            textwrap.dedent(match["text"]),
            match["marker"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def read_files(page: Path) -> list[Block]:
    """Return the files of pipelines on a page as blocks: blocks marked as a file, and what shell blocks write with `cat`."""
    files: dict[str, Block] = {}
    for block in read_blocks(page):
        path = block.marked("file")
        if path:
            files[path] = block
        for path, _, text in _FILE.findall(block.text) if block.language == "bash" else ():
            before = files[path].text if path in files else ""
            files[path] = replace(block, language=path.rpartition(".")[2], text=before + text, marker=f"file: {path}")
    return [*files.values()]


def split_commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell script, without assignments, redirections and comments."""
    script = _COMMENT.sub("", _HEREDOC.sub(r"\2", script))
    for inner in _SUBSTITUTION.findall(script):
        yield from split_commands(inner)
    lexer = shlex.shlex(_SUBSTITUTION.sub("…", script), posix=True, punctuation_chars=_SEPARATORS)
    lexer.commenters = ""
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, "\n"]:
        if set(token) <= set(_SEPARATORS):
            if words:
                yield words
            words = []
        elif words or not _ASSIGNMENT.match(token):
            words.append(token)
