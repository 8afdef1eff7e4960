//! The columns of `-o custom-columns`.

use listwatch::ItemError;
use listwatch_tables::json_path::{JsonPath, print};
use serde_json::Value;

use crate::escape::escape_controls;

/// Columns, each with the path of its values.
#[derive(Clone, PartialEq)]
pub struct CustomColumns(Vec<(String, JsonPath)>);

impl CustomColumns {
    /// Parses `NAME:.metadata.name,NODE:.spec.nodeName`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let column = |column: &str| {
            let (header, path) =
                column.split_once(':').ok_or_else(|| format!("{column:?} is no column: expected HEADER:PATH"))?;
            parse_column(header, path)
        };
        text.split(',').map(column).collect::<Result<_, _>>().map(Self)
    }

    /// Parses a line of headers, and a line of as many paths.
    pub fn parse_file(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (headers, paths) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        if headers.is_empty() || headers.len() != paths.len() {
            return Err(format!("expected a header for each path: {} headers, {} paths", headers.len(), paths.len()));
        }
        headers.iter().zip(paths).map(|(header, path)| parse_column(header, path)).collect::<Result<_, _>>().map(Self)
    }

    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(header, _)| &**header)
    }

    /// Returns the cells of an object. As in kubectl, several values are separated by commas.
    ///
    /// # Errors
    ///
    /// A path does not fit the object.
    pub fn cells(&self, object: &Value) -> Result<Vec<String>, ItemError> {
        let cell = |(header, path): &(String, JsonPath)| {
            let found = path.find(object).map_err(|error| ItemError::other(format!("column {header:?}: {error}")))?;
            let texts = found.into_iter().map(|value| {
                let mut text = Vec::new();
                print(value, &mut text);
                escape_controls(&String::from_utf8_lossy(&text)).into_owned()
            });
            let texts: Vec<_> = texts.collect();
            Ok(if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") })
        };
        self.0.iter().map(cell).collect()
    }
}

fn parse_column(header: &str, path: &str) -> Result<(String, JsonPath), String> {
    let parsed = JsonPath::parse(path).map_err(|error| format!("column {header:?}: {error}"))?;
    Ok((header.to_owned(), parsed))
}
