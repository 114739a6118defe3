//! Plots as SVG: lines or bars, with axes, ticks and a legend, drawn by `plotters`. No scripts, no fonts, no files.
//!
//! An axis covers what is plotted. It begins at zero where that leaves the points apart, and is logarithmic where a few
//! values span a wide range. Where there are few values along the x axis, each has its own tick.

use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ops::Range;

/// Size of a plot in pixels, without its legend.
const SIZE: (u32, u32) = (600, 340);
/// Height of a line of the legend, and entries of a line.
const LEGEND_LINE: u32 = 18;
const LEGEND_COLUMNS: usize = 3;
/// Colours that are distinguishable without red-green vision.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0xb8, 0xa8, 0x00),
];
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Most values along x that have ticks of their own, and points of a line that are marked.
const FEW: usize = 12;
const MARKED: usize = 24;
/// The number of ticks of an axis, about.
const TICKS: usize = 6;
/// An axis is logarithmic if two of its few values would otherwise be closer to each other than this share of it.
const CLOSE: f64 = 0.1;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// Proportional.
    Linear,
    /// Logarithmic; values that are not positive are left out.
    Logarithmic,
}

/// A series of points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points; for bars, the x of each is the number of its category.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The heading.
    pub title: String,
    /// The label of the x axis, with its unit.
    pub x_label: String,
    /// The label of the y axis, with its unit.
    pub y_label: String,
    /// Names along the x axis. If there are any, the series are bars, otherwise lines.
    pub categories: Vec<String>,
    /// The scale of x, for lines; by default it follows from the values.
    pub x_scale: Option<Scale>,
    /// The scale of y.
    pub y_scale: Scale,
    /// The plotted series.
    pub series: Vec<Series>,
}

impl Plot {
    /// An empty plot of lines.
    #[must_use]
    pub fn lines(title: &str, x_label: &str, y_label: &str) -> Self {
        Self {
            title: title.into(),
            x_label: x_label.into(),
            y_label: y_label.into(),
            categories: Vec::new(),
            x_scale: None,
            y_scale: Scale::Linear,
            series: Vec::new(),
        }
    }

    /// An empty plot of bars.
    #[must_use]
    pub fn bars(title: &str, categories: Vec<String>, y_label: &str) -> Self {
        Self { categories, ..Self::lines(title, "", y_label) }
    }

