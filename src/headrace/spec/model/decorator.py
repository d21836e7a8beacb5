"""The decorator of Python tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, overload

from headrace.spec.model.kinds import Kind

F = TypeVar("F", bound=Callable[..., object])


@overload
def table(function: F) -> F: ...


@overload
def table(
    *,
    about: str = ...,
    kind: Kind = ...,
    keys: Sequence[str] = ...,
    sequence_by: str | Sequence[str] = ...,
    apply_as_deletes: str = ...,
    apply_as_truncates: str = ...,
    unchanged: str = ...,
    valid_from: str = ...,
    except_column_list: Sequence[str] = ...,
    stored_as_scd_type: Literal[1, 2] = ...,
    track_history_except_column_list: Sequence[str] = ...,
    partition_by: Sequence[str] = ...,
    constant: Sequence[str] = ...,
    rebuild_on: Mapping[str, Sequence[str] | Mapping[str, str] | Literal["all"]] = ...,
    frozen: str | Sequence[str] = ...,
    window: Mapping[str, str | Sequence[str]] = ...,
    watermark: Mapping[str, str] = ...,
    target_lag: str = ...,
    snapshots_for: str = ...,
    expect: Mapping[str, str | Mapping[str, str]] = ...,
) -> Callable[[F], F]: ...


def table(function: F | None = None, **settings: object) -> F | Callable[[F], F]:
    """Mark a function as a table of its pipeline. Its parameters are its inputs, and the first one is the driver.

    The function is returned unchanged, so that tests can call it on any DataFrames. Headrace parses the settings from the
    file, so `headrace check` does not run it.
    """
    return function if function is not None else lambda decorated: decorated
