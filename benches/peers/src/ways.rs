//! The ways to list and to cache Pods that are compared.

/// A way to list Pods.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The name on the command line and in the results.
    pub id: &'static str,
    /// The name in tables and plots.
    pub name: &'static str,
    pub program: Program,
    /// The argument of the program.
    pub argument: &'static str,
    /// The line in the plots, which show only some of the ways.
    pub drawn: Option<Line>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Rust,
    Go,
    /// client-go, with the feature `WatchListClient` off.
    GoWithoutWatchList,
    /// kubectl itself, which prints names and speaks no protocol of ours.
    Kubectl,
    /// `python/client.py`.
    Python,
}

/// A line of a plot. Its colour stands for the library.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub color: (u8, u8, u8),
    pub dashed: bool,
}

impl Way {
    /// Returns true if the way counts as this crate's, and not as a peer's.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("listwatch")
    }

    /// Returns true if the peer does not read protobuf.
    pub fn needs_json(&self) -> bool {
        self.argument.starts_with("kube-") || matches!(self.program, Program::Kubectl | Program::Python)
    }
}

/// A way with an allocator.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub way: &'static Way,
    pub mimalloc: bool,
}

impl Variant {
    /// Returns all variants, in the order of the tables. With `mimalloc`, each way in Rust has a second variant.
    pub fn all(mimalloc: bool) -> impl Iterator<Item = Self> {
        let allocators = move |way: &Way| if mimalloc && way.program == Program::Rust { 2 } else { 1 };
        WAYS.iter()
            .flat_map(move |way| [false, true].into_iter().take(allocators(way)).map(|mimalloc| Self { way, mimalloc }))
    }

    /// Returns true if the way counts as this crate's, and not as a peer's.
    pub fn is_ours(self) -> bool {
        self.way.is_ours()
    }

    /// Returns true if the way keeps the Pods in a store, whose calls are measured.
    pub fn is_store(self) -> bool {
        GROUPS.iter().any(|group| group.work == Work::Store && group.ways.contains(&self.way.id))
    }

    /// Returns true if the plots show the variant. They show only the system's allocator.
    pub fn is_drawn(self) -> bool {
        self.way.drawn.is_some() && !self.mimalloc
    }

    pub fn id(self) -> String {
        let allocator = if self.mimalloc { "+mimalloc" } else { "" };
        format!("{}{allocator}", self.way.id)
    }

    pub fn name(self) -> String {
        let allocator = if self.mimalloc { ", mimalloc" } else { "" };
        format!("{}{allocator}", self.way.name)
    }
}

/// Ways that do the same work, and so share a table.
pub struct Group {
    pub title: &'static str,
    /// Their ids. The table has them in the order of [`WAYS`]; ratios are to its first row.
    pub ways: &'static [&'static str],
    pub work: Work,
    /// How the work differs between the ways.
    pub remark: &'static str,
}

/// What a way does with the Pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Drop,
    Keep,
    /// Keep them in a store, whose calls are measured.
    Store,
}

pub const GROUPS: &[Group] = &[
    Group {
        title: "Decode every Pod, keep none",
        ways: &["drop", "prost", "go-paged", "go-paged-json"],
        work: Work::Drop,
        remark: "client-go holds a page of Pods in memory at a time, the full buffer all Pods.",
    },
    Group {
        title: "Keep every Pod decoded",
        ways: &[
            "box",
            "json",
            "prost",
            "kube-list",
            "kube-reflector",
            "kube-reflector-streaming",
            "kube-reflector-modify",
            "go-list",
            "go-list-json",
            "go-informer",
            "go-informer-json",
            "go-informer-list",
            "go-informer-list-json",
        ],
        work: Work::Keep,
        remark: "Reflectors and informers also index the Pods by key; the other ways do not. Two rows keep the Pods \
                 without managedFields.",
    },
    Group {
        title: "Keep every Pod, in whatever form",
        ways: &[
            "bytes",
            "prost",
            "kube-list",
            "kube-reflector-streaming",
            "go-list",
            "go-informer",
            "go-informer-list",
        ],
        work: Work::Keep,
        remark: "listwatch keeps the encoded Pods and reads their keys from the bytes; decoding a Pod later is not \
                 included. The other rows repeat the table above.",
    },
    Group {
        title: "Keep the metadata of every Pod",
        ways: &["metadata", "kube-metadata", "go-metadata"],
        work: Work::Keep,
        remark: "",
    },
    Group {
        title: "Keep every Pod in a store",
        ways: &[
            "store-encoded",
            "store-compressed",
            "kube-reflector",
            "kube-reflector-streaming",
            "kube-reflector-modify",
            "go-informer",
            "go-informer-list",
        ],
        work: Work::Store,
        remark: "Reading from an encoded or compressed store uses the bytes, which a compressed store decompresses first, \
                 and does not decode the Pod. kube's store has no index except by key.",
    },
];