    /// The plot with one more series.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.series.push(Series { name: name.into(), points: points.into_iter().collect() });
        self
    }

    /// The plot with axes scaled as requested.
    #[must_use]
    pub const fn scaled(mut self, x_scale: Scale, y_scale: Scale) -> Self {
        self.x_scale = Some(x_scale);
        self.y_scale = y_scale;
        self
    }

    /// The plot as an `svg` element, which is also a valid file.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // Drawing into memory cannot fail.
        let _ = self.draw(&mut out);
        out
    }

    fn draw(&self, out: &mut String) -> Result<(), Box<dyn Error + Send + Sync>> {
        let legend_height = self.series.len().div_ceil(LEGEND_COLUMNS) as u32 * LEGEND_LINE + 8;
        let root = SVGBackend::with_string(out, (SIZE.0, SIZE.1 + legend_height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (plotted, legend) = root.split_vertically(SIZE.1);
        let is_bars = !self.categories.is_empty();
        let x_axis = if is_bars { Axis::of_categories(self.categories.len()) } else { self.x_axis() };
        let y_axis = Axis::from_zero_if_apart(self.y_scale, self.points().map(|point| point.1), is_bars);
        let mut chart = ChartBuilder::on(&plotted)
            .caption(&self.title, ("sans-serif", 15).into_font().style(FontStyle::Bold).color(&INK))
            .margin(8)
            .margin_right(20)
            .x_label_area_size(44)
            .y_label_area_size(68)
            .build_cartesian_2d(x_axis.clone(), y_axis.clone())?;
        let category = |place: f64| self.categories.get(place.round() as usize).cloned().unwrap_or_default();
        let x_label = |at: &f64| if is_bars { category(*at) } else { short(*at) };
        let text = ("sans-serif", 12).into_font().color(&INK);
        let mut mesh = chart.configure_mesh();
        mesh.bold_line_style(GRID).light_line_style(TRANSPARENT).axis_style(INK);
        if is_bars {
            mesh.disable_x_mesh();
        }
        mesh.label_style(text.clone()).axis_desc_style(text.clone()).x_desc(&self.x_label).y_desc(&self.y_label);
        mesh.x_label_formatter(&x_label).y_label_formatter(&|at| short(*at)).draw()?;
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let is_shown = |&(x, y): &(f64, f64)| x_axis.scale.place(x).is_some() && y_axis.scale.place(y).is_some();
            let points: Vec<_> = series.points.iter().copied().filter(is_shown).collect();
            if is_bars {
                let width = 0.8 / self.series.len() as f64;
                let bar = |&(x, y): &(f64, f64)| {
                    let left = x + (number as f64 - self.series.len() as f64 / 2.0) * width;
                    Rectangle::new([(left, y_axis.range().start), (left + width * 0.94, y)], colour.filled())
                };
                chart.draw_series(points.iter().map(bar))?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
                let marks = points.iter().filter(|_| points.len() <= MARKED);
                chart.draw_series(marks.map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        for (number, series) in self.series.iter().enumerate() {
            let x = 68 + (number % LEGEND_COLUMNS) as i32 * (SIZE.0 as i32 - 68) / LEGEND_COLUMNS as i32;
            let y = (number / LEGEND_COLUMNS) as i32 * LEGEND_LINE as i32;
            legend.draw(&Rectangle::new([(x, y + 2), (x + 10, y + 12)], COLOURS[number % COLOURS.len()].filled()))?;
            legend.draw(&Text::new(series.name.clone(), (x + 15, y + 1), text.clone()))?;
        }
        root.present()?;
        Ok(())
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }

    fn x_axis(&self) -> Axis {
        let mut values: Vec<f64> = self.points().map(|point| point.0).filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let nearest = |places: &[f64]| places.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        let scale = self.x_scale.unwrap_or(match values[..] {
            [least, .., most] if least > 0.0 && values.len() <= FEW && nearest(&values) < CLOSE * (most - least) => {
                Scale::Logarithmic
            }
            _ => Scale::Linear,
        });
        let axis = Axis::over(scale, values.iter().copied());
        if values.len() > FEW {
            return axis;
        }
        let values: Vec<f64> = values.into_iter().filter(|value| scale.place(*value).is_some()).collect();
        let places: Vec<f64> = values.iter().filter_map(|value| scale.place(*value)).collect();
        // Omit ticks whose numbers would run into each other.
        if values.is_empty() || nearest(&places) < (axis.high - axis.low) / 20.0 {
            axis
        } else {
            Axis { ticks: values, ..axis }
        }
    }
}

/// What an axis covers, and the values that have ticks.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    scale: Scale,
    /// The ends, on the scale: after the logarithm if there is one.
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (self.scale.place(*value).unwrap_or(self.low) - self.low) / (self.high - self.low);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.scale.value_at(self.low)..self.scale.value_at(self.high)
    }
}

impl Axis {
    fn of_categories(count: usize) -> Self {
        let ticks = (0..count).map(|place| place as f64).collect();
        Self { scale: Scale::Linear, low: -0.5, high: count as f64 - 0.5, ticks }
    }

    /// An axis with a margin on both sides.
    fn over(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = scale.ends(values);
        let margin = (high - low) * 0.04;
        Self::between(scale, low - margin, high + margin)
    }

    /// An axis that begins at zero, unless all values are so large that this would squeeze them together.
    fn from_zero_if_apart(scale: Scale, values: impl Iterator<Item = f64>, always: bool) -> Self {
        let (low, high) = scale.ends(values);
        let margin = (high - low) * 0.06;
        match scale {
            Scale::Linear if low >= 0.0 && (always || low < high / 2.0) => Self::between(scale, 0.0, high * 1.06),
            _ => Self::between(scale, low - margin, high + margin),
        }
    }

    fn between(scale: Scale, low: f64, high: f64) -> Self {
        let ticks = match scale {
            Scale::Linear => RangedCoordf64::from(low..high).key_points(TICKS),
            Scale::Logarithmic => {
                let range: LogCoord<f64> = (10_f64.powf(low)..10_f64.powf(high)).log_scale().into();
                let is_within = |value: &f64| (low..=high).contains(&value.log10());
                range.key_points(TICKS).into_iter().filter(is_within).collect()
            }
        };
        Self { scale, low, high, ticks }
    }
}

impl Scale {
    /// Returns the place of a value.
    fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear => value.is_finite().then_some(value),
            Self::Logarithmic => (value.is_finite() && value > 0.0).then(|| value.log10()),
        }
    }

    /// Returns the value at a place.
    fn value_at(self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Logarithmic => 10_f64.powf(place),
        }
    }

    /// The places of the least and the greatest value, which differ.
    fn ends(self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let places = values.filter_map(|value| self.place(value));
        let (low, high) =
            places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
        match (low, high) {
            (low, high) if low > high => (0.0, 1.0),
            (low, high) if high - low < 1e-12 => (low - 0.5, low + 0.5),
            ends => ends,
        }
    }
}

