//! A template for a List whose items arrive one by one.
//!
//! # Advice
//!
//! kubectl evaluates each action of a template on the whole List, and prints what it found. Here an action becomes one
//! or several passes over the items, whose results stand one after the other. All passes run at once: an item gives
//! each of them its part of the output, and whoever prints keeps the parts of later passes until the first is complete.
//!
//! Steps map each value to values of its own, so what they find in all items is what they find in one after the other.
//! A union is the exception: all items for its first part, then all for its second. So it becomes a pass for each part.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::ast::{Filter, Node, Slice, SliceEnd, Step};
use super::eval::Evaluation;
use super::needs::{Needs, Places};
use super::template::{JsonPathTemplate, print_all};
use super::{JsonPathError, text};
use crate::go_json::{indent_json, write_go_json};

type Result<T> = std::result::Result<T, JsonPathError>;

/// The most passes of a template: unions multiply them.
const MAX_PASSES: usize = 64;

/// The most bytes of output that a slice from the end keeps until the end is known.
const MAX_KEPT: usize = 8 << 20;

/// A template that kubectl applies to a List, applied to its items as they arrive, in constant memory.
#[derive(Debug, Clone)]
pub struct ListTemplate {
    nodes: Vec<Node>,
    actions: Vec<Action>,
    is_json: bool,
}

/// A text or an action of the template.
#[derive(Debug, Clone)]
struct Action {
    passes: Vec<Pass>,
    /// What a range prints for each value; `None` prints the values.
    body: Option<Vec<Node>>,
}

#[derive(Debug, Clone)]
enum Pass {
    /// Values that depend on no item.
    Fixed(Vec<Value>),
    /// All items as one array, between the texts that surround it.
    Array(&'static str, &'static str),
    Items(Choice, Vec<Step>),
}

/// Which items are meant.
#[derive(Debug, Clone)]
enum Choice {
    All,
    Filter(Filter),
    Slice(Slice),
}

/// A template in use. Its parts are the passes, in the order of the output.
#[derive(Debug)]
pub struct ListRun {
    template: ListTemplate,
    passes: Vec<Running>,
    items: usize,
}

/// A pass in progress.
#[derive(Debug)]
struct Running {
    action: usize,
    pass: usize,
    is_first_of_action: bool,
    is_last_of_action: bool,
    /// True if the pass has printed a value.
    has_value: bool,
    /// Items that may still be outside of a slice.
    kept: VecDeque<Result<Vec<Vec<u8>>>>,
    kept_bytes: usize,
}

impl JsonPathTemplate {
    /// Converts the template into one for a List whose items arrive one by one. With `is_json`, the results of each
    /// action are an array of JSON, as of kubectl's `jsonpath-as-json`.
    ///
    /// # Errors
    ///
    /// An action needs all items at once, such as `{.*}` and a range over `.items` as one value.
    pub fn for_list(self, is_json: bool) -> Result<ListTemplate> {
        let actions = self.nodes.iter().map(|node| Action::new(node, is_json)).collect::<Result<Vec<_>>>()?;
        Ok(ListTemplate { nodes: self.nodes, actions, is_json })
    }

    /// Converts the template into one for [single objects](ListTemplate::write_object).
    #[must_use]
    pub fn for_object(self, is_json: bool) -> ListTemplate {
        ListTemplate { nodes: self.nodes, actions: Vec::new(), is_json }
    }
}

impl ListTemplate {
    /// Appends what the template prints of one object.
    ///
    /// # Errors
    ///
    /// As of [`JsonPathTemplate::write`].
    pub fn write_object(&self, object: &Value, out: &mut Vec<u8>) -> Result<()> {
        write_nodes(&self.nodes, object, self.is_json, &mut Evaluation::new(true), out)
    }

    /// Adds what the template needs of an item of a List.
    pub(super) fn add_needs(&self, needs: &mut Needs) {
        for action in &self.actions {
            for pass in &action.passes {
                let Pass::Items(choice, steps) = pass else {
                    if matches!(pass, Pass::Array(..)) {
                        needs.add_all();
                    }
                    continue;
                };
                if let Choice::Filter(filter) = choice {
                    needs.add_filter(filter, &Places::root());
                }
                let found = needs.add_steps(steps, Places::root());
                match &action.body {
                    Some(body) => needs.add_nodes(body, &found),
                    None => needs.add_values(&[], found),
                }
            }
        }
    }

