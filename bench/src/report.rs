//! Figures, their medians, and what they are held against.

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which so many percent lie.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// One line: what, how much, which goal, reached or not.
pub(crate) fn line(what: &str, value: f64, unit: &str, goal: &Goal) {
    let verdict = match goal {
        Goal::None => String::new(),
        Goal::AtLeast(least) if value >= *least => format!("reached (at least {least})"),
        Goal::AtLeast(least) => format!("MISSED (at least {least})"),
        Goal::AtMost(most) if value <= *most => format!("reached (at most {most})"),
        Goal::AtMost(most) => format!("MISSED (at most {most})"),
    };
    let value = if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    println!("{what:<44} {value:>12} {unit:<10} {verdict}");
}

/// What a figure is held against.
pub(crate) enum Goal {
    None,
    AtLeast(f64),
    AtMost(f64),
}
