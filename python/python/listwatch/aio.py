"""The client for asyncio: the calls of :class:`listwatch.Client`, with ``async for`` and ``await``.

>>> import asyncio, listwatch.aio
>>> async def main() -> None:
...     client = listwatch.aio.Client()
...     async for pod in client.list("pods"):
...         print(pod.name)
...     async with client.watch("pods", initial_state=True) as events:
...         async for event in events:
...             print(event)
...             if event.type == "SYNCED":
...                 break
>>> asyncio.run(main())

The event loop never waits for the network, and a batch of items passes through it once. A task that is cancelled ends
its request. It works with asyncio's event loops on Linux and macOS, and with uvloop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from . import _arguments as check
from ._cache import Cache as _Cache
from ._client import Client as _Client
from ._errors import Error
from ._listwatch import Change, Event, LoopWaker, Object, Stream

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Cache", "Changes", "Client", "List", "Watch"]

T = TypeVar("T")


class _LoopNews:
    """Tells the tasks of an event loop that a stream has news: threads write a byte into a socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = LoopWaker()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._tokens = itertools.count(1)
        self._loop = loop
        loop.add_reader(self.waker.fileno(), self._notify)

    def _notify(self) -> None:
        for token in self.waker.drain():
            waiting = self._waiting.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    async def poll(self, stream: Stream[T]) -> list[T]:
        """Waits for the next items of a stream: none at its end."""
        while True:
            token = next(self._tokens)
            self._waiting[token] = waiting = self._loop.create_future()
            try:
                items = stream.poll(self.waker, token)
                if items is not None:
                    return items
                await waiting
            finally:
                del self._waiting[token]


_news: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopNews] = WeakKeyDictionary()


def _news_of_loop() -> _LoopNews:
    loop = asyncio.get_running_loop()
    news = _news.get(loop)
    if news is None:
        news = _news[loop] = _LoopNews(loop)
    return news


async def _result(stream: Stream[T]) -> T:
    """Waits for the one result of a call, and ends the request if the task is cancelled."""
    try:
        (result,) = await _news_of_loop().poll(stream)
    except BaseException:
        stream.close()
        raise
    return result


class _Open(Generic[T]):
    """An asynchronous iterator over what a request delivers."""

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream
        self._items: Iterator[T] = iter(())

    def __aiter__(self) -> AsyncIterator[T]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[T]:
        # An asynchronous generator passes on an item that is there without the event loop.
        stream, news = self._stream, _news_of_loop()
        try:
            while True:
                for item in self._items:
                    yield item
                items = await news.poll(stream)
                if not items:
                    return
                self._items = iter(items)
        except asyncio.CancelledError:
            stream.close()
            raise

    async def __anext__(self) -> T:
        for item in self._items:
            return item
        try:
            items = await _news_of_loop().poll(self._stream)
        except asyncio.CancelledError:
            self._stream.close()
            raise
        if not items:
            raise StopAsyncIteration
        self._items = iter(items)
        return next(self._items)

    def close(self) -> None:
        """Ends the request."""
        self._stream.close()

    async def aclose(self) -> None:
        """Ends the request."""
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


