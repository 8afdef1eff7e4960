//! A path of `--by` or `--sum`.

use std::iter::successors;

use listwatch_tables::json_path::JsonPath;

/// A path, and how the output names it.
#[derive(Clone)]
pub struct CountPath {
    pub path: JsonPath,
    /// The path with a dot before it, and without braces.
    pub text: String,
}

impl CountPath {
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = JsonPath::parse(text).map_err(|error| error.to_string())?;
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let dot = if inner.starts_with(['.', '[', '$', '@']) { "" } else { "." };
        Ok(Self { path, text: format!("{dot}{inner}") })
    }

    /// Returns the last name in upper case, as kubectl names the column of a label; empty if a name ends the path in
    /// brackets.
    fn last_name(&self) -> String {
        let path = successors(Some(&*self.text), |text| without_index(text)).last().unwrap_or_default();
        // An escaped dot is part of the name.
        let is_step = |(at, _): &(usize, &str)| !path.get(..*at).is_some_and(|before| before.ends_with('\\'));
        let start = path.match_indices('.').rfind(is_step).map_or(0, |(at, _)| at + 1);
        let name = path.get(start..).unwrap_or_default().replace('\\', "");
        name.rsplit('/').next().unwrap_or(&name).to_uppercase()
    }
}

/// Returns the path without the brackets at its end; `None` if it has none there.
fn without_index(path: &str) -> Option<&str> {
    path.strip_suffix(']')?.rsplit_once('[').map(|(path, _)| path)
}

/// Returns the headers of a table: the last names of the paths, or the whole path where that is not unique.
pub fn headers<'a>(paths: impl IntoIterator<Item = &'a CountPath>) -> Vec<String> {
    let named: Vec<_> = paths.into_iter().map(|path| (path.last_name(), &path.text)).collect();
    let is_unique = |name: &String| {
        !matches!(&**name, "" | "COUNT") && named.iter().filter(|(other, _)| other == name).count() == 1
    };
    named.iter().map(|(name, text)| if is_unique(name) { name.clone() } else { (*text).clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_columns_by_the_last_name_of_their_paths() {
        for (paths, expected) in [
            (&[".status.phase"][..], &["PHASE"][..]),
            (&["spec.nodeName", "{.kind}"], &["NODENAME", "KIND"]),
            (&[r".metadata.labels.app\.kubernetes\.io/name"], &["NAME"]),
            (&[".a.requests.memory", ".a.limits.memory"], &[".a.requests.memory", ".a.limits.memory"]),
            (&[".spec.count", ".spec.list[0]", ".spec.list[*]"], &[".spec.count", ".spec.list[0]", ".spec.list[*]"]),
            (&[".spec.parts[0]", "$.a['b']"], &["PARTS", "A"]),
            (&["[0]", ".spec.*"], &["[0]", "*"]),
        ] {
            let paths: Vec<_> = paths.iter().map(|path| CountPath::parse(path).unwrap()).collect();
            assert_eq!(headers(&paths), expected);
        }
    }
}
