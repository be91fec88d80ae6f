//! Bars as SVG: no script, no font of its own, readable on a light and on a dark page.

use std::fmt::Write as _;

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// Ours, not a peer's or the raw limit.
    pub(crate) is_ours: bool,
}

/// Which bars are the good ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Longer,
    Shorter,
}

const WIDTH: f64 = 760.0;
const NAMES: f64 = 300.0;
const ROW: f64 = 26.0;
const TOP: f64 = 40.0;
/// Room for the number behind the longest bar.
const NUMBERS: f64 = 90.0;
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:15px}\
    .ours{fill:#2563eb}.other{fill:#9ca3af}\
    @media(prefers-color-scheme:dark){text{fill:#ddd}.ours{fill:#60a5fa}.other{fill:#6b7280}}";

/// A chart of bars, the best first.
pub(crate) fn bars(title: &str, unit: &str, better: Better, bars: &[Bar]) -> String {
    let mut bars = bars.to_vec();
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    let most = bars.last().map_or(1.0, |bar| bar.value).max(f64::MIN_POSITIVE);
    // Most charts are of rates, where it goes without saying.
    let hint = match better {
        Better::Shorter => ", lower is better",
        Better::Longer => {
            bars.reverse();
            ""
        }
    };
    let height = TOP + ROW * bars.len() as f64 + 10.0;
    let title = escape(&format!("{title}, {unit}{hint}"));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>{STYLE}</style>\n<text class=\"title\" x=\"8\" y=\"22\">{title}</text>\n"
    );
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let length = (bar.value / most * (WIDTH - NAMES - NUMBERS)).max(1.0);
        let class = if bar.is_ours { "ours" } else { "other" };
        let (text, end) = (y + 14.0, NAMES + length + 6.0);
        let (name, value) = (escape(&bar.name), thousands(bar.value));
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{NAMES}\" y=\"{y}\" width=\"{length:.1}\" height=\"18\" rx=\"2\"/>\
             <text x=\"{end:.1}\" y=\"{text}\">{value}</text>",
            NAMES - 8.0
        );
    }
    svg + "</svg>\n"
}

/// A number with commas, or with digits behind the point where it is small.
pub(crate) fn thousands(value: f64) -> String {
    if value.abs() < 100.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_bar_comes_first_and_names_are_escaped() {
        let bar = |name: &str, value, is_ours| Bar { name: name.into(), value, is_ours };
        let both = [bar("a<b & c", 10.0, false), bar("ours", 20_000.0, true)];
        let is_ours_first = |svg: &str| svg.find(">ours<").unwrap() < svg.find("a&lt;b &amp; c").unwrap();
        let svg = bars("drain", "jobs/s", Better::Longer, &both);
        assert!(is_ours_first(&svg) && svg.contains(">drain, jobs/s<"), "{svg}");
        assert!(svg.contains("class=\"ours\"") && svg.contains(">20,000<"), "{svg}");
        let svg = bars("start", "ms", Better::Shorter, &both);
        assert!(!is_ours_first(&svg) && svg.contains(">start, ms, lower is better<"), "{svg}");
        assert_eq!(bars("empty", "s", Better::Longer, &[]).matches("<rect").count(), 0);
    }

    #[test]
    fn numbers_are_as_people_write_them() {
        let shown = [0.5, 12.0, 12.345, 100.0, 1234.0, 1_234_567.0, -1234.0].map(thousands);
        assert_eq!(shown, ["0.5", "12", "12.35", "100", "1,234", "1,234,567", "-1,234"]);
    }
}
