//! Reads of the JSON form of an object off its bytes, whatever its encoding.

use std::borrow::Cow;

use crate::encoding::item_ref::ItemRef;
use crate::encoding::json::value as json;
use crate::encoding::protobuf::value as protobuf;
use crate::encoding::value::PlaceForm;
pub use crate::encoding::value::{Array, Key, Object, Place, Value};
use crate::encoding::with_codec;
use crate::error::{Fault, ItemError};
use crate::meta::TypeMeta;

impl<'a> ItemRef<'a> {
    /// Returns the item as its JSON form, of which nothing has been read yet.
    ///
    /// Members have the names and values that [`to_json`](Self::to_json) writes, with `kind` and `apiVersion`. A read
    /// walks only the object or list that it asks, and skips what is nested in it by lengths or brackets. So it checks
    /// neither the rest of the item nor, in JSON, the syntax of what it skips.
    ///
    /// ```
    /// use listwatch::value::Value;
    /// use listwatch::{ItemError, ListReader};
    ///
    /// # let body = &include_bytes!("../../fixtures/pods-page-3.pb")[..];
    /// let nodes = ListReader::with(body, |pod| {
    ///     let spec = pod.json_form()?.get("spec");
    ///     Ok::<_, ItemError>(match spec {
    ///         Ok(Some(Value::Object(spec))) => spec.get("nodeName").ok().flatten().map(|name| format!("{name:?}")),
    ///         _ => None,
    ///     })
    /// });
    /// # assert!(nodes.flatten().flatten().count() > 0);
    /// ```
    ///
    /// # Errors
    ///
    /// [`ItemError::UnknownKind`] for an item in protobuf whose kind the [table of fields](crate::schema) does not
    /// have. [`ItemError::Metadata`] for JSON that is no object.
    pub fn json_form(&self) -> Result<Object<'a>, ItemError> {
        let place = with_codec!(self.encoding, C => C::json_form(self))?;
        Ok(Object { root: self.bytes, place, type_meta: Some(self.type_meta) })
    }
}

impl<'a> Object<'a> {
    /// Returns the object at this place, which must be of an object in the same bytes. A place of other bytes reads
    /// garbage or an error.
    #[must_use]
    pub fn at(root: &'a [u8], place: Place) -> Self {
        Self { root, place, type_meta: None }
    }

