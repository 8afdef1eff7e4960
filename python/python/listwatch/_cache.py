"""A collection in memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, cast

from . import _arguments as check
from ._listwatch import Cache as _RawCache
from ._listwatch import Change, Object, Stream

if TYPE_CHECKING:
    from typing_extensions import Self


class Changes(Stream[Change]):
    """The changes of a cache. A ``with`` block or ``close()`` ends it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cache(_RawCache):
    """A whole collection in memory, which a watch keeps up to date: see :meth:`Client.cache`.

    It answers as soon as it exists, also before it is complete: call :meth:`wait` first. While the server cannot be
    reached it serves what it has, and ``status()`` says how old that is. A cache that has ended raises on use. The
    watch ends with :meth:`close`, a ``with`` block, or the last reference.

    >>> pods.get("default", "web-1")["status"]["phase"]
    'Running'
    >>> [pod.name for pod in pods.by("node", "node-1")]
    ['web-1']
    """

    def wait(self, timeout: float | None = None, resource_version: str | None = None) -> str:
        """Waits until the cache has the whole collection, and returns its resource version.

        :param timeout: the seconds after which :class:`TimeoutError` is raised, with the last error of the server
        :param resource_version: also waits for all changes up to this version, such as that of your own write

        Raises :class:`IncompleteError` if objects were skipped, for example because of the budget.
        """
        seconds = check.seconds("timeout", timeout)
        return next(self.synced(seconds, check.optional_text("resource_version", resource_version)))

    def changes(
        self,
        *,
        initial_state: bool = True,
        namespace: str | None = None,
        label_selector: check.Selector | None = None,
    ) -> Changes:
        """Iterates over the changes of the cache. By the time of a change, the cache already reflects it.

        :param initial_state: first delivers each object of the cache as ``ADDED``, and then ``SYNCED``

        If you are slower than the changes, several changes of one object become one.

        >>> for change in pods.changes():
        ...     print(change.type, change.object)
        ...     if change.type == "SYNCED":
        ...         break
        """
        return Changes(
            self._changes(
                check.flag("initial_state", initial_state),
                check.optional_text("namespace", namespace),
                check.selector("label_selector", label_selector),
            )
        )

    def save(self, path: check.Path) -> None:
        """Saves the collection, so that the next start can resume from it: ``client.cache(…, load=path)``."""
        next(self._save(check.path("path", path) or ""))

    def list(self, *, namespace: str | None = None, label_selector: check.Selector | None = None) -> Iterator[Object]:
        """Iterates over the objects, in the order of namespace and name."""
        found = self.select(
            check.optional_text("namespace", namespace), check.selector("label_selector", label_selector)
        )
        return iter(found)

    def __iter__(self) -> Iterator[Object]:
        return iter(self.select())

    def __contains__(self, key: object) -> bool:
        """Returns True for the name of a cluster-scoped object, or a tuple of namespace and name."""
        if isinstance(key, str):
            return self.get(key) is not None
        if isinstance(key, tuple):
            namespace, name = cast("tuple[object, object]", key) if len(cast("tuple[object]", key)) == 2 else (None, None)
            return isinstance(namespace, str) and isinstance(name, str) and self.get(namespace, name) is not None
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
