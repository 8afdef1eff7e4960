"""Quantities of Kubernetes as numbers."""

from __future__ import annotations

import re
from decimal import Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,4})|([numkMGTPE]|[KMGTPE]i)?)")


def quantity(text: str | int | float | None) -> float | None:
    """Returns a quantity as a number: cores for ``cpu``, bytes for ``memory``. ``None`` stays ``None``.

    >>> quantity("250m"), quantity("64Mi"), quantity("2"), quantity("1e3")
    (0.25, 67108864.0, 2.0, 1000.0)
    """
    if text is None or isinstance(text, (int, float)):
        return text
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a quantity must be a str, not {type(text).__name__}")
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid quantity {text!r}")
    number, exponent, suffix = found.groups()
    return float(Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""])
