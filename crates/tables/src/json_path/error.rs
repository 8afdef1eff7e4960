/// Why a template is invalid, or cannot be applied to a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .position.map(|at| format!(" at byte {at}")).unwrap_or_default())]
pub struct JsonPathError {
    message: String,
    position: Option<usize>,
}

impl JsonPathError {
    /// Returns the byte offset of a syntax error in the template; `None` when the template does not fit the value.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.position
    }

    pub(super) fn syntax(position: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), position: Some(position) }
    }

    /// Moves the position of an error in a part of the template, which begins at `by`.
    pub(super) fn shifted(self, by: usize) -> Self {
        Self { position: self.position.map(|position| position + by), ..self }
    }

    pub(super) fn value(message: impl Into<String>) -> Self {
        Self { message: message.into(), position: None }
    }
}