    /// Returns where it is in the bytes of its item. The place of an item itself has neither `kind` nor `apiVersion`.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns its text, if it is JSON. The text may lack the `kind` and `apiVersion` of the item.
    #[must_use]
    pub fn as_json(&self) -> Option<&'a [u8]> {
        self.place.json(self.root)
    }

    /// Returns the member of this name; `None` if the JSON form does not have it.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the object or the value of the member is malformed, or the value has no JSON form.
    pub fn get(&self, name: &str) -> Result<Option<Value<'a>>, Fault> {
        let own = match self.place.form {
            PlaceForm::Message(message) => protobuf::member(self.root, message, &self.place.pieces, name)?,
            PlaceForm::Map(field) => match protobuf::find_entry(self.root, field, &self.place.pieces, name)? {
                Some(entry) => Some(protobuf::entry_value(self.root, field, entry)?),
                None => None,
            },
            PlaceForm::Json => match json::member(self.json(), name)? {
                Some(text) => Some(json::value(self.root, text)?),
                None => None,
            },
            PlaceForm::Repeated(_) => None,
        };
        Ok(match self.type_text(name) {
            Some(text) if is_unset(own.as_ref()) => Some(Value::String(Cow::Borrowed(text))),
            _ => own,
        })
    }

    /// Calls `each` with every member, in the order of [`to_json`](ItemRef::to_json), and stops at the first error.
    ///
    /// # Errors
    ///
    /// An error of `each`, or the [`Fault`] of a malformed object or value.
    pub fn try_for_each<E: From<Fault>>(
        &self,
        mut each: impl FnMut(Key<'a>, Value<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (root, pieces) = (self.root, &self.place.pieces);
        let members = match self.place.form {
            PlaceForm::Json => json::members(self.json())?,
            PlaceForm::Message(_) | PlaceForm::Map(_) | PlaceForm::Repeated(_) => Vec::new(),
        };
        for name in ["kind", "apiVersion"] {
            let is_own = members.iter().any(|(own, _)| own == name);
            if let Some(text) = self.type_text(name).filter(|_| !is_own) {
                each(Key::Field(name), Value::String(Cow::Borrowed(text)))?;
            }
        }
        for (name, text) in members {
            let own = json::value(root, text)?;
            let value = match self.type_text(&name) {
                Some(text) if is_unset(Some(&own)) => Value::String(Cow::Borrowed(text)),
                _ => own,
            };
            each(Key::Text(name), value)?;
        }
        match self.place.form {
            PlaceForm::Message(message) => protobuf::visit(root, message, pieces, &mut each),
            PlaceForm::Map(field) => protobuf::entries(root, field, pieces, |key, entry| {
                each(key, protobuf::entry_value(root, field, entry)?)
            }),
            PlaceForm::Json | PlaceForm::Repeated(_) => Ok(()),
        }
    }

    /// Counts its members.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the object is malformed.
    pub fn len(&self) -> Result<usize, Fault> {
        let mut count = 0;
        self.try_for_each(|_, _| {
            count += 1;
            Ok::<_, Fault>(())
        })?;
        Ok(count)
    }

    /// Returns true if it has no members.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, Fault> {
        self.len().map(|len| len == 0)
    }

    fn json(&self) -> &'a [u8] {
        self.as_json().unwrap_or_default()
    }

    fn type_text(&self, name: &str) -> Option<&'a str> {
        let TypeMeta { api_version, .. } = self.type_meta?;
        let text = match name {
            "kind" => self.type_meta?.item_kind(),
            "apiVersion" => api_version,
            _ => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

/// Returns true for an absent, empty or null `kind`, in whose place JSON has the list's.
fn is_unset(own: Option<&Value<'_>>) -> bool {
    match own {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

impl<'a> Array<'a> {
    /// As [`Object::at`], for the place of a list.
    #[must_use]
    pub fn at(root: &'a [u8], place: Place) -> Self {
        Self { root, place }
    }

    /// Returns where it is in the bytes of its item.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns its text, if it is JSON.
    #[must_use]
    pub fn as_json(&self) -> Option<&'a [u8]> {
        self.place.json(self.root)
    }

    /// Returns an element; `None` beyond the last. It walks over the elements before.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the list is malformed up to this element, or an element up to it has no JSON form.
    pub fn get(&self, index: usize) -> Result<Option<Value<'a>>, Fault> {
        let (mut at, mut found) = (0, None);
        let stopped = self.try_for_each(|value| {
            if at == index {
                found = Some(value);
                return Err(None);
            }
            at += 1;
            Ok::<_, Option<Fault>>(())
        });
        match stopped {
            Err(Some(fault)) => Err(fault),
            Err(None) | Ok(()) => Ok(found),
        }
    }

    /// Calls `each` with every element, and stops at the first error.
    ///
    /// # Errors
    ///
    /// An error of `each`, or the [`Fault`] of a malformed list or element.
    pub fn try_for_each<E: From<Fault>>(&self, mut each: impl FnMut(Value<'a>) -> Result<(), E>) -> Result<(), E> {
        match self.place.form {
            PlaceForm::Repeated(field) => protobuf::elements(self.root, field, &self.place.pieces, each),
            PlaceForm::Json => {
                json::elements(self.as_json().unwrap_or_default(), |text| each(json::value(self.root, text)?))
            }
            PlaceForm::Message(_) | PlaceForm::Map(_) => Ok(()),
        }
    }

    /// Counts its elements.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the list is malformed.
    pub fn len(&self) -> Result<usize, Fault> {
        let mut count = 0;
        self.try_for_each(|_| {
            count += 1;
            Ok::<_, Fault>(())
        })?;
        Ok(count)
    }

    /// Returns true if it has no elements.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, Fault> {
        self.get(0).map(|first| first.is_none())
    }
}

impl Place {
    fn json<'a>(&self, root: &'a [u8]) -> Option<&'a [u8]> {
        match self.form {
            PlaceForm::Json => self.pieces.slices(root).next(),
            PlaceForm::Message(_) | PlaceForm::Map(_) | PlaceForm::Repeated(_) => None,
        }
    }
}
