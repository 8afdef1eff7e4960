"""The client of an API server, for threads."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from . import _arguments as check
from . import _logs
from ._cache import Cache
from ._errors import ConfigError, Error, InputError
from ._listwatch import Cache as _RawCache
from ._listwatch import Client as _RawClient
from ._listwatch import Columns, Event, Object, Stream
from ._quantity import quantity

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class _Open(Stream[T]):
    """An iterator over what a request delivers, which a ``with`` block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class List(_Open[T]):
    """The items of a list, while they arrive.

    It either delivers the whole collection, or raises an error with the number of items that it delivered. A ``with``
    block, ``close()`` and the end of its last reference end the request.
    """

    _names: builtins.list[str] | None = None

    def columns(self, *, quantities: Iterable[str] = ()) -> Columns:
        """Reads the rest of a list with ``fields``, and returns its values as columns.

        pandas, polars and pyarrow take them by the Arrow PyCapsule interface, without a copy. The names are the keys of
        a dict of ``fields``, else the paths. Texts and timestamps are text, several values are a list, and a column of
        mappings or of different types is text in JSON. Only the columns are in memory, not the objects.

        :param quantities: names of columns of quantities, which become numbers: ``250m`` is 0.25 and ``64Mi`` 67108864

        >>> fields = {"node": "spec.nodeName", "cpu": "spec.containers[*].resources.requests.cpu"}
        >>> columns = client.list("pods", fields=fields).columns(quantities=["cpu"])
        >>> columns.names
        ['node', 'cpu']

        Then ``polars.DataFrame(columns)``, ``pyarrow.table(columns)`` or ``pandas.DataFrame.from_arrow(columns)``.
        """
        if self._names is None:
            raise TypeError("columns() needs a list with fields=")
        wanted = check.texts("quantities", quantities, "names of columns")
        for name in wanted:
            if name not in self._names:
                raise InputError(f"quantities names {name!r}, which is no column")
        return self._columns(self._names, wanted, quantity)

    @property
    def meta(self) -> dict[str, Any]:
        """What is known of the list after its last item: ``resource_version``, ``items``, ``pages``, ``bytes``, ….

        Raises :class:`listwatch.Error` before the end.
        """
        summary = self.summary()
        if summary is None:
            raise Error("the list has no metadata before its end: read all its items first")
        return summary


class Watch(_Open[Event[T]], Generic[T]):
    """The events of a watch, which resumes by itself. A ``with`` block or ``close()`` ends it."""


