"""The exceptions of listwatch."""

from __future__ import annotations

import builtins
from typing import Any


class Error(Exception):
    """The base of all errors of listwatch.

    ``items`` is the number of items that a list or a watch delivered before, and ``namespace`` the namespace that
    failed, if the call was for several.
    """

    def __init__(self, text: str = "", *, items: int = 0, namespace: str | None = None) -> None:
        super().__init__(text)
        self.items = items
        self.namespace = namespace


class ApiError(Error):
    """The API server refused a request, or a proxy did.

    ``status`` is the HTTP status, such as 403, ``reason`` a word for programs, such as ``Forbidden``, ``message`` the
    server's text, and ``details`` a dict of the object and the causes, or ``None``.
    """

    def __init__(
        self,
        text: str = "",
        *,
        status: int = 0,
        reason: str = "",
        message: str = "",
        details: dict[str, Any] | None = None,
        items: int = 0,
        namespace: str | None = None,
    ) -> None:
        super().__init__(text, items=items, namespace=namespace)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details


class ExpiredError(ApiError):
    """The server no longer has the resource version or the page: list again."""


class IncompleteError(Error):
    """A list, or a cache, lacks objects. ``items`` is the number of items that were delivered."""


class ConnectionError(Error, builtins.ConnectionError):
    """The server could not be reached, or the connection broke."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed, or the server sent nothing for too long."""


class ConfigError(Error):
    """A kubeconfig, a certificate or credentials cannot be used."""


class InputError(Error, ValueError):
    """An argument has the right type and a wrong value. Nothing was sent."""


class UnknownResourceError(Error, LookupError):
    """The server does not have the resource."""


class ObjectError(Error, ValueError):
    """An object is malformed, or its kind is unknown."""


class FileError(Error, OSError):
    """A cache could not be saved."""


class ClosedError(Error):
    """A list, a watch or a cache was closed, or has ended."""


class ForkError(Error):
    """A list, a watch or a cache belongs to the process before a fork."""
