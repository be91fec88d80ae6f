//! Who led when, as a strip: terms beside each other in the order of time, each as wide as it was long.

use jiff::Timestamp;

use super::html;
use crate::api::types::leader::Term;

/// The width of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
/// A term is never narrower, or nobody would see it.
const WIDTH_MIN: f64 = 2.0;

/// A term in the drawing.
#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) x: String,
    pub(crate) width: String,
    pub(crate) class: &'static str,
    pub(crate) title: String,
}

/// A strip.
#[derive(Debug)]
pub(crate) struct Strip {
    pub(crate) blocks: Vec<Block>,
    pub(crate) from: String,
    pub(crate) until: String,
    /// What was checked, in words.
    pub(crate) verdict: String,
    pub(crate) is_clean: bool,
}

/// Draws terms, newest first as they come, up to now.
pub(crate) fn draw(terms: &[Term], overlaps: &[(u64, u64)], now: Timestamp) -> Option<Strip> {
    let first = terms.iter().map(|term| term.began_at).min()?;
    let last = terms.iter().filter_map(|term| term.ended_at).fold(now, Timestamp::max);
    let length = last.duration_since(first).as_secs_f64().max(1.0);
    let place = |at: Timestamp| at.duration_since(first).as_secs_f64() / length * WIDTH;
    let mut instances: Vec<&str> = Vec::new();
    let mut blocks = Vec::with_capacity(terms.len());
    for term in terms.iter().rev() {
        let (from, to) = (place(term.began_at), place(term.ended_at.unwrap_or(now)));
        let width = (to - from).max(WIDTH_MIN);
        let number = instances.iter().position(|name| *name == term.instance).unwrap_or_else(|| {
            instances.push(&term.instance);
            instances.len() - 1
        });
        let clash = overlaps.iter().any(|(a, b)| *a == term.epoch || *b == term.epoch);
        let class = match (clash, term.ended_at.is_none(), number % 2) {
            (true, ..) => "clash",
            (_, true, _) => "term",
            (_, _, 0) => "term past",
            _ => "term alt",
        };
        let ended = term.ended_at.map_or_else(|| "now".to_owned(), |at| html::instant(&at));
        let title =
            format!("{}, epoch {}: {} to {ended}", term.instance, term.epoch, html::instant(&term.began_at));
        blocks.push(Block { x: format!("{from:.1}"), width: format!("{width:.1}"), class, title });
    }
    let is_clean = overlaps.is_empty();
    let verdict = match overlaps.first() {
        None if terms.len() == 1 => "There was one term so far.".to_owned(),
        None => {
            format!("Of the last {} terms no two were at the same time, by the store's clock.", terms.len())
        }
        Some((a, b)) => {
            format!("The terms {a} and {b} overlap. Two nodes led at once: this must never happen.")
        }
    };
    Some(Strip { blocks, from: html::instant(&first), until: html::instant(&last), verdict, is_clean })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(epoch: u64, instance: &str, began: i64, ended: Option<i64>) -> Term {
        let at = |second| Timestamp::from_second(second).unwrap();
        Term {
            epoch,
            instance: instance.into(),
            address: None,
            began_at: at(began),
            ended_at: ended.map(at),
            reason: None,
        }
    }

    #[test]
    fn terms_fill_the_strip_in_the_order_of_time() {
        let terms = [term(2, "b", 150, None), term(1, "a", 100, Some(150))];
        let strip = draw(&terms, &[], Timestamp::from_second(200).unwrap()).unwrap();
        let places: Vec<_> =
            strip.blocks.iter().map(|block| (block.x.as_str(), block.width.as_str(), block.class)).collect();
        assert_eq!(places, [("0.0", "500.0", "term past"), ("500.0", "500.0", "term")]);
        assert!(
            strip.is_clean && strip.verdict.starts_with("Of the last 2 terms no two"),
            "{}",
            strip.verdict
        );
    }

    #[test]
    fn an_overlap_is_said_and_shown_and_no_terms_are_no_strip() {
        let terms = [term(2, "b", 140, None), term(1, "a", 100, Some(150))];
        let strip = draw(&terms, &[(1, 2)], Timestamp::from_second(200).unwrap()).unwrap();
        assert!(!strip.is_clean && strip.blocks.iter().all(|block| block.class == "clash"));
        assert!(draw(&[], &[], Timestamp::UNIX_EPOCH).is_none());
    }
}