/// Escapes text for XML and HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with at most three digits and a unit prefix: `1.5 M`.
#[must_use]
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 || size.fract() < 1e-9 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 1.0, 0.25, 1.5, 20.0, 1234.0, 15_000.0, 2_500_000.0, 3e9, 0.001].map(short);
        assert_eq!(written, ["0", "1", "0.25", "1.5", "20", "1234", "15 k", "2.5 M", "3 G", "0.001"]);
    }

    fn texts(svg: &str) -> Vec<&str> {
        let texts = svg.split("</text>").filter_map(|part| part.rsplit('>').next());
        texts.map(str::trim).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn few_values_have_their_ticks() {
        let points = [1.0, 2.0, 4.0, 8.0, 16.0].map(|threads| (threads, threads * 1e6));
        let plot = Plot::lines("a < b", "threads", "y").with("one", points);
        let axis = plot.x_axis();
        assert_eq!(axis.scale, Scale::Logarithmic);
        assert_eq!(axis.ticks.iter().copied().map(short).collect::<Vec<_>>(), ["1", "2", "4", "8", "16"]);
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 5);
        for text in ["1", "2", "4", "8", "16", "threads", "one"] {
            assert!(texts(&svg).contains(&text), "{text}: {svg}");
        }
        let shares = [10.0, 25.0, 50.0, 75.0, 90.0].map(|share| (share, 1.0));
        let axis = Plot::lines("t", "reads, %", "y").with("one", shares).x_axis();
        assert_eq!((axis.scale, axis.ticks), (Scale::Linear, vec![10.0, 25.0, 50.0, 75.0, 90.0]));
    }

    #[test]
    fn points_are_not_squeezed_together() {
        let axis = |values: [f64; 2]| Axis::from_zero_if_apart(Scale::Linear, values.into_iter(), false);
        assert_eq!(axis([1.0, 10.0]).low, 0.0);
        assert!(axis([9.0, 10.0]).low > 8.0);
        assert_eq!(Axis::from_zero_if_apart(Scale::Linear, [9.0, 10.0].into_iter(), true).low, 0.0, "bars");
    }

    #[test]
    fn bars_stand_beside_their_categories() {
        let bars = Plot::bars("t", vec!["p".into(), "q".into()], "y").with("s", [(0.0, 1.0), (1.0, 2.0)]).svg();
        assert!(texts(&bars).contains(&"p") && texts(&bars).contains(&"q"), "{bars}");
        // The background, the bars and the entry of the legend.
        assert_eq!(bars.matches("<rect").count(), 1 + 2 + 1);
    }

    #[test]
    fn strange_values_do_not_panic() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for points in [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)], vec![(-1.0, -5.0)]] {
                let svg = Plot::lines("t", "x", "y").scaled(scale, scale).with("s", points).svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.trim_end().ends_with("</svg>"), "{svg}");
            }
        }
    }
}
