"""Checks of arguments: a wrong type is a TypeError that names the argument."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

Selector: TypeAlias = "str | Mapping[str, str]"
Path: TypeAlias = "str | os.PathLike[str]"


def wrong(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    return _unicode(name, value)


def optional_text(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


def _unicode(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        from ._errors import InputError

        raise InputError(f"{name} has half of a surrogate pair, which is no text") from None
    return value


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, "a bool", value)
    return value


def optional_number(name: str, value: object, *, least: int = 0, most: int = 2**63 - 1) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(name, "an int", value)
    if not least <= value <= most:
        from ._errors import InputError

        raise InputError(f"{name} must be between {least} and {most}, not {value}")
    return value


def seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(name, "a number of seconds", value)
    try:
        return float(value)
    except OverflowError:
        from ._errors import InputError

        raise InputError(f"{name} is too large: {value}") from None


def texts(name: str, value: object, what: str = "strings") -> list[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise wrong(name, f"an iterable of {what}", value)
    found: list[str] = []
    for item in cast("Iterable[object]", value):
        if not isinstance(item, str):
            raise TypeError(f"{name} must contain {what}, not {type(item).__name__}")
        found.append(_unicode(name, item))
    return found


def fields(value: object) -> tuple[list[str], list[str]] | None:
    """Returns the names and the paths of fields: those of a dict, or the paths as their own names."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        paths = texts("fields", value, "paths")
        return paths, paths
    named = cast("Mapping[object, object]", value)
    return texts("fields", named, "names"), texts("fields", named.values(), "paths")


def selector(name: str, value: object) -> str | None:
    """Returns a selector as text: a dict stands for equalities."""
    if value is None or isinstance(value, str):
        return optional_text(name, value)
    if not isinstance(value, Mapping):
        raise wrong(name, "a str or a dict", value)
    terms: list[str] = []
    for key, wanted in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str) or not isinstance(wanted, str):
            raise TypeError(f"{name} must map str to str, not {type(key).__name__} to {type(wanted).__name__}")
        terms.append(f"{_unicode(name, key)}={_unicode(name, wanted)}")
    return ",".join(terms)


def namespaces(value: object) -> list[str] | None:
    """Returns the namespaces of a call: None means all of them."""
    if value is None:
        return None
    if isinstance(value, str):
        return [_unicode("namespace", value)]
    return texts("namespace", value)


def path(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise wrong(name, "a path", value)
    found: object = os.fspath(cast("os.PathLike[str] | str", value))
    if "\0" in text(name, found):
        from ._errors import InputError

        raise InputError(f"{name} has a zero byte, which no path has")
    return text(name, found)


def selected(
    namespace: object, label_selector: object, field_selector: object, metadata_only: object
) -> dict[str, Any]:
    return {
        "namespaces": namespaces(namespace),
        "label_selector": selector("label_selector", label_selector),
        "field_selector": selector("field_selector", field_selector),
        "metadata_only": flag("metadata_only", metadata_only),
    }