class List(_Open[T]):
    """The items of a list, for ``async for``: see :class:`listwatch.List`."""

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of the list after its last item: see :attr:`listwatch.List.meta`."""
        summary = self._stream.summary()
        if summary is None:
            raise Error("the list has no metadata before its end: read all its items first")
        return summary


class Watch(_Open[Event[T]], Generic[T]):
    """The events of a watch, for ``async for``: see :class:`listwatch.Watch`."""


class Changes(_Open[Change]):
    """The changes of a cache, for ``async for``: see :class:`listwatch.Changes`."""


class Cache:
    """A whole collection in memory: see :class:`listwatch.Cache`. Reads do not wait, so they are no coroutines."""

    def __init__(self, cache: _Cache) -> None:
        self._cache = cache
        self.get = cache.get
        self.by = cache.by
        self.index_values = cache.index_values
        self.count = cache.count
        self.list = cache.list
        self.status = cache.status
        self.memory = cache.memory
        self.close = cache.close

    async def wait(self, timeout: float | None = None, resource_version: str | None = None) -> str:
        """Waits until the cache has the whole collection: see :meth:`listwatch.Cache.wait`."""
        seconds = check.seconds("timeout", timeout)
        return await _result(self._cache.synced(seconds, check.optional_text("resource_version", resource_version)))

    def changes(
        self,
        *,
        initial_state: bool = True,
        namespace: str | None = None,
        label_selector: check.Selector | None = None,
    ) -> Changes:
        """Iterates over the changes of the cache: see :meth:`listwatch.Cache.changes`."""
        return Changes(
            self._cache.changes(initial_state=initial_state, namespace=namespace, label_selector=label_selector)
        )

    async def save(self, path: check.Path) -> None:
        """Saves the collection: see :meth:`listwatch.Cache.save`."""
        await _result(self._cache._save(check.path("path", path) or ""))  # pyright: ignore[reportPrivateUsage]

    def __len__(self) -> int:
        return len(self._cache)

    def __iter__(self) -> Iterator[Object]:
        return iter(self._cache)

    def __contains__(self, key: object) -> bool:
        return key in self._cache

    @property
    def resource_version(self) -> str | None:
        """The version up to which the cache has all changes."""
        return self._cache.resource_version

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cache.close()


class Client:
    """A client of one API server, for asyncio: see :class:`listwatch.Client` for the parameters.

    Creating it reads the kubeconfig and its certificates, a few milliseconds.
    """

    def __init__(
        self,
        *,
        kubeconfig: check.Path | None = None,
        context: str | None = None,
        server: str | None = None,
        token: str | None = None,
        ca: check.Path | None = None,
        impersonate: str | tuple[str, Iterable[str]] | None = None,
        proxy: str | None = None,
    ) -> None:
        self._client = _Client(
            kubeconfig=kubeconfig,
            context=context,
            server=server,
            token=token,
            ca=ca,
            impersonate=impersonate,
            proxy=proxy,
        )

    @classmethod
    def from_configuration(cls, configuration: Any) -> Self:
        """As :meth:`listwatch.Client.from_configuration`; also for ``kubernetes_asyncio.client.Configuration``."""
        client = cls.__new__(cls)
        client._client = _Client.from_configuration(configuration)
        return client

    @property
    def server(self) -> str:
        """The URL of the server."""
        return self._client.server

    @property
    def default_namespace(self) -> str:
        """The namespace of the context, ``default`` unless it names one."""
        return self._client.default_namespace

    def __repr__(self) -> str:
        return f"<listwatch.aio.Client of {self.server}>"

    @overload
    def list(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        page_size: int | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
        timeout: float | None = None,
        fields: None = None,
    ) -> List[Object]: ...

    @overload
    def list(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        page_size: int | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
        timeout: float | None = None,
        fields: Iterable[str],
    ) -> List[tuple[Any, ...]]: ...

    def list(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        page_size: int | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
        timeout: float | None = None,
        fields: Iterable[str] | None = None,
    ) -> List[Any]:
        """Lists a resource, for ``async for``: see :meth:`listwatch.Client.list`."""
        items: Stream[Any] = cast("Any", self._client).list(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            page_size=page_size,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            metadata_only=metadata_only,
            timeout=timeout,
            fields=fields,
        )
        return List(items)

    async def get(
        self,
        resource: str,
        name: str,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Gets one object: see :meth:`listwatch.Client.get`."""
        return await _result(
            self._client._get(  # pyright: ignore[reportPrivateUsage]
                resource, name, namespace, metadata_only, resource_version, timeout
            )
        )

    @overload
    def watch(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        initial_state: bool = False,
        resource_version: str | None = None,
        metadata_only: bool = False,
        fail_fast: bool = False,
        fields: None = None,
    ) -> Watch[Object]: ...

    @overload
    def watch(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        initial_state: bool = False,
        resource_version: str | None = None,
        metadata_only: bool = False,
        fail_fast: bool = False,
        fields: Iterable[str],
    ) -> Watch[tuple[Any, ...]]: ...

    def watch(
        self,
        resource: str,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        initial_state: bool = False,
        resource_version: str | None = None,
        metadata_only: bool = False,
        fail_fast: bool = False,
        fields: Iterable[str] | None = None,
    ) -> Watch[Any]:
        """Watches a resource, for ``async for``: see :meth:`listwatch.Client.watch`."""
        events: Stream[Event[Any]] = cast("Any", self._client).watch(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            initial_state=initial_state,
            resource_version=resource_version,
            metadata_only=metadata_only,
            fail_fast=fail_fast,
            fields=fields,
        )
        return Watch(events)

    async def cache(
        self,
        resource: str,
        *,
        namespace: str | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
        metadata_only: bool = False,
        index: Mapping[str, str] | None = None,
        compressed: bool = False,
        budget: int | None = None,
        load: check.Path | None = None,
        fail_fast: bool = False,
    ) -> Cache:
        """Keeps a whole collection in memory: see :meth:`listwatch.Client.cache`."""
        started = self._client._cache(  # pyright: ignore[reportPrivateUsage]
            resource,
            namespace,
            label_selector,
            field_selector,
            metadata_only,
            index,
            compressed,
            budget,
            load,
            fail_fast,
        )
        return Cache(_Cache(await _result(started)))

    async def count(
        self,
        resource: str,
        *,
        namespace: str | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
    ) -> int:
        """Counts the objects of a resource: see :meth:`listwatch.Client.count`."""
        counted = self._client._count(  # pyright: ignore[reportPrivateUsage]
            resource, namespace, label_selector, field_selector
        )
        objects: int = (await _result(counted))["objects"]
        return objects

    async def resolve(self, resource: str) -> dict[str, Any]:
        """Returns the group, version, plural, kind and scope of a name: see :meth:`listwatch.Client.resolve`."""
        resolved = self._client._inner.resolve(check.text("resource", resource))  # pyright: ignore[reportPrivateUsage]
        return await _result(resolved)
