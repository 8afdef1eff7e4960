//! The plot: resident memory over time, one line for each way.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::method::{ListMethod, ListedPods, Measurement};
use crate::report::{format_count, format_seconds, format_size};

const SIZE: (u32, u32) = (960, 540);

pub fn write(path: &Path, list: &ListedPods, runs: &[Measurement]) -> anyhow::Result<()> {
    draw(path, list, runs).map_err(|error| anyhow!("{error}"))
}

fn draw(path: &Path, list: &ListedPods, runs: &[Measurement]) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let samples = || runs.iter().flat_map(|run| &run.memory);
    let longest = samples().map(|sample| sample.at.as_secs_f64()).fold(0.0, f64::max);
    let most = runs.iter().map(|run| run.peak).max().unwrap_or(1);
    let least = samples().map(|sample| sample.resident).min().unwrap_or(1);
    let caption = format!("Memory while listing {} Pods ({})", format_count(list.pods), format_size(list.bytes));

    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 22))
        .margin(20)
        .x_label_area_size(50)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..longest * 1.05, (least / 2..most * 2).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("seconds since the request")
        .y_desc("resident memory, logarithmic")
        .x_label_formatter(&|seconds| format!("{}", (seconds * 1000.0).round() / 1000.0))
        .y_label_formatter(&|bytes| format_size(*bytes).replace(".00", "").replace(".0", ""))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .light_line_style(BLACK.mix(0.05))
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for run in runs {
        let line = run.method.color().stroke_width(2);
        let points = run.memory.iter().map(|sample| (sample.at.as_secs_f64(), sample.resident));
        let end = points.clone().next_back().map(|end| Circle::new(end, 4, run.method.color().filled()));
        chart.draw_series(end)?;
        chart
            .draw_series(LineSeries::new(points, line))?
            .label(format!("{}: {}, peak {}", run.method.name(), format_seconds(run.wall), format_size(run.peak)))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], line));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()
}

impl ListMethod {
    /// Returns a colour that is distinguishable with any colour vision (Okabe and Ito).
    fn color(self) -> RGBColor {
        match self {
            Self::FullBuffer => RGBColor(213, 94, 0),
            Self::Drop => RGBColor(0, 114, 178),
            Self::KeepPods => RGBColor(0, 158, 115),
            Self::KeepBytes => RGBColor(204, 121, 167),
        }
    }
}