// These colours are distinct with any colour vision (Okabe and Ito).
const BLUE: (u8, u8, u8) = (0, 114, 178);
const SKY: (u8, u8, u8) = (86, 180, 233);
const GREEN: (u8, u8, u8) = (0, 158, 115);
const VERMILION: (u8, u8, u8) = (213, 94, 0);
const ORANGE: (u8, u8, u8) = (230, 159, 0);
const PURPLE: (u8, u8, u8) = (204, 121, 167);

pub const WAYS: &[Way] = &[
    drawn(SKY, false, way("drop", "listwatch, decode and drop", Program::Rust, "drop")),
    drawn(BLUE, false, way("box", "listwatch, `Box<Pod>`", Program::Rust, "box")),
    way("json", "listwatch, `Json<Pod>`, JSON", Program::Rust, "json"),
    drawn(BLUE, true, way("bytes", "listwatch, `Box<[u8]>`", Program::Rust, "bytes")),
    way("metadata", "listwatch, metadata only", Program::Rust, "metadata"),
    way("store-encoded", "listwatch, store, encoded", Program::Rust, "store-encoded"),
    way("store-compressed", "listwatch, store, compressed", Program::Rust, "store-compressed"),
    drawn(PURPLE, false, way("prost", "reqwest and prost, full buffer", Program::Rust, "prost")),
    drawn(GREEN, false, way("kube-list", "kube, `Api::list`, JSON", Program::Rust, "kube-list")),
    drawn(GREEN, true, way("kube-reflector", "kube, reflector, JSON", Program::Rust, "kube-reflector")),
    way(
        "kube-reflector-streaming",
        "kube, reflector with streaming lists, JSON",
        Program::Rust,
        "kube-reflector-streaming",
    ),
    way(
        "kube-reflector-modify",
        "kube, reflector with streaming lists, `.modify()` removes managedFields, JSON",
        Program::Rust,
        "kube-reflector-modify",
    ),
    way("kube-metadata", "kube, `Api::list_metadata`, JSON", Program::Rust, "kube-metadata"),
    drawn(VERMILION, false, way("go-list", "client-go, List", Program::Go, "list")),
    way("go-list-json", "client-go, List, JSON", Program::Go, "list-json"),
    drawn(ORANGE, false, way("go-paged", "client-go, List in pages of 500", Program::Go, "paged")),
    way("go-paged-json", "client-go, List in pages of 500, JSON", Program::Go, "paged-json"),
    way("go-metadata", "client-go, metadata List", Program::Go, "metadata"),
    drawn(VERMILION, true, way("go-informer", "client-go, informer", Program::Go, "informer")),
    way("go-informer-json", "client-go, informer, JSON", Program::Go, "informer-json"),
    way("go-informer-list", "client-go, informer, no WatchList", Program::GoWithoutWatchList, "informer"),
    way(
        "go-informer-list-json",
        "client-go, informer, no WatchList, JSON",
        Program::GoWithoutWatchList,
        "informer-json",
    ),
];

/// The table of README.md: lists and caches of diverse Pods.
pub const DIVERSE: &[Way] = &[
    drawn(SKY, false, way("drop", "listwatch, decode and drop", Program::Rust, "drop")),
    way("go-paged", "client-go, List in pages of 500", Program::Go, "paged"),
    way("kubectl", "kubectl, `get pods -A -o name`", Program::Kubectl, ""),
    way("box", "listwatch, list, decoded", Program::Rust, "box"),
    way("go-list", "client-go, List", Program::Go, "list"),
    way("kube-list", "kube, `Api::list`, JSON", Program::Rust, "kube-list"),
    drawn(PURPLE, false, way("python", "Python, `list_pod_for_all_namespaces`, JSON", Program::Python, "")),
    drawn(BLUE, true, way("encoded", "listwatch, cache, encoded", Program::Rust, "cache-encoded")),
    drawn(BLUE, false, way("compressed", "listwatch, cache, compressed", Program::Rust, "cache-compressed")),
    drawn(VERMILION, false, way("go-informer", "client-go, informer", Program::Go, "informer")),
    drawn(VERMILION, true, way("go-slim", "client-go, informer with `SetTransform`", Program::Go, "informer-slim")),
    drawn(
        GREEN,
        false,
        way("kube", "kube, reflector with streaming lists, JSON", Program::Rust, "kube-reflector-streaming"),
    ),
    drawn(
        GREEN,
        true,
        way("kube-slim", "kube, reflector of a small struct, JSON", Program::Rust, "kube-reflector-slim"),
    ),
];

