"""Find and read the files that a pipeline.yml names: schemas and generators, all inside the pipeline's folder."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.ddl import parse_ddl
from headrace.spec.loading.document import Value, read_text
from headrace.spec.model.types import Column
from headrace.spec.problems import Place, Problems, show_path, suggest

GENERATOR = "def events(random: Random, now: Callable[[], datetime]) -> Iterator[dict[str, object]]"
GENERATOR_PARAMETERS = ["random", "now"]
GENERATOR_MAY_TAKE = ("problems", "start")


@dataclass(frozen=True)
class Schema:
    """A stream's columns, and the text of its .avsc if it has one."""

    columns: tuple[Column, ...]
    avro: str | None


@dataclass(frozen=True)
class Files:
    """The folder of a pipeline, and the working folder that shown paths are relative to."""

    pipeline_folder: Path
    folder: Path

    def place(self, path: Path, *, argument: str) -> Place:
        """Return how a file of the pipeline is shown in errors."""
        return Place(show_path(path, folder=self.folder), argument)

    def find(self, value: Value) -> Path:
        """Return the file that the value names."""
        path = self._resolve(value, "file")
        if not path.is_file():
            raise value.error(f'not found: file "{value.text()}" in the pipeline\'s folder', fix="Create it or fix the path")
        return path

    def find_folder(self, value: Value) -> Path:
        """Return the folder that the value names."""
        path = self._resolve(value, "folder")
        if not path.is_dir():
            raise value.error(f'not found: folder "{value.text()}" in the pipeline\'s folder', fix="Create it or fix the path")
        return path

    def _resolve(self, value: Value, what: str) -> Path:
        written = value.text()
        if Path(written).is_absolute() or ".." in Path(written).parts:
            raise value.error(f'"{written}" is outside the pipeline\'s folder', fix=f"Copy the {what} into the folder")
        return self.pipeline_folder / written

    def read_schema(self, value: Value, *, problems: Problems) -> Schema | None:
        """Return the schema, or None if it has errors, all of which are collected in `problems`."""
        path = self.find(value)
        place = self.place(path, argument=value.place.argument)
        if path.suffix not in (".sql", ".avsc"):
            raise value.error(
                f'"{value.text()}" is neither .sql nor .avsc', fix="Write the schema as DDL (.sql) or as Avro (.avsc)"
            )
        text = read_text(path, place=place)
        before = len(problems.errors)
        if path.suffix == ".avsc":
            schema = Schema(parse_avro(text, place=place, problems=problems), avro=text)
        else:
            schema = Schema(parse_ddl(text, place=place, problems=problems), avro=None)
        return schema if len(problems.errors) == before else None

    def find_generator(self, value: Value) -> Path:
        """Return the generator's file after checking its function `events`. The file is parsed, not run."""
        path = self.find(value)
        place = self.place(path, argument=value.place.argument)
        try:
            module = ast.parse(read_text(path, place=place))
        except SyntaxError as error:
            raise place.error(f"not valid Python: {error.msg}", line=error.lineno or 1, fix="Fix the line") from None
        except ValueError as error:
            raise place.error(f"not valid Python: {error}", line=1, fix="Fix the file") from None
        for statement in module.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "events":
                _check_parameters(statement, place=place)
                return path
        raise place.error('a generator needs a function "events"', line=1, fix=f"Write {GENERATOR}")


def _check_parameters(function: ast.FunctionDef, *, place: Place) -> None:
    """Check that `events` takes `random` and `now` by position, and only known parameters besides them."""
    positional = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if positional[:2] != GENERATOR_PARAMETERS or len(function.args.posonlyargs) > 2:
        shown = ", ".join(positional)
        raise place.error(f"events must take (random, now), not ({shown})", line=function.lineno, fix=f"Write {GENERATOR}")
    for name in (*positional[2:], *(argument.arg for argument in function.args.kwonlyargs)):
        if name not in GENERATOR_MAY_TAKE:
            hint = suggest(name, GENERATOR_MAY_TAKE, plural="Further parameters")
            raise place.error(f'unknown parameter "{name}" of events', line=function.lineno, fix=f"{hint} Fix the name")
