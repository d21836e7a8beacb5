"""The code blocks of the tutorial and the how-to guides are accepted by the command line, the loader and the settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import typer
import yaml
from typer.exceptions import TyperException

from headrace.cli import app
from headrace.cli.app import _with_global_options_first as with_global_options_first
from headrace.errors import SpecError
from headrace.settings import load_settings
from headrace.spec import Pipeline, list_pipelines, load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from tests.docs.blocks import DOCS, GUIDES, ROOT, TUTORIAL, Block, read_blocks, read_files, split_commands

PAGES = [TUTORIAL, *GUIDES]
CURRENT = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if "decisions" not in page.parts)]
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
TARGETS = frozenset(re.findall(r"^([a-z-]+):.*## ", ROOT.joinpath("Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FILES = ("sql", "yaml", "python")
OWN_TABLES = {f"metadata.{name}" for name in ("quarantine", "quality_results", "incremental_watermarks", "erasures")}
INLINE = re.compile(r"`(headrace [^`\n]+)`")
PLACEHOLDER = re.compile(r"[A-Z]+|…|.*<\w+>.*")


def blocks_in(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=str)


def parse_command(words: Sequence[str], *, strict: bool = True) -> None:
    """Parse a command as `headrace` does, without running it. Unless `strict`, it may lack arguments and have placeholders."""
    try:
        parse(typer.main.get_command(app), ["headrace", *with_global_options_first(words)], parent=None)
    except typer.Exit:
        return  # --help and --version end a command while it is parsed
    except TyperException as error:
        given = re.search("'([^']*)'", str(error))
        if strict or not ("Missing" in str(error) or (given and PLACEHOLDER.fullmatch(given[1]))):
            raise AssertionError(f"{shlex.join(words)}: {error}") from None


def parse(command: Any, words: Sequence[str], *, parent: Any) -> None:
    command.no_args_is_help = False  # a text may name a group of commands
    context = command.make_context(words[0], list(words[1:]), parent=parent)
    rest = [*context._protected_args, *context.args]
    if hasattr(command, "commands") and rest:
        name, inner, arguments = command.resolve_command(context, rest)
        parse(inner, [name, *arguments], parent=context)


def test_every_block_has_a_known_language() -> None:
    assert len(BLOCKS) > 40
    fences = sum(len(re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(BLOCKS)
    known = ("bash", "toml", "json", "text", *FILES)
    assert [str(block) for block in BLOCKS if block.language not in known] == []


def test_every_marker_is_known() -> None:
    names = ("file", "run", "until Ctrl-C", "second terminal", "after Ctrl-C", "again until", "not run")
    assert [str(block) for block in BLOCKS if block.marker and not any(block.marked(name) for name in names)] == []


@blocks_in("bash")
def test_shell_commands_parse(block: Block) -> None:
    commands = list(split_commands(block.text))
    assert commands, "a shell block without commands"
    for program, *arguments in commands:
        if program == "headrace":
            parse_command(arguments)
        elif program == "make":
            assert {word for word in arguments if "=" not in word} <= TARGETS


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_parse(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command in INLINE.findall(text):
        for program, *arguments in split_commands(command.replace("\\|", "|")):
            if program == "headrace":
                parse_command(arguments, strict=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_a_page_load(page: Path, tmp_path: Path) -> None:
    blocks = [block for block in read_blocks(page) if block.language in FILES]
    assert [str(block) for block in blocks if not any(map(block.marked, ("file", "run", "not run")))] == []
    pipelines = load_files(read_files(page), tmp_path)
    tables = OWN_TABLES | {table for pipeline in [*pipelines, *shipped()] for table in tables_of(pipeline)}
    for query in queries_of(page):
        named = {".".join(part.name for part in table.parts) for table in sqlglot.parse_one(query).find_all(sqlglot.exp.Table)}
        assert named - tables == set(), query


@blocks_in("toml")
def test_profiles_are_accepted(block: Block, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(block.text, encoding="utf-8")
    (profile,) = {name.partition(".")[0] for name in re.findall(r"^\[(\S+)\]", block.text, re.MULTILINE)}
    login = {"HEADRACE_KAFKA_USERNAME": "headrace", "HEADRACE_KAFKA_PASSWORD": "secret"}
    assert load_settings(flags={"profile": profile}, environ=login, folder=tmp_path).profile == profile


@blocks_in("json")
def test_log_lines_name_loggers_and_tables_that_exist(block: Block) -> None:
    tables = {table for pipeline in shipped() for table in tables_of(pipeline)}
    for line in map(json.loads, block.text.splitlines()):
        assert ROOT.joinpath("src", line["logger"].replace(".", os.sep) + ".py").exists()
        assert line["table"] in tables


@pytest.mark.parametrize(
    "command",
    [
        "lnad payments",
        "land payments --onec",
        "land payments --accept-gaps=now",
        "export dbd payments",
        "query 'SELECT 1' --engine oracle",
    ],
)
def test_wrong_command_does_not_parse(command: str) -> None:
    with pytest.raises(AssertionError, match=command.split()[0]):
        parse_command(shlex.split(command), strict=False)


@pytest.mark.parametrize(
    ("page", "planted"),
    [
        ("history.md", ("payment_subscriptions_cleaned", "payment_subscriptions_clean")),
        ("new-pipeline.md", ("trigger: 1s", "triger: 1s")),
        ("http-events.md", ('stream="readings"', 'stream="reading"')),
    ],
)
def test_wrong_file_does_not_load(page: str, planted: tuple[str, str], tmp_path: Path) -> None:
    blocks = [replace(block, text=block.text.replace(*planted)) for block in read_blocks(DOCS / "how-to" / page)]
    with pytest.raises(SpecError):
        load_files(blocks, tmp_path)


def load_files(blocks: Sequence[Block], folder: Path) -> list[Pipeline]:
    """Write blocks into copies of the pipelines that their comments name, and return these pipelines."""
    names: list[str] = []
    for block in (block for block in blocks if block.marked("file")):
        name, _, path = str(block.marked("file")).partition("/")
        if name not in names:
            names.append(name)
            if (BUILT_IN / name).is_dir():
                shutil.copytree(BUILT_IN / name, folder / name)
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = block.text
        if path == "pipeline.yml" and file.exists():
            text = yaml.safe_dump({**yaml.safe_load(file.read_text(encoding="utf-8")), **yaml.safe_load(block.text)})
        file.write_text(text, encoding="utf-8")
    return [load_pipeline(f"./{name}", environ={}, folder=folder) for name in names]


@cache
def shipped() -> tuple[Pipeline, ...]:
    return tuple(load_pipeline(pipeline.name, environ={}, folder=BUILT_IN) for pipeline in list_pipelines(BUILT_IN))


def tables_of(pipeline: Pipeline) -> Iterator[str]:
    yield from (str(stream.table) for stream in pipeline.streams)
    yield from (str(table.table) for table in pipeline.tables)


def queries_of(page: Path) -> Iterator[str]:
    for block in read_blocks(page):
        if block.language == "bash":
            for words in split_commands(block.text):
                if words[:2] == ["headrace", "query"]:
                    yield words[2]
