//! The plots: memory over time, time against N and peak against N.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::process::Run;
use crate::report::{bytes, count, float, median, seconds};
use crate::ways::{Line, WAYS, Way};
use crate::{Point, Results};

const SIZE: (u32, u32) = (1080, 560);
/// The legend is to the right of the chart.
const CHART_WIDTH: u32 = 760;
const NAME_HEIGHT: i32 = 46;
const FONT: (&str, i32) = ("sans-serif", 14);
/// Earlier samples are left out, because a logarithmic axis has no zero. In seconds.
const FIRST_SAMPLE: f64 = 0.005;

/// A plot with two logarithmic axes.
struct Plot {
    caption: String,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
}

#[derive(Clone, Copy)]
struct Axis {
    title: &'static str,
    show: fn(f64) -> String,
}

/// The curve of a way.
struct Curve {
    name: &'static str,
    line: Line,
    /// The text below the name.
    remark: String,
    points: Vec<(f64, f64)>,
}

const MEMORY: Axis = Axis { title: "resident memory", show: bytes };
const TIME: Axis = Axis { title: "wall time", show: seconds };
const PODS: Axis = Axis { title: "Pods", show: pods };

/// Writes `memory.svg` to this directory, and with results for several N also `time.svg` and `peak.svg`.
pub fn write(results: &Results, directory: &Path) -> anyhow::Result<()> {
    let draw = |name: &str, plot: Plot| {
        let path = directory.join(name);
        plot.draw(&path).map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
    };
    let caption = format!("Memory while {} Pods are listed", count(results.pods));
    let since = Axis { title: "time since the request", show: seconds };
    draw("memory.svg", Plot { caption, x: since, y: MEMORY, curves: memory(results) })?;
    let of_tables = |pods| pods == results.pods || results.stores.contains(&pods);
    if results.points.iter().all(|point| of_tables(point.pods)) {
        return Ok(());
    }
    let curves = against_n(results, |run| run.wall, seconds);
    draw("time.svg", Plot { caption: "Time to list N Pods".into(), x: PODS, y: TIME, curves })?;
    let curves = against_n(results, |run| float(run.peak), bytes);
    let peak = Axis { title: "peak of resident memory", ..MEMORY };
    draw("peak.svg", Plot { caption: "Peak memory of listing N Pods".into(), x: PODS, y: peak, curves })
}

/// Writes a plot of memory over time, of the ways with a line.
pub fn write_memory(path: &Path, caption: String, ways: &'static [Way], runs: &[(String, Run)]) -> anyhow::Result<()> {
    let curves = ways.iter().filter_map(|way| {
        let (_, run) = runs.iter().find(|(id, _)| id == way.id)?;
        Some(memory_curve(way, way.drawn?, run))
    });
    let since = Axis { title: "time since the request", show: seconds };
    let plot = Plot { caption, x: since, y: MEMORY, curves: curves.collect() };
    plot.draw(path).map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
}

fn memory_curve(way: &'static Way, line: Line, run: &Run) -> Curve {
    let points = run.memory.iter().filter(|(at, _)| *at > FIRST_SAMPLE);
    let points = points.map(|(at, resident)| (*at, float(*resident))).collect();
    let remark = format!("{}, peak {}", seconds(run.wall), bytes(float(run.peak)));
    Curve { name: way.name, line, remark, points }
}

/// Returns the memory of each way over time, from its run of median wall time.
fn memory(results: &Results) -> Vec<Curve> {
    drawn()
        .filter_map(|(way, line)| {
            let is_it = |point: &&Point| point.way == way.id && point.pods == results.pods;
            let runs = &results.points.iter().find(is_it)?.runs;
            let wall = median(runs.iter().map(|run| run.wall).collect());
            let distance = |run: &Run| (run.wall - wall).abs();
            let run = runs.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
            Some(memory_curve(way, line, run))
        })
        .collect()
}

fn against_n(results: &Results, of: fn(&Run) -> f64, show: fn(f64) -> String) -> Vec<Curve> {
    drawn()
        .filter_map(|(way, line)| {
            let points = results.points.iter().filter(|point| point.way == way.id);
            let points: Vec<_> =
                points.map(|point| (f64::from(point.pods), median(point.runs.iter().map(of).collect()))).collect();
            let (most, value) = points.last()?;
            let remark = format!("{} at {}", show(*value), pods(*most));
            Some(Curve { name: way.name, line, remark, points })
        })
        .collect()
}

fn drawn() -> impl Iterator<Item = (&'static Way, Line)> {
    WAYS.iter().filter_map(|way| Some((way, way.drawn?)))
}

fn pods(number: f64) -> String {
    if number >= 1e6 { format!("{}M", number / 1e6) } else { format!("{}k", number / 1e3) }
}

impl Plot {
    fn draw(&self, path: &Path) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(CHART_WIDTH);
        let points = || self.curves.iter().flat_map(|curve| &curve.points).copied();
        let (xs, ys) = (range(points().map(|(x, _)| x)), range(points().map(|(_, y)| y)));
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.caption, ("sans-serif", 22))
            .margin(20)
            .x_label_area_size(50)
            .y_label_area_size(80)
            .build_cartesian_2d((xs.0 / 1.1..xs.1 * 1.1).log_scale(), (ys.0 / 1.5..ys.1 * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .x_desc(format!("{}, logarithmic", self.x.title))
            .y_desc(format!("{}, logarithmic", self.y.title))
            .x_label_formatter(&|x| short(&(self.x.show)(*x)))
            .y_label_formatter(&|y| short(&(self.y.show)(*y)))
            .x_labels(6)
            .label_style(FONT)
            .light_line_style(BLACK.mix(0.05))
            .bold_line_style(BLACK.mix(0.15))
            .draw()?;
        let mut names: Vec<_> = self.curves.iter().collect();
        let last = |curve: &Curve| curve.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        names.sort_by(|a, b| last(b).total_cmp(&last(a)));
        let mut y = 60;
        for curve in names {
            let (style, points) = (curve.style(), curve.points.iter().copied());
            let end = curve.points.last().map(|end| Circle::new(*end, 4, style.filled()));
            chart.draw_series(end)?;
            let sample = [(0, y), (30, y)];
            if curve.line.dashed {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
                right.draw(&PathElement::new([(0, y), (11, y)], style))?;
                right.draw(&PathElement::new([(19, y), (30, y)], style))?;
            } else {
                chart.draw_series(LineSeries::new(points, style))?;
                right.draw(&PathElement::new(sample, style))?;
            }
            right.draw(&Text::new(curve.name.replace('`', ""), (40, y - 8), FONT.into_font()))?;
            right.draw(&Text::new(&*curve.remark, (40, y + 10), FONT.into_font().color(&BLACK.mix(0.6))))?;
            y += NAME_HEIGHT;
        }
        root.present()
    }
}

impl Curve {
    fn style(&self) -> ShapeStyle {
        let (red, green, blue) = self.line.color;
        RGBColor(red, green, blue).stroke_width(2)
    }
}

/// Returns the smallest and the largest value; without values, a range that can be drawn.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)));
    if most > 0.0 { (least, most) } else { (1.0, 10.0) }
}

/// Removes the trailing zeros of a label.
fn short(label: &str) -> String {
    label.replace(".00 ", " ").replace(".0 ", " ")
}
