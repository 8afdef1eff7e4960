//! The report as an HTML page that loads nothing.

use indicatif::HumanCount;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::report::{FieldRow, ItemSizes, SizeBin, StatsReport, format_size};
use crate::escape::escape_controls;

/// Returns the page. Text of the server stays text: maud escapes it, and the page's policy allows no script.
pub fn render_page(report: &StatsReport) -> String {
    let contents = html! {
        (render_facts(report))
        @if let Some(sizes) = &report.sizes { (render_sections(report, sizes)) }
    };
    page_of(&report.title(), "", &contents)
}

/// Returns a page with these contents, and `style` beside the style of all pages.
pub fn page_of(title: &str, style: &str, contents: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) (PreEscaped(style)) }
            }
            body {
                h1 { (title) }
                (contents)
                footer { "listwatch stats " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
    .into_string()
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

fn render_sections(report: &StatsReport, sizes: &ItemSizes) -> Markup {
    let largest = sizes.largest;
    html! {
        section {
            h2 { "Fields" }
            p { "Share of each field, including the fields in it, in the bytes of all items; in parentheses the items that have it." }
            @for FieldRow { path, name, depth, bytes, items, .. } in &report.fields {
                @let label = items.map_or_else(|| name.clone(), |items| label_with_items(name, items));
                (render_bar(report, &escape_controls(&label), path, *depth, *bytes, report.bytes))
            }
        }
        @if !report.drop.is_empty() {
            section {
                h2 { "Without" }
                p { "Bytes saved by dropping fields." }
                @for saving in &report.drop {
                    (render_bar(report, &label_with_items(&saving.path, saving.items), "", 0, saving.bytes, report.bytes))
                }
            }
        }
        section {
            h2 { "Sizes of items" }
            p { "Number of items by size, on a logarithmic scale." }
            (render_histogram(&sizes.histogram))
        }
        @if report.is_namespaced() {
            section {
                h2 { "Namespaces" }
                p { "Share of each namespace in the bytes of all items." }
                @for namespace in &report.namespaces {
                    (render_bar(report, &label_with_items(&namespace.label(), namespace.items), "", 0, namespace.bytes, report.bytes))
                }
            }
        }
        section {
            h2 { "Largest objects" }
            p { "Bars are relative to the largest object." }
            @for object in &report.largest { (render_bar(report, &object.label(), "", 0, object.bytes, largest)) }
        }
    }
}

/// Returns a bar. `whole` is the size at full width.
fn render_bar(report: &StatsReport, label: &str, title: &str, depth: usize, bytes: u64, whole: u64) -> Markup {
    #[expect(clippy::cast_precision_loss, reason = "a rounded bar looks the same")]
    let width = bytes as f64 * 100.0 / whole.max(1) as f64;
    html! {
        div.bar title=(escape_controls(title)) style={ "--depth:" (depth) } {
            span.label { (label) }
            span.track { span style={ "width:" (format!("{width:.2}")) "%" } {} }
            span.number { (format_size(bytes)) }
            span.number { (report.share(bytes)) }
        }
    }
}

fn render_histogram(bins: &[SizeBin]) -> Markup {
    let most = bins.iter().map(|bin| bin.items).max().unwrap_or(1).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a rounded bar looks the same")]
    let height = |bin: &SizeBin| format!("{:.2}", bin.items as f64 * 100.0 / most as f64);
    let middle = &bins[bins.len() / 2];
    html! {
        div.histogram {
            span.most { (items_text(most)) }
            @for bin in bins {
                span.bin title={ (format_size(bin.from)) " to " (format_size(bin.to)) ": " (items_text(bin.items)) } {
                    @if bin.items > 0 { span style={ "height:" (height(bin)) "%" } {} }
                }
            }
        }
        div.axis {
            @if let (Some(first), Some(last)) = (bins.first(), bins.last()) {
                span { (format_size(first.from)) }
                @if bins.len() > 4 { span { (format_size(middle.from)) } }
                span { (format_size(last.to)) }
            }
        }
    }
}

fn label_with_items(label: &str, count: u64) -> String {
    format!("{label} ({})", items_text(count))
}

fn items_text(count: u64) -> String {
    format!("{} item{}", HumanCount(count), if count == 1 { "" } else { "s" })
}