/// Caches that follow a collection. `src/follower.rs` and `clientgo/follow.go` implement them.
pub const FOLLOWERS: &[Way] = &[
    way("compressed", "listwatch, reflector, compressed", Program::Rust, "compressed"),
    way("encoded", "listwatch, reflector, encoded", Program::Rust, "encoded"),
    way(
        "compressed-bytes",
        "listwatch, reflector, compressed, a handler that reads bytes",
        Program::Rust,
        "compressed-bytes",
    ),
    way("encoded-bytes", "listwatch, reflector, encoded, a handler that reads bytes", Program::Rust, "encoded-bytes"),
    way("kube", "kube, reflector, JSON", Program::Rust, "kube"),
    way("kube-streaming", "kube, reflector with streaming lists, JSON", Program::Rust, "kube-streaming"),
    way("go", "client-go, informer", Program::Go, "follow"),
    way("go-list", "client-go, informer, no WatchList", Program::GoWithoutWatchList, "follow"),
    way("controller", "listwatch, Controller, compressed", Program::Rust, "controller"),
    way("kube-controller", "kube, Controller with streaming lists, JSON", Program::Rust, "kube-controller"),
];

/// Caches that relist a collection.
pub const RELISTERS: &[Way] = &[
    way("compressed", "listwatch, reflector, compressed", Program::Rust, "compressed"),
    way("compressed-list", "listwatch, reflector, compressed, no WatchList", Program::Rust, "compressed-list"),
    way("encoded", "listwatch, reflector, encoded", Program::Rust, "encoded"),
    way("go", "client-go, informer", Program::Go, "follow"),
    way("go-list", "client-go, informer, no WatchList", Program::GoWithoutWatchList, "follow"),
];

/// Lists and caches of custom resources. `src/custom_client.rs` and `clientgo/custom.go` implement them.
pub const CUSTOM: &[Way] = &[
    way("encoded", "listwatch, reflector, encoded", Program::Rust, "custom-encoded"),
    way("compressed", "listwatch, reflector, compressed", Program::Rust, "custom-compressed"),
    way("kube-typed", "kube, reflector with streaming lists, typed", Program::Rust, "custom-kube-typed"),
    way("kube-typed-list", "kube, reflector, typed", Program::Rust, "custom-kube-typed-list"),
    way(
        "kube-slim",
        "kube, reflector with streaming lists, few fields, no managedFields",
        Program::Rust,
        "custom-kube-slim",
    ),
    way("kube-dynamic", "kube, reflector with streaming lists, `DynamicObject`", Program::Rust, "custom-kube-dynamic"),
    way("go-typed", "client-go, informer, typed", Program::Go, "custom-typed"),
    way("go-typed-list", "client-go, informer, typed, no WatchList", Program::GoWithoutWatchList, "custom-typed"),
    way("go-dynamic", "client-go, dynamic informer", Program::Go, "custom-dynamic"),
    way("go-dynamic-list", "client-go, dynamic informer, no WatchList", Program::GoWithoutWatchList, "custom-dynamic"),
    way("list", "listwatch, list, `Json<T>`, kept in a `Vec`", Program::Rust, "custom-list"),
    way("list-slim", "listwatch, list, `Json<T>` of few fields, kept in a `Vec`", Program::Rust, "custom-list-slim"),
    way("kube-list", "kube, `Api::list`, typed", Program::Rust, "custom-kube-list"),
];

/// Caches that follow custom resources.
pub const CUSTOM_FOLLOWERS: &[Way] = &[
    way("encoded", "listwatch, encoded, a handler that reads bytes", Program::Rust, "custom-encoded"),
    way("compressed", "listwatch, compressed, a handler that reads bytes", Program::Rust, "custom-compressed"),
    way(
        "encoded-caller",
        "listwatch, encoded, a handler that reads bytes, `on_caller_runtime`",
        Program::Rust,
        "custom-encoded-caller",
    ),
    way(
        "compressed-caller",
        "listwatch, compressed, a handler that reads bytes, `on_caller_runtime`",
        Program::Rust,
        "custom-compressed-caller",
    ),
    way("encoded-typed", "listwatch, encoded, a handler that decodes `Json<T>`", Program::Rust, "custom-encoded-typed"),
    way(
        "compressed-typed",
        "listwatch, compressed, a handler that decodes `Json<T>`",
        Program::Rust,
        "custom-compressed-typed",
    ),
    way("kube-typed", "kube, reflector with streaming lists, typed", Program::Rust, "custom-kube-typed"),
    way(
        "kube-slim",
        "kube, reflector with streaming lists, few fields, no managedFields",
        Program::Rust,
        "custom-kube-slim",
    ),
    way("kube-dynamic", "kube, reflector with streaming lists, `DynamicObject`", Program::Rust, "custom-kube-dynamic"),
    way("go-typed", "client-go, informer, typed", Program::Go, "custom-follow-typed"),
    way("go-dynamic", "client-go, dynamic informer", Program::Go, "custom-follow-dynamic"),
];

const fn way(id: &'static str, name: &'static str, program: Program, argument: &'static str) -> Way {
    Way { id, name, program, argument, drawn: None }
}

const fn drawn(color: (u8, u8, u8), dashed: bool, way: Way) -> Way {
    Way { drawn: Some(Line { color, dashed }), ..way }
}
