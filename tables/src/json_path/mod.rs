//! JSONPath in the dialect of kubectl.
