//! One value with a type for each encoding.

use std::borrow::Cow;

use super::body_state::{BodyState, FoundEvent};
use super::codec::{ListBody, Metadata, Value, Values, WatchBody};
use super::frame::{FoundFrame, Frame};
use super::meta_parts::{ManagedFieldsEntry, OwnerReference, Time};
use crate::error::{DecodeError, DecodeErrorKind, Fault};
use crate::wire::{Encoding, FieldFault};

/// A value of one of the types that the encodings have for the same thing, such as metadata or the body of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByEncoding<P, J> {
    Protobuf(P),
    Json(J),
}

/// Evaluates an expression for the value, whatever its encoding.
macro_rules! each {
    ($value:expr, $each:ident => $result:expr) => {
        match $value {
            ByEncoding::Protobuf($each) => $result,
            ByEncoding::Json($each) => $result,
        }
    };
}

/// Like [`each`], but wraps the result again.
macro_rules! map {
    ($value:expr, $each:ident => $result:expr) => {
        match $value {
            ByEncoding::Protobuf($each) => ByEncoding::Protobuf($result),
            ByEncoding::Json($each) => ByEncoding::Json($result),
        }
    };
}

impl<P, J> ByEncoding<P, J> {
    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Protobuf(_) => Encoding::Protobuf,
            Self::Json(_) => Encoding::Json,
        }
    }
}

impl<P: Default, J> Default for ByEncoding<P, J> {
    fn default() -> Self {
        Self::Protobuf(P::default())
    }
}

impl<T, P: Iterator<Item = T>, J: Iterator<Item = T>> Iterator for ByEncoding<P, J> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        each!(self, values => values.next())
    }
}

impl<'a, P: Metadata<'a>, J: Metadata<'a>> Metadata<'a> for ByEncoding<P, J> {
    fn creation_timestamp(self) -> Result<Option<Time>, Fault> {
        each!(self, meta => meta.creation_timestamp())
    }

    fn deletion_timestamp(self) -> Result<Option<Time>, Fault> {
        each!(self, meta => meta.deletion_timestamp())
    }

    fn labels(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        Ok(map!(self, meta => meta.labels()?))
    }

    fn label(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        each!(self, meta => meta.label(key))
    }

    fn annotations(self) -> Result<impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>, Fault> {
        Ok(map!(self, meta => meta.annotations()?))
    }

    fn annotation(self, key: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        each!(self, meta => meta.annotation(key))
    }

    fn owner_references(self) -> Result<impl Iterator<Item = OwnerReference<'a>>, Fault> {
        Ok(map!(self, meta => meta.owner_references()?))
    }

    fn finalizers(self) -> Result<impl Iterator<Item = Cow<'a, str>>, Fault> {
        Ok(map!(self, meta => meta.finalizers()?))
    }

    fn managed_fields(self) -> Result<impl Iterator<Item = ManagedFieldsEntry<'a>>, Fault> {
        Ok(map!(self, meta => meta.managed_fields()?))
    }
}

impl<'a, P: Values<'a>, J: Values<'a>> Values<'a> for ByEncoding<P, J> {
    type Value = ByEncoding<P::Value, J::Value>;

    fn next(&mut self) -> Option<Result<Self::Value, Fault>> {
        Some(Ok(map!(self, values => match values.next()? {
            Ok(value) => value,
            Err(fault) => return Some(Err(fault)),
        })))
    }
}

impl<'a, P: Value<'a>, J: Value<'a>> Value<'a> for ByEncoding<P, J> {
    fn to_str(self) -> Result<Cow<'a, str>, Fault> {
        each!(self, value => value.to_str())
    }

    fn to_bytes(self) -> Result<&'a [u8], Fault> {
        each!(self, value => value.to_bytes())
    }

    fn to_int(self) -> Result<i64, Fault> {
        each!(self, value => value.to_int())
    }

    fn to_text(self, is_bool: bool) -> Result<Cow<'a, str>, Fault> {
        each!(self, value => value.to_text(is_bool))
    }
}

impl<P: ListBody, J: ListBody> ListBody for ByEncoding<P, J> {
    #[inline]
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<FoundEvent<'i>>, DecodeError> {
        each!(self, body => body.advance(input))
    }

    fn is_complete(&self) -> bool {
        each!(self, body => body.is_complete())
    }

    fn unfinished_item(&self) -> Option<u64> {
        each!(self, body => body.unfinished_item())
    }

    fn expected_bytes(&self) -> Option<u64> {
        each!(self, body => body.expected_bytes())
    }

    #[inline]
    fn list(&self) -> &BodyState {
        each!(self, body => body.list())
    }

    #[inline]
    fn list_mut(&mut self) -> &mut BodyState {
        each!(self, body => body.list_mut())
    }
}

impl<P: WatchBody, J: WatchBody> WatchBody for ByEncoding<P, J> {
    #[inline]
    fn step<'i>(
        &mut self,
        watch: &mut BodyState,
        input: &mut &'i [u8],
    ) -> Result<Option<FoundFrame<'i>>, DecodeErrorKind> {
        each!(self, body => body.step(watch, input))
    }

    fn is_between_frames(&self) -> bool {
        each!(self, body => body.is_between_frames())
    }

    #[inline]
    fn read<'f>(&'f self, bytes: &'f [u8], frame: &mut Frame<'f>) -> Result<(), FieldFault> {
        each!(self, body => body.read(bytes, frame))
    }
}
