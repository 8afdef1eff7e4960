"""Lists, watches and caches of huge Kubernetes collections.

>>> import listwatch
>>> client = listwatch.Client()  # kubeconfig or in-cluster, as kubectl
>>> for pod in client.list("pods", label_selector="app=web"):
...     print(pod.namespace, pod.name, pod["spec"]["nodeName"])

A list of any size takes constant memory, and objects are read from the bytes that the server sent: nothing is decoded
before you read it. :class:`Client` has the calls, :mod:`listwatch.aio` the same for asyncio.
"""

from __future__ import annotations

from collections import abc as _abc
from typing import Any as _Any
from typing import cast as _cast

from . import aio
from ._cache import Cache, Changes
from ._client import Client, List, Watch
from ._errors import (
    ApiError,
    ClosedError,
    ConfigError,
    ConnectionError,
    Error,
    ExpiredError,
    FileError,
    ForkError,
    IncompleteError,
    InputError,
    ObjectError,
    TimeoutError,
    UnknownResourceError,
)
from ._listwatch import Change, Columns, Event, Mapping, Object, Sequence
from ._quantity import quantity

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Cache",
    "Change",
    "Changes",
    "Client",
    "ClosedError",
    "Columns",
    "ConfigError",
    "ConnectionError",
    "Error",
    "Event",
    "ExpiredError",
    "FileError",
    "ForkError",
    "IncompleteError",
    "InputError",
    "List",
    "Mapping",
    "Object",
    "ObjectError",
    "Sequence",
    "TimeoutError",
    "UnknownResourceError",
    "Watch",
    "aio",
    "default",
    "quantity",
]

for _class, _parent in [(Object, _abc.Mapping), (Mapping, _abc.Mapping), (Sequence, _abc.Sequence)]:
    _cast("_Any", _parent).register(_class)


def default(value: object) -> _Any:
    """Converts an object, or a part of one, for ``json.dumps``.

    >>> import json
    >>> json.dumps({"pod": pod}, default=listwatch.default)
    """
    if isinstance(value, (Object, Mapping)):
        return value.to_dict()
    if isinstance(value, Sequence):
        return value.to_list()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
