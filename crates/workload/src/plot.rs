//! Plots as SVG: lines or bars, with axes, ticks and a legend. No scripts, no fonts, no files.

use std::fmt::Write;

/// Size of a plot in pixels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
/// Margins of the plotted area: left, top, right, bottom.
const MARGIN: [f64; 4] = [70.0, 34.0, 14.0, 78.0];
/// Colours that are distinguishable without red-green vision.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#b8a800"];
/// Legend entries per line.
const LEGEND_COLUMNS: usize = 3;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Proportional, from zero.
    Linear,
    /// Logarithmic; values that are not positive are left out.
    Logarithmic,
}

/// A series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points; for bars, the x of each is the number of its category.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The heading.
    pub title: String,
    /// The label of the x axis, with its unit.
    pub x_label: String,
    /// The label of the y axis, with its unit.
    pub y_label: String,
    /// Names along the x axis. If there are any, the series are bars, otherwise lines.
    pub categories: Vec<String>,
    /// The scale of x, for lines.
    pub x_scale: Scale,
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
            x_scale: Scale::Linear,
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

    /// The plot with logarithmic axes as requested.
    #[must_use]
    pub const fn scaled(mut self, x_scale: Scale, y_scale: Scale) -> Self {
        self.x_scale = x_scale;
        self.y_scale = y_scale;
        self
    }

    /// The plot as an `svg` element, which is also a valid file.
    #[must_use]
    pub fn svg(&self) -> String {
        let is_bars = !self.categories.is_empty();
        let x_axis = if is_bars {
            Axis { scale: Scale::Linear, low: -0.5, high: self.categories.len() as f64 - 0.5 }
        } else {
            Axis::over(self.x_scale, self.points().map(|point| point.0), false)
        };
        let y_axis = Axis::over(self.y_scale, self.points().map(|point| point.1), true);
        let frame = Frame { x_axis, y_axis };
        let legend_lines = self.series.len().div_ceil(LEGEND_COLUMNS).saturating_sub(1) as f64;
        let height = HEIGHT + legend_lines * 14.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        text(&mut out, (WIDTH / 2.0, 18.0), "middle", "font-weight=\"bold\" font-size=\"13\"", &self.title);
        frame.draw_axes(&mut out, self);
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            if is_bars {
                frame.draw_bars(&mut out, &series.points, number, self.series.len(), colour);
            } else {
                frame.draw_line(&mut out, &series.points, colour);
            }
            legend(&mut out, number, colour, &series.name);
        }
        out.push_str("</svg>\n");
        out
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }
}

/// A range of values along a line of pixels.
#[derive(Debug, Clone, Copy)]
struct Axis {
    scale: Scale,
    /// Ends of the range, after the logarithm if there is one.
    low: f64,
    high: f64,
}

impl Axis {
    fn over(scale: Scale, values: impl Iterator<Item = f64>, with_zero: bool) -> Self {
        let values: Vec<f64> = values.filter_map(|value| scaled(scale, value)).collect();
        let mut low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        match scale {
            Scale::Linear if with_zero => {
                low = low.min(0.0);
                high += (high - low) * 0.05;
            }
            Scale::Linear => (),
            Scale::Logarithmic => (low, high) = (low.floor(), high.ceil()),
        }
        if high - low < 1e-12 {
            high = low + 1.0;
        }
        Self { scale, low, high }
    }

    /// The relative place of a value, from 0 to 1.
    fn share(&self, value: f64) -> Option<f64> {
        scaled(self.scale, value).map(|value| (value - self.low) / (self.high - self.low))
    }

    /// Values with a tick.
    fn ticks(&self) -> Vec<f64> {
        if self.scale == Scale::Logarithmic {
            let step = (((self.high - self.low) / 8.0).ceil() as i32).max(1);
            let exponents = (self.low as i32..=self.high as i32).step_by(step.unsigned_abs() as usize);
            return exponents.map(|exponent| 10_f64.powi(exponent)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * magnitude).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..first + 12).map(|number| number as f64 * step).take_while(|value| *value <= self.high + 1e-9).collect()
    }
}

fn scaled(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear => value.is_finite().then_some(value),
        Scale::Logarithmic => (value.is_finite() && value > 0.0).then(|| value.log10()),
    }
}

/// The plotted area.
struct Frame {
    x_axis: Axis,
    y_axis: Axis,
}

