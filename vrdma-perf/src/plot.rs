//! Curves in SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 540);
const FONT: &str = "sans-serif";
/// Colours of the curves, in their order.
const COLOURS: [RGBColor; 3] = [RGBColor(0, 90, 181), RGBColor(220, 50, 32), RGBColor(120, 120, 120)];

/// The points of a curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the curve.
    pub name: String,
    /// Position (a count or a size) and value of each point.
    pub points: Vec<(f64, f64)>,
}

/// The contents of a drawing.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Its title.
    pub title: String,
    /// Label of the horizontal axis, which is logarithmic.
    pub along: String,
    /// Label of the vertical axis.
    pub up: String,
    /// Whether the vertical axis is logarithmic, too.
    pub powers: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// Writes a drawing.
///
/// # Errors
/// It has no points, or the file cannot be written.
pub fn write(drawing: &Drawing, file: &Path) -> Result<()> {
    let all = || drawing.series.iter().flat_map(|series| &series.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = all().map(of).fold(f64::MAX, f64::min);
        (least, all().map(of).fold(0., f64::max))
    };
    let ((left, right), (low, high)) = (range(|point| point.0), range(|point| point.1));
    if all().next().is_none() || left <= 0. || low <= 0. {
        return Err(anyhow!("{}: there is nothing to draw", file.display()));
    }
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", file.display());
    root.fill(&WHITE).map_err(|error| wrong(&error))?;
    let mut builder = ChartBuilder::on(&root);
    builder.caption(&drawing.title, (FONT, 20)).margin(16).x_label_area_size(44).y_label_area_size(76);
    // A single point needs a range, too.
    let along = (left / 1.2..right * 1.2).log_scale();
    if drawing.powers {
        let chart = builder.build_cartesian_2d(along, (low / 1.5..high * 1.5).log_scale());
        curves(chart.map_err(|error| wrong(&error))?, drawing).map_err(|error| wrong(&error))?;
    } else {
        let chart = builder.build_cartesian_2d(along, 0f64..high * 1.1);
        curves(chart.map_err(|error| wrong(&error))?, drawing).map_err(|error| wrong(&error))?;
    }
    root.present().map_err(|error| wrong(&error))
}

type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws axes, curves and legend.
fn curves<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    drawing: &Drawing,
) -> Result<(), Fault<'a>>
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(&drawing.along)
        .y_desc(&drawing.up)
        .label_style((FONT, 14))
        .x_label_formatter(&|value| count(*value))
        .y_label_formatter(&|value| count(*value))
        .draw()?;
    for (series, colour) in drawing.series.iter().zip(COLOURS.iter().cycle()) {
        let points = series.points.clone();
        let curve = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        let sample = move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2));
        chart.draw_series(curve)?.label(&series.name).legend(sample);
    }
    chart
        .configure_series_labels()
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .position(SeriesLabelPosition::UpperLeft)
        .draw()
}

/// Formats a count or a size in few characters.
fn count(value: f64) -> String {
    const UNITS: [(f64, &str); 2] = [(1048576., "Mi"), (1024., "Ki")];
    let whole = |(size, _): &&(f64, &str)| value >= *size && value % size == 0.;
    match UNITS.iter().find(whole) {
        Some((size, unit)) => format!("{}{unit}", value / size),
        None if value >= 10. || value == value.trunc() => format!("{value:.0}"),
        None => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(points: Vec<(f64, f64)>) -> Drawing {
        let series = vec![Series { name: "a & b".into(), points }];
        Drawing { title: "t".into(), along: "bytes".into(), up: "GB/s".into(), powers: true, series }
    }

    #[test]
    fn curves_are_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.svg");
        for points in [vec![(8., 1.)], vec![(8., 1.), (65536., 40.)]] {
            for powers in [false, true] {
                write(&Drawing { powers, ..drawing(points.clone()) }, &file).unwrap();
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(
                    text.contains("<polyline") && text.contains("a &amp; b") && text.contains("GB/s"),
                    "{text}"
                );
                assert!(text.trim_end().ends_with("</svg>"));
            }
        }
        assert!(write(&drawing(Vec::new()), &file).is_err());
        assert!(write(&drawing(vec![(1., 1.)]), Path::new("/nowhere/x.svg")).is_err());
    }

    #[test]
    fn sizes_are_short() {
        let all = [2., 1000., 1024., 3072., 1048576., 1.5, 0.25, 40.4].map(count);
        assert_eq!(all, ["2", "1000", "1Ki", "3Ki", "1Mi", "1.50", "0.25", "40"]);
    }
}