    /// Begins a List.
    #[must_use]
    pub fn begin(self) -> ListRun {
        let mut passes = Vec::new();
        for (action, of_action) in self.actions.iter().enumerate() {
            let last = of_action.passes.len().saturating_sub(1);
            passes.extend((0..of_action.passes.len()).map(|pass| Running {
                action,
                pass,
                is_first_of_action: pass == 0,
                is_last_of_action: pass == last,
                has_value: false,
                kept: VecDeque::new(),
                kept_bytes: 0,
            }));
        }
        ListRun { template: self, passes, items: 0 }
    }
}

impl ListRun {
    /// Returns the number of parts of the output.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.passes.len()
    }

    /// Passes the parts that depend on no item, and returns the number of the first part that does.
    ///
    /// # Errors
    ///
    /// A range does not fit the List.
    pub fn start(&mut self, sink: &mut dyn FnMut(usize, &[u8])) -> Result<usize> {
        let (mut first, is_json) = (self.passes.len(), self.template.is_json);
        for (part, running) in self.passes.iter_mut().enumerate() {
            let Some(action) = self.template.actions.get(running.action) else { continue };
            let Some(Pass::Fixed(values)) = action.passes.get(running.pass) else {
                first = first.min(part);
                continue;
            };
            for value in values {
                let texts = action.texts(&[], value, is_json)?;
                for text in &texts {
                    running.write_value(text, action, is_json, |bytes| sink(part, bytes));
                }
            }
        }
        Ok(first)
    }

    /// Passes the values that an item adds to each part, by the number of the part.
    ///
    /// # Errors
    ///
    /// A path does not fit the item, or a slice from the end keeps more than 8 MiB.
    pub fn add_item(&mut self, item: &Value, sink: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let at = self.items;
        self.items += 1;
        for (part, running) in self.passes.iter_mut().enumerate() {
            let Some(action) = self.template.actions.get(running.action) else { continue };
            let is_json = self.template.is_json;
            let values = match action.passes.get(running.pass) {
                None | Some(Pass::Fixed(_)) => continue,
                Some(Pass::Array(..)) => Ok(vec![json_text(item, false)]),
                Some(Pass::Items(choice, steps)) => match choice.of_item(at, item)? {
                    Chosen::No => continue,
                    Chosen::Yes => action.texts(steps, item, is_json),
                    Chosen::Later(most) => {
                        let texts = action.texts(steps, item, is_json);
                        let left = running.keep(texts, most)?;
                        match left {
                            Some(texts) if choice.is_open_start(self.items.saturating_sub(1 + most)) => texts,
                            _ => continue,
                        }
                    }
                },
            };
            for value in values? {
                running.write_value(&value, action, is_json, |bytes| sink(part, bytes));
            }
        }
        Ok(())
    }

    /// Passes the rest of each part, once all items are known.
    ///
    /// # Errors
    ///
    /// An index is out of bounds.
    pub fn end(&mut self, sink: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let (count, is_json) = (self.items, self.template.is_json);
        for (part, running) in self.passes.iter_mut().enumerate() {
            let Some(action) = self.template.actions.get(running.action) else { continue };
            let Some(Pass::Items(Choice::Slice(slice), _)) = action.passes.get(running.pass) else { continue };
            let (start, end, step) = slice.bounds(count)?;
            let first_kept = count - running.kept.len();
            for (at, texts) in (first_kept..).zip(std::mem::take(&mut running.kept)) {
                if (start..end).contains(&at) && (at - start).is_multiple_of(step) {
                    for text in &texts? {
                        running.write_value(text, action, is_json, |bytes| sink(part, bytes));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what stands before a part, given whether earlier parts of its action have printed values, and what
    /// stands after it.
    #[must_use]
    pub fn surroundings(&self, part: usize) -> (Vec<u8>, Vec<u8>) {
        let Some(running) = self.passes.get(part) else { return Default::default() };
        let Some(action) = self.template.actions.get(running.action) else { return Default::default() };
        let earlier = self.passes.get(..part).unwrap_or_default().iter().rev();
        let has_earlier = earlier.take_while(|other| other.action == running.action).any(|other| other.has_value);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if action.body.is_some() {
            return (before, after);
        }
        if self.template.is_json {
            let has_any = has_earlier || running.has_value;
            match (running.is_first_of_action, has_earlier && running.has_value) {
                (true, _) => before.push(b'['),
                (false, true) => before.push(b','),
                (false, false) => {}
            }
            if running.is_last_of_action {
                after.extend_from_slice(if has_any { b"\n]\n" } else { b"]\n" });
            }
        } else if has_earlier && running.has_value {
            before.push(b' ');
        }
        if let Some(Pass::Array(open, close)) = action.passes.get(running.pass) {
            before.extend_from_slice(open.as_bytes());
            after.splice(0..0, close.bytes());
        }
        (before, after)
    }
}

impl Running {
    /// Keeps the texts of an item, and returns those of the item that is now `most` before it.
    fn keep(&mut self, texts: Result<Vec<Vec<u8>>>, most: usize) -> Result<Option<Result<Vec<Vec<u8>>>>> {
        let size =
            |texts: &Result<Vec<Vec<u8>>>| texts.iter().flatten().map(|text| text.len() + 32).sum::<usize>() + 32;
        self.kept_bytes += size(&texts);
        self.kept.push_back(texts);
        let left = if self.kept.len() > most { self.kept.pop_front() } else { None };
        self.kept_bytes -= left.as_ref().map_or(0, size);
        if self.kept_bytes > MAX_KEPT {
            let message = format!("a slice from the end keeps more than {MAX_KEPT} bytes: use one with fewer items");
            return Err(JsonPathError::value(message));
        }
        Ok(left)
    }

    fn write_value(&mut self, text: &[u8], action: &Action, is_json: bool, mut write: impl FnMut(&[u8])) {
        if action.body.is_none() {
            let is_array = matches!(action.passes.get(self.pass), Some(Pass::Array(..)));
            match (is_json, self.has_value) {
                (true, true) => write(b",\n    "),
                (true, false) => write(b"\n    "),
                (false, true) => write(if is_array { b"," } else { b" " }),
                (false, false) => {}
            }
        }
        self.has_value = true;
        write(text);
    }
}

enum Chosen {
    No,
    Yes,
    /// The item is chosen once this many more items are known.
    Later(usize),
}

impl Choice {
    fn of_item(&self, at: usize, item: &Value) -> Result<Chosen> {
        let is_chosen = match self {
            Self::All => true,
            Self::Filter(filter) => Evaluation::new(true).passes(filter, item)?,
            Self::Slice(Slice { start, end, step }) => {
                let from_end = |index: i64| usize::try_from(index.checked_neg().unwrap_or(0)).unwrap_or(0);
                let kept = match (start, end) {
                    (Some(start), SliceEnd::At(end)) => from_end(*start).max(from_end(*end)),
                    (None, SliceEnd::At(end)) => from_end(*end),
                    (Some(start), _) => from_end(*start),
                    (None, _) => 0,
                };
                if kept > 0 {
                    return Ok(Chosen::Later(kept));
                }
                let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
                let end = match end {
                    SliceEnd::AfterStart => start.checked_add(1),
                    SliceEnd::Length => None,
                    SliceEnd::At(end) => usize::try_from(*end).ok(),
                };
                let step = step.and_then(|step| usize::try_from(step).ok()).filter(|step| *step > 0).unwrap_or(1);
                at >= start && end.is_none_or(|end| at < end) && (at - start).is_multiple_of(step)
            }
        };
        Ok(if is_chosen { Chosen::Yes } else { Chosen::No })
    }

    /// Returns true if the slice has an item that left the kept ones: its start is from the beginning.
    fn is_open_start(&self, at: usize) -> bool {
        let Self::Slice(Slice { start, step, .. }) = self else { return false };
        let start = start.unwrap_or(0);
        let step = step.and_then(|step| usize::try_from(step).ok()).filter(|step| *step > 0).unwrap_or(1);
        usize::try_from(start).is_ok_and(|start| at >= start && (at - start).is_multiple_of(step))
    }
}

impl Action {
    fn new(node: &Node, is_json: bool) -> Result<Self> {
        let (steps, body) = match node {
            Node::Text(text) => {
                return Ok(Self { passes: vec![Pass::Fixed(vec![Value::String(text.clone())])], body: None });
            }
            Node::Print(steps) => (steps, None),
            Node::Range(steps, body) => (steps, Some(body.clone())),
        };
        let mut paths = vec![steps.clone()];
        let mut passes = Vec::new();
        while let Some(path) = paths.pop() {
            match path.iter().position(|step| matches!(step, Step::Union(_))) {
                Some(at) => {
                    let Some(Step::Union(parts)) = path.get(at) else { continue };
                    let (before, after) = (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default());
                    paths.extend(parts.iter().rev().map(|part| [before, part, after].concat()));
                }
                None => passes.extend(Pass::of(&path, body.is_none() && !is_json)?),
            }
            if paths.len() + passes.len() > MAX_PASSES {
                return Err(JsonPathError::value(format!(
                    "the unions of the template need more than {MAX_PASSES} passes"
                )));
            }
        }
        Ok(Self { passes, body })
    }

    /// Returns what is printed of each value that the steps find in an item.
    fn texts(&self, steps: &[Step], item: &Value, is_json: bool) -> Result<Vec<Vec<u8>>> {
        let mut evaluation = Evaluation::new(true);
        let found = evaluation.path(steps, &[item])?;
        let text = |value: &&Value| match &self.body {
            None if is_json => Ok(json_text(value, true)),
            None => {
                let mut out = Vec::new();
                text::template(value, &mut out);
                Ok(out)
            }
            Some(body) => {
                let mut out = Vec::new();
                write_nodes(body, value, is_json, &mut evaluation, &mut out)?;
                Ok(out)
            }
        };
        found.iter().map(text).collect()
    }
}

impl Pass {
    /// Returns the passes of a path without unions.
    fn of(steps: &[Step], may_be_array: bool) -> Result<Vec<Self>> {
        let is_items = |step: &Step| matches!(step, Step::Field(name) if name == "items");
        match steps {
            [] if may_be_array => Ok(vec![Self::Array(
                "{\"apiVersion\":\"v1\",\"items\":[",
                "],\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"\"}}",
            )]),
            [items] if is_items(items) && may_be_array => Ok(vec![Self::Array("[", "]")]),
            [items, Step::Recursive, rest @ ..] if is_items(items) && matches!(rest, [Step::Field(_), ..]) => {
                Ok(vec![Self::items(Choice::All, &[&[Step::Recursive], rest].concat())?])
            }
            [items, step, rest @ ..] if is_items(items) => match step {
                Step::Slice(Slice { start: None, end: SliceEnd::Length, step: None }) | Step::Wildcard => {
                    Ok(vec![Self::items(Choice::All, rest)?])
                }
                Step::Slice(slice) => Ok(vec![Self::items(Choice::Slice(*slice), rest)?]),
                Step::Filter(filter) => Ok(vec![Self::items(Choice::Filter((**filter).clone()), rest)?]),
                // An array has no fields.
                Step::Field(_) => Ok(Vec::new()),
                _ => Err(needs_list()),
            },
            [Step::Recursive, rest @ ..] if matches!(rest, [Step::Field(name), ..] if name != "items") => {
                let recursive = [&[Step::Recursive], rest].concat();
                let (list, metadata) = (skeleton(), json!({ "resourceVersion": "" }));
                Ok(vec![
                    Self::fixed(rest, &list)?,
                    Self::items(Choice::All, &recursive)?,
                    Self::fixed(&recursive, &metadata)?,
                ])
            }
            [] | [Step::Recursive | Step::Wildcard, ..] => Err(needs_list()),
            [items, ..] if is_items(items) => Err(needs_list()),
            _ => Ok(vec![Self::fixed(steps, &skeleton())?]),
        }
    }

    fn items(choice: Choice, steps: &[Step]) -> Result<Self> {
        // A text stands for all that came before.
        if steps.iter().any(|step| matches!(step, Step::Text(_))) {
            Err(needs_list())
        } else {
            Ok(Self::Items(choice, steps.to_vec()))
        }
    }

    fn fixed(steps: &[Step], value: &Value) -> Result<Self> {
        let found = Evaluation::new(true).path(steps, &[value])?;
        Ok(Self::Fixed(found.into_iter().cloned().collect()))
    }
}

/// The List without its items.
fn skeleton() -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" } })
}

fn needs_list() -> JsonPathError {
    JsonPathError::value(
        "the template needs all items at once, but they are printed as they arrive: \
         begin it with .items[*], .items[?()], an index or a slice of .items, or ..name",
    )
}

/// Writes what nodes print of a value.
fn write_nodes(
    nodes: &[Node],
    value: &Value,
    is_json: bool,
    evaluation: &mut Evaluation,
    out: &mut Vec<u8>,
) -> Result<()> {
    for node in nodes {
        evaluation.visit(1)?;
        match node {
            Node::Text(text) if is_json => json_array(&[&Value::String(text.clone())], out),
            Node::Text(text) => out.extend_from_slice(text.as_bytes()),
            Node::Print(steps) if is_json => json_array(&evaluation.path(steps, &[value])?, out),
            Node::Print(steps) => print_all(&evaluation.path(steps, &[value])?, out),
            Node::Range(steps, body) => {
                for element in evaluation.path(steps, &[value])? {
                    write_nodes(body, element, is_json, evaluation, out)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes values as an array of JSON on several lines.
fn json_array(values: &[&Value], out: &mut Vec<u8>) {
    let mut compact = Vec::new();
    // A value always has a JSON form.
    let _ = write_go_json(values, &mut compact);
    indent_json(&compact, 0, out);
    out.push(b'\n');
}

/// Returns a value in JSON, in one line, or as an element of an array on several lines.
fn json_text(value: &Value, is_indented: bool) -> Vec<u8> {
    let (mut compact, mut out) = (Vec::new(), Vec::new());
    // A value always has a JSON form.
    let _ = write_go_json(value, &mut compact);
    if !is_indented {
        return compact;
    }
    indent_json(&compact, 1, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints a template of a List as a command does.
    fn print(template: &str, is_json: bool, items: &[Value]) -> Result<String> {
        let mut run = JsonPathTemplate::parse(template)?.for_list(is_json)?.begin();
        let mut parts = vec![Vec::new(); run.parts()];
        run.start(&mut |part, text| parts[part].extend_from_slice(text))?;
        for item in items {
            run.add_item(item, &mut |part, text| parts[part].extend_from_slice(text))?;
        }
        run.end(&mut |part, text| parts[part].extend_from_slice(text))?;
        let whole = parts.iter().enumerate().map(|(part, text)| {
            let (before, after) = run.surroundings(part);
            [before, text.clone(), after].concat()
        });
        Ok(String::from_utf8(whole.collect::<Vec<_>>().concat()).unwrap())
    }

    /// The reference is the evaluation of the whole List at once, which `tests/json_path.rs` compares with kubectl.
    #[test]
    fn prints_what_the_whole_list_prints() {
        let all: Vec<_> = (0..7).map(|n| json!({"m": {"n": n, "name": format!("i{n}")}, "l": vec![n; n]})).collect();
        for count in 0..=7 {
            let items = &all[..count];
            let list = json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}});
            for template in [
                "{.items[*].m.name}",
                "a{.items[*].m.name}b{.kind}{.metadata.resourceVersion}",
                "{.items[*]['m.name','m.n','l']}",
                "{.items[*].l[*]}|{.items[*].m}",
                "{range .items[*]}{.m.name}{range .l[*]}{@},{end};{end}{range .items[*]}{.m.n}{end}",
                "{.items[?(@.m.n>2)].m.name}",
                "{.items[0].m.name}",
                "{.items[2].m}",
                "{.items[-1].m.name}",
                "{.items[-2:].m.name}",
                "{.items[:-1].m.name}",
                "{.items[1:-2].m.name}",
                "{.items[:].m.n}{.items[::2].m.n}{.items[1:5:3].m.n}",
                "{.items[-3:3].m.n}",
                "{.items[0,1].m.n}",
                "{.items}",
                "{}",
                "{.none}{.items.m}{\"x\"}{1}",
                "{..name}",
                "{.items..name}",
            ] {
                let mut whole = Vec::new();
                let expected = JsonPathTemplate::parse(template).unwrap().write(&list, &mut whole);
                let expected = expected.map(|()| String::from_utf8(whole).unwrap());
                assert_eq!(print(template, false, items), expected, "{template} {count}");
            }
        }
    }

    #[test]
    fn prints_arrays_of_json() {
        let items = [json!({"a": 1, "b": {"c": []}}), json!({"a": "<"})];
        for (template, count, expected) in [
            ("{.items[*].a}", 0, "[]\n"),
            ("{.items[*].a}", 2, "[\n    1,\n    \"\\u003c\"\n]\n"),
            ("{.items[*]['b','a']}", 1, "[\n    {\n        \"c\": []\n    },\n    1\n]\n"),
            ("{.items[*].x}{\"y\"}", 2, "[]\n[\n    \"y\"\n]\n"),
            ("{range .items[*]}{.a}{.x}{end}", 1, "[\n    1\n]\n[]\n"),
        ] {
            assert_eq!(print(template, true, &items[..count]).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn names_what_it_cannot_do() {
        for template in ["{.*}", "{range .items}{.a}{end}", "{range @}{.items}{end}", "{.items[*]\"x\"}", "{..items}"] {
            assert!(print(template, false, &[]).unwrap_err().to_string().contains("all items at once"), "{template}");
        }
        let unions = "{.items[*]['a','b']['a','b']['a','b']['a','b']['a','b']['a','b']['a','b']}";
        assert!(print(unions, false, &[]).unwrap_err().to_string().contains("more than 64 passes"));
        let long = vec![json!({ "a": "x".repeat(1 << 20) }); 10];
        assert!(print("{.items[-20:].a}", false, &long).unwrap_err().to_string().contains("keeps more than"));
    }
}