class Client:
    """A client of one API server.

    Without arguments it is the server that kubectl uses: the current context of the kubeconfig, or inside of a Pod the
    cluster of the Pod and its service account.

    :param kubeconfig: the file; by default those in ``KUBECONFIG``, else ``~/.kube/config``
    :param context: the context of the kubeconfig; by default the current one
    :param server: the URL of the server, in place of the kubeconfig's. Together with ``token`` or ``ca``, and without
        ``kubeconfig`` and ``context``, no kubeconfig is read.
    :param token: a bearer token
    :param ca: a file of certificate authorities, in place of others
    :param impersonate: a user, or a tuple of a user and its groups
    :param proxy: the URL of an HTTP, HTTPS or SOCKS5 proxy

    Threads may share a client. After a fork it makes connections of its own; lists, watches and caches that were open
    raise :class:`listwatch.ForkError` there.

    >>> client = Client()
    >>> [node.name for node in client.list("nodes")]
    ['node-1', 'node-2']
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
        is_standalone = server is not None and kubeconfig is None and context is None
        self._inner = _connect(
            kubeconfig=check.path("kubeconfig", kubeconfig),
            context=check.optional_text("context", context),
            server=check.optional_text("server", server),
            standalone=is_standalone and (token is not None or ca is not None),
            token=check.optional_text("token", token),
            ca=check.path("ca", ca),
            impersonate=_impersonated(impersonate),
            proxy=check.optional_text("proxy", proxy),
        )

    @classmethod
    def from_configuration(cls, configuration: Any) -> Self:
        """Creates a client with the settings of a ``kubernetes.client.Configuration``.

        It takes over the host, the bearer token, the certificate authority, the client certificate, the proxy, and
        whether the server's certificate is verified. A token that the configuration refreshes is read once.
        """
        host = getattr(configuration, "host", None)
        if not isinstance(host, str):
            raise TypeError(
                f"configuration must be a kubernetes.client.Configuration, not {type(configuration).__name__}"
            )
        certificate = getattr(configuration, "cert_file", None)
        key = getattr(configuration, "key_file", None)
        client = cls.__new__(cls)
        client._inner = _connect(
            server=host,
            standalone=True,
            token=_token_of(configuration),
            ca=check.path("ssl_ca_cert", getattr(configuration, "ssl_ca_cert", None)),
            certificate=(os.fspath(certificate), os.fspath(key)) if certificate and key else None,
            insecure=getattr(configuration, "verify_ssl", True) is False,
            tls_server_name=getattr(configuration, "tls_server_name", None),
            proxy=getattr(configuration, "proxy", None),
        )
        return client

    @property
    def server(self) -> str:
        """The URL of the server."""
        return self._inner.server

    @property
    def default_namespace(self) -> str:
        """The namespace of the context, ``default`` unless it names one."""
        return self._inner.default_namespace

    def __repr__(self) -> str:
        return f"<listwatch.Client of {self.server}>"

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
        """Lists a resource in constant memory: an iterator over its objects, while they arrive.

        :param resource: any name that kubectl accepts: ``pods``, ``deploy``, ``certificates.cert-manager.io``
        :param namespace: a namespace, or several; all unless set
        :param label_selector: ``app=web,tier!=db``, or a dict of labels and values
        :param field_selector: ``spec.nodeName=node-1``, or a dict
        :param page_size: requests pages of this many objects, for collections that the server cannot send at once
        :param limit: ends the list after this many objects; ``meta["continue_token"]`` then leads to the rest
        :param continue_token: continues a list that ``limit`` ended
        :param resource_version: ``"0"`` accepts a list of any age from the server's memory, another version a list
            that is not older; by default the list has everything that was written before
        :param metadata_only: requests only the metadata of the objects
        :param timeout: the seconds after which the whole list fails
        :param fields: paths of fields; the items are then tuples of their values, and nothing else is decoded:
            ``["metadata.name", "spec.containers[*].image", "metadata.labels['app']"]``. A field that an object does
            not have is ``None``. A dict gives the paths names for :meth:`List.columns`.

        An error raises when the iterator reaches it, with the number of delivered items, so a list never ends early
        without one. :class:`ExpiredError` means that a page has expired: list again.

        >>> for pod in client.list("pods", label_selector={"app": "web"}):
        ...     print(pod.name, pod["status"]["phase"])
        >>> with client.list("pods", fields=["metadata.name", "spec.nodeName"]) as rows:
        ...     on_nodes = dict(rows)
        >>> rows.meta["resource_version"]
        '48213'
        """
        selected_fields = check.fields(fields)
        found: List[Any] = List(
            self._inner.list(
                check.text("resource", resource),
                check.selected(namespace, label_selector, field_selector, metadata_only),
                check.optional_number("page_size", page_size, least=1, most=2**32 - 1),
                check.optional_number("limit", limit, least=1),
                check.optional_text("continue_token", continue_token),
                check.optional_text("resource_version", resource_version),
                check.seconds("timeout", timeout),
                selected_fields and selected_fields[1],
            )
        )
        found._names = selected_fields and selected_fields[0]  # pyright: ignore[reportPrivateUsage]
        return found

    def get(
        self,
        resource: str,
        name: str,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Gets one object, from the namespace of the context unless another is named.

        :param resource_version: the object must not be older than this version

        Raises :class:`ApiError` with the status 404 if it does not exist.

        >>> client.get("pods", "web-1", namespace="default").labels
        {'app': 'web'}
        """
        return _result(self._get(resource, name, namespace, metadata_only, resource_version, timeout))

    def _get(
        self,
        resource: str,
        name: str,
        namespace: str | None,
        metadata_only: bool,
        resource_version: str | None,
        timeout: float | None,
    ) -> Stream[Object]:
        return self._inner.get(
            check.text("resource", resource),
            check.text("name", name),
            check.optional_text("namespace", namespace),
            check.flag("metadata_only", metadata_only),
            check.optional_text("resource_version", resource_version),
            check.seconds("timeout", timeout),
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
        """Watches a resource: an iterator over its changes, which reconnects and resumes by itself.

        :param initial_state: first delivers all objects as ``ADDED``, then ``SYNCED``. If the server has forgotten the
            version in the meantime, the watch delivers ``RESET`` and all objects again.
        :param resource_version: delivers the changes after this version, such as that of a list. Without an initial
            state, :class:`ExpiredError` is raised if the server has forgotten the version.
        :param fail_fast: raises on 401, 403 and 404 instead of retrying

        The other parameters are those of :meth:`list`.

        >>> for event in client.watch("deployments.apps", initial_state=True):
        ...     print(event.type, event.object)
        ...     if event.type == "SYNCED":
        ...         break
        """
        selected_fields = check.fields(fields)
        return Watch(
            self._inner.watch(
                check.text("resource", resource),
                check.selected(namespace, label_selector, field_selector, metadata_only),
                check.flag("initial_state", initial_state),
                check.optional_text("resource_version", resource_version),
                initial_state,
                check.flag("fail_fast", fail_fast),
                selected_fields and selected_fields[1],
            )
        )

    def cache(
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
        """Keeps a whole collection in memory, which a watch keeps up to date.

        :param namespace: one namespace; all unless set. Several namespaces need a cache each, because each has its
            own resource version.
        :param index: names of indexes, and the paths of the fields by which they find objects
        :param compressed: keeps the objects compressed, which takes about a twentieth of the memory of Python objects
        :param budget: the most memory in bytes. Objects beyond it are skipped, and ``status()`` counts them.
        :param load: a file that :meth:`Cache.save` wrote, from which the cache resumes. A file that does not exist, or
            is of another cluster, is not used.
        :param fail_fast: ends the cache on 401, 403 and 404 instead of retrying

        >>> pods = client.cache("pods", index={"node": "spec.nodeName"}, compressed=True)
        >>> pods.wait(timeout=60)
        '48213'
        >>> pods.by("node", "node-1"), len(pods)
        """
        started = self._cache(
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
        return Cache(_result(started))

    def _cache(
        self,
        resource: str,
        namespace: str | None,
        label_selector: check.Selector | None,
        field_selector: check.Selector | None,
        metadata_only: bool,
        index: Mapping[str, str] | None,
        compressed: bool,
        budget: int | None,
        load: check.Path | None,
        fail_fast: bool,
    ) -> Stream[_RawCache]:
        paths: Mapping[object, object] = cast("Mapping[object, object]", {} if index is None else index)
        if not isinstance(paths, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise check.wrong("index", "a dict of names and paths", index)
        options = {
            "index": [(check.text("index", name), check.text("index", path)) for name, path in paths.items()],
            "compressed": check.flag("compressed", compressed),
            "budget": check.optional_number("budget", budget),
            "load": check.path("load", load),
            "fail_fast": check.flag("fail_fast", fail_fast),
        }
        selected = check.selected(check.optional_text("namespace", namespace), label_selector, field_selector, metadata_only)
        return self._inner.cache(check.text("resource", resource), selected, options)

    def count(
        self,
        resource: str,
        *,
        namespace: str | None = None,
        label_selector: check.Selector | None = None,
        field_selector: check.Selector | None = None,
    ) -> int:
        """Counts the objects of a resource, mostly without receiving them.

        >>> client.count("pods")
        14000
        """
        objects: int = _result(self._count(resource, namespace, label_selector, field_selector))["objects"]
        return objects

    def _count(
        self,
        resource: str,
        namespace: str | None,
        label_selector: check.Selector | None,
        field_selector: check.Selector | None,
    ) -> Stream[dict[str, Any]]:
        selected = check.selected(check.optional_text("namespace", namespace), label_selector, field_selector, False)
        return self._inner.count(check.text("resource", resource), selected)

    def resolve(self, resource: str) -> dict[str, Any]:
        """Returns the group, version, plural, kind and scope of a name, as kubectl finds them.

        >>> client.resolve("deploy")["group"]
        'apps'
        """
        return _result(self._inner.resolve(check.text("resource", resource)))


def _result(stream: Iterator[T]) -> T:
    """Waits for the one result of a call."""
    return next(stream)


def _connect(**settings: Any) -> _RawClient:
    known = dict.fromkeys(
        (
            "kubeconfig",
            "context",
            "server",
            "token",
            "token_file",
            "ca",
            "ca_pem",
            "certificate",
            "tls_server_name",
            "impersonate",
            "proxy",
            "user_agent",
        )
    )
    _logs.start()
    return _RawClient({**known, "standalone": False, "insecure": False, **settings})


def _impersonated(value: object) -> tuple[str, None, builtins.list[str]] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return check.text("impersonate", value), None, []
    if isinstance(value, tuple):
        found = cast("tuple[object, ...]", value)
        if len(found) == 2 and isinstance(found[0], str):
            return check.text("impersonate", found[0]), None, check.texts("impersonate", found[1])
    raise TypeError("impersonate must be a str, or a tuple of a str and an iterable of strings")


def _token_of(configuration: Any) -> str | None:
    refresh = getattr(configuration, "refresh_api_key_hook", None)
    if callable(refresh):
        refresh(configuration)
    keys: dict[str, str] = getattr(configuration, "api_key", None) or {}
    prefixes: dict[str, str] = getattr(configuration, "api_key_prefix", None) or {}
    found = keys.get("authorization") or keys.get("BearerToken")
    if not found:
        if getattr(configuration, "username", None):
            raise ConfigError("passwords of a kubernetes.client.Configuration are not supported: use a token")
        return None
    prefix = prefixes.get("authorization") or prefixes.get("BearerToken")
    if prefix in (None, "Bearer"):
        return found.removeprefix("Bearer ").strip()
    raise ConfigError("the authorization of the configuration is not a bearer token")
