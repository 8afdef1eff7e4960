//! The report as an HTML page that loads nothing.
//!
//! All numbers are in tables with captions and headers, so that a screen reader can read them; the bars in them are
//! decoration. The histogram is an image with a description, and its numbers follow in a table.

use indicatif::HumanCount;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::report::{FieldRow, ItemSizes, Origin, SizeBin, StatsReport, format_size};
use crate::escape::escape_controls;

/// Returns the page. Text of the server stays text: maud escapes it, and the page's policy allows no script.
pub fn render_page(report: &StatsReport, origin: &Origin) -> String {
    let contents = html! {
        (render_facts(report))
        @if let Some(sizes) = &report.sizes { (render_sections(report, sizes)) }
    };
    let Origin { source, selection } = origin;
    let from = escape_controls(source);
    page_of(&format!("{} of {from}, {}, read on {}", report.title(), escape_controls(selection), date()), &contents)
}

/// Returns the time of the report, to the minute.
pub fn date() -> String {
    Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Returns a page with these contents.
pub fn page_of(title: &str, contents: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    h1 { (title) }
                    (contents)
                }
                footer { "listwatch stats " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
    .into_string()
}

/// Returns a table whose first cells are the headers of their rows.
pub fn render_table(caption: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    html! {
        table {
            caption { (caption) }
            thead { tr { @for name in header { th scope="col" { (name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (index, cell) in row.iter().enumerate() {
                            @if index == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

fn render_facts(report: &StatsReport) -> Markup {
    let mut facts = vec![("items", report.count()), ("all items", format_size(report.bytes))];
    if let Some(ItemSizes { mean, p50, p90, p99, largest, .. }) = &report.sizes {
        let of_items = [("mean", mean), ("p50", p50), ("p90", p90), ("p99", p99), ("largest", largest)];
        facts.extend(of_items.map(|(name, bytes)| (name, format_size(*bytes))));
    }
    facts.extend(report.encoding.clone().map(|encoding| ("encoding", encoding)));
    html! {
        dl { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
    }
}

/// A row of a table with bars.
struct Bar {
    label: String,
    /// The whole name, if the label is a part of it.
    title: String,
    depth: usize,
    bytes: u64,
}

impl Bar {
    fn new(label: String, bytes: u64) -> Self {
        Self { label, title: String::new(), depth: 0, bytes }
    }
}

fn render_sections(report: &StatsReport, sizes: &ItemSizes) -> Markup {
    let fields = report.fields.iter().map(|FieldRow { path, name, depth, bytes, items, .. }| {
        let label = items.map_or_else(|| name.clone(), |items| label_with_items(name, items));
        Bar { label: escape_controls(&label).into_owned(), title: path.clone(), depth: *depth, bytes: *bytes }
    });
    let drop = report.drop.iter().map(|saving| Bar::new(label_with_items(&saving.path, saving.items), saving.bytes));
    let namespaces = report
        .namespaces
        .iter()
        .map(|namespace| Bar::new(label_with_items(&namespace.label(), namespace.items), namespace.bytes));
    let largest = report.largest.iter().map(|object| Bar::new(object.label(), object.bytes));
    html! {
        section {
            h2 { "Fields" }
            (render_bars(
                report,
                "Share of each field, including the fields in it, in the bytes of all items; in parentheses the items that have it.",
                "Field", report.bytes, fields,
            ))
        }
        @if !report.drop.is_empty() {
            section {
                h2 { "Without" }
                (render_bars(report, "Bytes saved by dropping fields.", "Field", report.bytes, drop))
            }
        }
        section {
            h2 { "Sizes of items" }
            (render_histogram(&sizes.histogram))
        }
        @if report.is_namespaced() {
            section {
                h2 { "Namespaces" }
                (render_bars(report, "Share of each namespace in the bytes of all items.", "Namespace", report.bytes, namespaces))
            }
        }
        section {
            h2 { "Largest objects" }
            (render_bars(report, "Bars are relative to the largest object.", "Object", sizes.largest, largest))
        }
    }
}

/// Returns a table with bars. `whole` is the size at full width.
fn render_bars(report: &StatsReport, caption: &str, name: &str, whole: u64, rows: impl Iterator<Item = Bar>) -> Markup {
    #[expect(clippy::cast_precision_loss, reason = "a rounded bar looks the same")]
    let width = |bytes: u64| format!("{:.2}", bytes as f64 * 100.0 / whole.max(1) as f64);
    html! {
        table.bars {
            caption { (caption) }
            thead { tr { th scope="col" { (name) } td aria-hidden="true" {} th scope="col" { "Bytes" } th scope="col" { "Share" } } }
            tbody {
                @for Bar { label, title, depth, bytes } in rows {
                    tr {
                        th scope="row" title=[(!title.is_empty()).then(|| escape_controls(&title))] style={ "--depth:" (depth) } { (label) }
                        td.track aria-hidden="true" { span style={ "width:" (width(bytes)) "%" } {} }
                        td { (format_size(bytes)) }
                        td { (report.share(bytes)) }
                    }
                }
            }
        }
    }
}

fn render_histogram(bins: &[SizeBin]) -> Markup {
    let most = bins.iter().max_by_key(|bin| bin.items);
    let largest = most.map_or(1, |bin| bin.items).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a rounded bar looks the same")]
    let height = |bin: &SizeBin| format!("{:.2}", bin.items as f64 * 100.0 / largest as f64);
    let range = |bin: &SizeBin| format!("{} to {}", format_size(bin.from), format_size(bin.to));
    let described = match (bins.first(), most, bins.last()) {
        (Some(first), Some(most), Some(last)) => format!(
            "Number of items by size, from {} to {} on a logarithmic scale. Most items, {}, have {}.",
            format_size(first.from),
            format_size(last.to),
            HumanCount(most.items),
            range(most)
        ),
        _ => String::new(),
    };
    let filled = bins.iter().filter(|bin| bin.items > 0);
    html! {
        p { (described) }
        div.histogram role="img" aria-label=(described) {
            span.most { (items_text(largest)) }
            @for bin in bins {
                span.bin title={ (range(bin)) ": " (items_text(bin.items)) } {
                    @if bin.items > 0 { span style={ "height:" (height(bin)) "%" } {} }
                }
            }
        }
        div.axis aria-hidden="true" {
            @if let (Some(first), Some(last)) = (bins.first(), bins.last()) {
                span { (format_size(first.from)) }
                @if let Some(middle) = bins.get(bins.len() / 2).filter(|_| bins.len() > 4) {
                    span { (format_size(middle.from)) }
                }
                span { (format_size(last.to)) }
            }
        }
        details {
            summary { "Numbers of the histogram" }
            (render_table("Items by size.", &["Size", "Items"], filled.map(|bin| vec![range(bin), HumanCount(bin.items).to_string()])))
        }
    }
}

fn label_with_items(label: &str, count: u64) -> String {
    format!("{label} ({})", items_text(count))
}

fn items_text(count: u64) -> String {
    format!("{} item{}", HumanCount(count), if count == 1 { "" } else { "s" })
}
