//! The entries of the table of fields.

/// A message of protobuf: a kind of object, or a part of an object.
///
/// ```
/// use listwatch::schema::Message;
///
/// let pod = Message::of("v1", "Pod").ok_or("no such kind")?;
/// let path = pod.path("spec.nodeName").ok_or("no such field")?;
/// assert_eq!(path.iter().map(|field| field.number()).collect::<Vec<_>>(), [2, 10]);
/// assert_eq!(pod.names(&[2, 10]).as_deref(), Some("spec.nodeName"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Message {
    pub(super) name: Name,
    pub(super) form: Form,
    /// The place of its first field in the table.
    pub(super) first: u16,
    /// The number of its fields, which have the order of JSON.
    pub(super) fields: u8,
}

/// A field of a [`Message`].
#[derive(Debug)]
pub struct Field {
    pub(super) number: u16,
    /// Empty for a message that JSON inlines into its parent.
    pub(super) name: Name,
    pub(super) omit: Omit,
    pub(super) shape: Shape,
    pub(super) of: Type,
}

/// A kind of object in an `apiVersion`, with its message.
pub(super) struct Kind {
    pub(super) api_version: Name,
    /// Its place in the table.
    pub(super) message: u16,
}

/// A part of the text of all names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) at: u16,
    pub(super) len: u8,
}

/// The JSON form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An object of its fields.
    Object,
    /// The first field alone: a list in a map, which protobuf wraps in a message.
    Items,
    /// The second field, or the first if the second is absent.
    Or,
    /// The JSON text that its one field holds.
    Raw,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
}

/// The condition under which JSON omits a field, by the options of Go's struct tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// `omitempty`
    Empty,
    /// `omitzero`, which the table has only for times.
    Zero,
    /// If protobuf does not have it either: Go always writes the field, but not all releases have it.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    /// Present or absent, whatever its value.
    Optional,
    Repeated,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// Its place in the table.
    Message(u16),
}
