//! An error with its causes, for people.

use std::error::Error;

/// An error with all its causes in one line. Many errors tell their cause themselves; then it is not told again.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let layers =
            ["no route", "HTTP error: timed out", "error in 3s - HTTP error: timed out", "cannot read x"];
        let mut error = None;
        for text in layers {
            error = Some(Box::new(Layer { text, source: error }));
        }
        let error = error.unwrap();
        assert_eq!(chain(&*error), "cannot read x: error in 3s - HTTP error: timed out: no route");
    }
}
