//! The columns of `-o custom-columns=`.

use listwatch::ItemError;
use listwatch_tables::json_path::{JsonPath, print};
use serde_json::Value;

/// A column, with the path of its values.
pub struct CustomColumn {
    pub header: String,
    pub path: JsonPath,
}

impl CustomColumn {
    fn parse(header: &str, path: &str) -> Result<Self, String> {
        let path = JsonPath::parse(path).map_err(|error| format!("column {header:?}: {error}"))?;
        Ok(Self { header: header.to_owned(), path })
    }

    /// Returns the cell of an object, whose values `escape` makes safe. As in kubectl, commas separate several values.
    pub fn cell(&self, object: &Value, escape: impl Fn(&str) -> String) -> Result<String, ItemError> {
        let Self { header, path } = self;
        let found = path.find(object).map_err(|error| ItemError::other(format!("column {header:?}: {error}")))?;
        let texts = found.into_iter().map(|value| {
            let mut text = Vec::new();
            print(value, &mut text);
            escape(&String::from_utf8_lossy(&text))
        });
        let texts: Vec<_> = texts.collect();
        Ok(if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") })
    }
}

/// Parses `NAME:.metadata.name,NODE:.spec.nodeName`.
pub fn parse(text: &str) -> Result<Vec<CustomColumn>, String> {
    let column = |column: &str| {
        let (header, path) =
            column.split_once(':').ok_or_else(|| format!("{column:?} is no column: expected HEADER:PATH"))?;
        CustomColumn::parse(header, path)
    };
    text.split(',').map(column).collect()
}

/// Parses a line of headers, and a line of as many paths.
pub fn parse_file(text: &str) -> Result<Vec<CustomColumn>, String> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (headers, paths) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if headers.is_empty() || headers.len() != paths.len() {
        return Err(format!("expected a header for each path: {} headers, {} paths", headers.len(), paths.len()));
    }
    headers.iter().zip(paths).map(|(header, path)| CustomColumn::parse(header, path)).collect()
}