impl Frame {
    fn x(&self, value: f64) -> Option<f64> {
        self.x_axis.share(value).map(|share| MARGIN[0] + share * (WIDTH - MARGIN[0] - MARGIN[2]))
    }

    fn y(&self, value: f64) -> Option<f64> {
        self.y_axis.share(value).map(|share| HEIGHT - MARGIN[3] - share * (HEIGHT - MARGIN[1] - MARGIN[3]))
    }

    fn draw_axes(&self, out: &mut String, plot: &Plot) {
        let (left, top, right, bottom) = (MARGIN[0], MARGIN[1], WIDTH - MARGIN[2], HEIGHT - MARGIN[3]);
        for value in self.y_axis.ticks() {
            let Some(y) = self.y(value) else { continue };
            let _ = writeln!(out, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>");
            text(out, (left - 6.0, y + 4.0), "end", "", &short(value));
        }
        if plot.categories.is_empty() {
            for value in self.x_axis.ticks() {
                let Some(x) = self.x(value) else { continue };
                let _ = writeln!(out, "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#eee\"/>");
                text(out, (x, bottom + 15.0), "middle", "", &short(value));
            }
        }
        for (number, name) in plot.categories.iter().enumerate() {
            if let Some(x) = self.x(number as f64) {
                text(out, (x, bottom + 15.0), "middle", "", name);
            }
        }
        let _ = writeln!(out, "<path d=\"M{left} {top}V{bottom}H{right}\" stroke=\"black\" fill=\"none\"/>");
        text(out, ((left + right) / 2.0, bottom + 31.0), "middle", "", &plot.x_label);
        let middle = (top + bottom) / 2.0;
        text(out, (14.0, middle), "middle", &format!("transform=\"rotate(-90 14 {middle})\""), &plot.y_label);
    }

    fn draw_line(&self, out: &mut String, points: &[(f64, f64)], colour: &str) {
        let places: Vec<_> = points.iter().filter_map(|&(x, y)| Some((self.x(x)?, self.y(y)?))).collect();
        let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if path.len() > 1 {
            let path = path.join("L");
            let _ = writeln!(out, "<path d=\"M{path}\" stroke=\"{colour}\" stroke-width=\"1.6\" fill=\"none\"/>");
        }
        // Draws marks where they are distinguishable.
        for (x, y) in places.iter().filter(|_| places.len() <= 24) {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"/>");
        }
    }

    fn draw_bars(&self, out: &mut String, points: &[(f64, f64)], number: usize, of: usize, colour: &str) {
        let width = (self.x(1.0).unwrap_or(0.0) - self.x(0.0).unwrap_or(0.0)) * 0.8 / of.max(1) as f64;
        let bottom = HEIGHT - MARGIN[3];
        for &(category, value) in points {
            let (Some(x), Some(y)) = (self.x(category), self.y(value)) else { continue };
            let left = x + (number as f64 - of as f64 / 2.0) * width;
            let height = (bottom - y).max(0.0);
            let _ = writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
            );
        }
    }
}

fn legend(out: &mut String, number: usize, colour: &str, name: &str) {
    let column = (number % LEGEND_COLUMNS) as f64;
    let x = MARGIN[0] + column * (WIDTH - MARGIN[0]) / LEGEND_COLUMNS as f64;
    let y = HEIGHT - 24.0 + (number / LEGEND_COLUMNS) as f64 * 14.0;
    let _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>", y - 9.0);
    text(out, (x + 14.0, y), "start", "", name);
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, content: &str) {
    let content = escaped(content);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{content}</text>");
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

    #[test]
    fn every_point_lies_in_the_frame() {
        let plot = Plot::lines("a < b", "x", "y").with("one", [(0.0, 0.0), (5.0, 10.0)]).with("two", [(1.0, 3.0)]);
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 3);
        for part in svg.split("cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((MARGIN[0] - 0.1..=WIDTH - MARGIN[2] + 0.1).contains(&x), "{x}");
        }
        let bars = Plot::bars("t", vec!["p".into(), "q".into()], "y").with("s", [(0.0, 1.0), (1.0, 2.0)]).svg();
        assert_eq!(bars.matches("<rect").count(), 1 + 2 + 1);
    }

    #[test]
    fn strange_values_do_not_panic() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for points in [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)], vec![(-1.0, -5.0)]] {
                let svg = Plot::lines("t", "x", "y").scaled(scale, scale).with("s", points).svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
}
