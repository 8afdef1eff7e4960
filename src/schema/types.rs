//! The entries of the table of fields.

/// A protobuf message: a kind of object, or a part of an object.
///
/// Versions of an API whose messages are equal share them.
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
    pub(crate) name: Name,
    pub(crate) form: Form,
    /// The place of the first field in the table.
    pub(crate) first: u16,
    /// The number of fields, which are in the order of JSON.
    pub(crate) fields: u8,
}

/// A field of a [`Message`].
#[derive(Debug)]
pub struct Field {
    pub(crate) number: u16,
    /// Empty for a message that JSON inlines into its parent.
    pub(crate) name: Name,
    pub(crate) omit: Omit,
    pub(crate) shape: Shape,
    pub(crate) of: Type,
}

/// A kind of object in an `apiVersion`, with its message.
pub(crate) struct Kind {
    pub(crate) api_version: Name,
    /// The place of the message in the table.
    pub(crate) message: u16,
}

/// A part of the text of all names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) at: u16,
    pub(crate) len: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An object of its fields.
    Object,
    /// The first field alone: a list in a map, which protobuf wraps in a message.
    Items,
    /// The second field, or the first if the second is absent.
    Or,
    /// The JSON text in its only field.
    Raw,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
}

/// The condition under which JSON omits a field, by the options of Go's struct tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Omit {
    Never,
    /// `omitempty`
    Empty,
    /// `omitzero`, which the table has only for times.
    Zero,
    /// Omitted if protobuf does not contain it either: Go always writes the field, but not all releases know it.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    /// Present or absent, whatever its value.
    Optional,
    Repeated,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// The place of the message in the table.
    Message(u16),
}
