//! What the arguments of `get` name: resources, or objects.

use std::collections::HashSet;

/// A resource as it was typed, and the name of an object of it; `None` for all its objects.
#[derive(Debug, PartialEq)]
pub struct Target {
    pub resource: String,
    pub name: Option<String>,
}

impl Target {
    fn object(resource: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), name: Some(name.to_owned()) }
    }
}

/// Parses `TYPE[,TYPE...] [NAME...]` or `TYPE/NAME...`, as kubectl does.
pub fn parse_targets(args: &[String]) -> Result<Vec<Target>, String> {
    let Some((first, names)) = args.split_first() else { return Ok(Vec::new()) };
    let mut seen = HashSet::new();
    let resources: Vec<_> = first.split(',').filter(|resource| seen.insert(*resource)).collect();
    if let ([_, _, ..], [_, ..]) = (&*resources, names) {
        let objects = resources.iter().flat_map(|resource| names.iter().map(move |name| format!("{resource}/{name}")));
        return objects.map(|object| parse_object(&object)).collect();
    }
    match args.iter().filter(|arg| arg.contains('/')).count() {
        0 if names.is_empty() => {
            Ok(resources.into_iter().map(|resource| Target { resource: resource.to_owned(), name: None }).collect())
        }
        0 => Ok(names.iter().map(|name| Target::object(first, name)).collect()),
        count if count == args.len() => args.iter().map(|arg| parse_object(arg)).collect(),
        _ => Err("write TYPE NAME or TYPE/NAME, not both".to_owned()),
    }
}

fn parse_object(text: &str) -> Result<Target, String> {
    match text.split_once('/') {
        Some((_, name)) if name.contains('/') => Err(format!("{text}: TYPE/NAME has one slash")),
        Some((resource, name)) if !resource.is_empty() && !name.is_empty() && !resource.contains(',') => {
            Ok(Target::object(resource, name))
        }
        _ => Err(format!("{text}: TYPE/NAME has one type and one name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_types_and_names_as_kubectl() {
        let all = |resource: &str| Target { resource: resource.to_owned(), name: None };
        let one = Target::object;
        for (args, expected) in [
            (&["pods"][..], Some(vec![all("pods")])),
            (&["pods,svc,pods"], Some(vec![all("pods"), all("svc")])),
            (&["pods", "a", "b"], Some(vec![one("pods", "a"), one("pods", "b")])),
            (&["pods,svc", "a"], Some(vec![one("pods", "a"), one("svc", "a")])),
            (&["pod/a", "svc/b", "pod/a"], Some(vec![one("pod", "a"), one("svc", "b"), one("pod", "a")])),
            (&["pod/a", "b"], None),
            (&["pods", "svc/b"], None),
            (&["pod/a/b"], None),
            (&["pod/"], None),
            (&["/a"], None),
            (&["pod,svc/a"], None),
        ] {
            let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(parse_targets(&args).ok(), expected, "{args:?}");
        }
    }
}
