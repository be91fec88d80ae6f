//! The history of leadership, as the store keeps it.

use jiff::Timestamp;
use stargate_base::Epoch;

use crate::error::{Error, Result};

/// The most terms a store lists at once.
pub const TERMS_MAX: u32 = 500;

/// The longest name of an instance, in bytes.
const INSTANCE_MAX: usize = 255;
/// The longest address, in bytes.
const ADDRESS_MAX: usize = 2048;
/// The longest reason, in bytes.
const REASON_MAX: usize = 255;

/// Why a term ended whose node did not say so before its successor began.
pub const SUPERSEDED: &str = "superseded";

/// A term of leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermRow {
    /// Its number.
    pub epoch: Epoch,
    /// The node that led.
    pub instance: String,
    /// Where that node said it could be reached.
    pub address: Option<String>,
    /// When it began, by the store's clock.
    pub began_at: Timestamp,
    /// When it ended; `None` while it goes on.
    pub ended_at: Option<Timestamp>,
    /// Why it ended: what the node said, or [`SUPERSEDED`].
    pub reason: Option<String>,
}

/// Pairs of neighbouring terms of which the earlier has no end or ended after the later began. The newest may be open.
/// A store that keeps rule 27 has none.
pub fn overlaps(terms: &[TermRow]) -> Vec<(Epoch, Epoch)> {
    let mut terms: Vec<&TermRow> = terms.iter().collect();
    terms.sort_by_key(|term| term.epoch);
    let overlap = |pair: &&[&TermRow]| pair[0].ended_at.is_none_or(|end| end > pair[1].began_at);
    terms.windows(2).filter(overlap).map(|pair| (pair[0].epoch, pair[1].epoch)).collect()
}

/// Refuses what a store could not keep of a new term.
pub fn check_term(instance: &str, address: Option<&str>) -> Result<()> {
    if instance.is_empty() || instance.len() > INSTANCE_MAX || instance.contains('\0') {
        let problem = format!("{instance:?} is not a name of 1 to {INSTANCE_MAX} bytes");
        return Err(Error::invalid("instance", problem));
    }
    match address {
        Some(address) if address.len() > ADDRESS_MAX || address.contains('\0') => {
            Err(Error::invalid("address", format!("is not text of at most {ADDRESS_MAX} bytes")))
        }
        _ => Ok(()),
    }
}

/// Refuses what a store could not keep of the end of a term.
pub fn check_reason(reason: &str) -> Result<()> {
    if reason.is_empty() || reason.len() > REASON_MAX || reason.contains('\0') {
        return Err(Error::invalid("reason", format!("is not text of 1 to {REASON_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(epoch: u64, began: i64, ended: Option<i64>) -> TermRow {
        let at = |second| Timestamp::from_second(second).unwrap();
        TermRow {
            epoch: Epoch::new(epoch),
            instance: format!("node-{epoch}"),
            address: None,
            began_at: at(began),
            ended_at: ended.map(at),
            reason: ended.map(|_| SUPERSEDED.to_owned()),
        }
    }

    fn found(terms: &[TermRow]) -> Vec<(u64, u64)> {
        overlaps(terms).into_iter().map(|(a, b)| (a.get(), b.get())).collect()
    }

    #[test]
    fn terms_that_touch_do_not_overlap_and_the_newest_may_be_open() {
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[term(1, 10, None)]), []);
        assert_eq!(found(&[term(3, 30, None), term(2, 20, Some(30)), term(1, 10, Some(15))]), []);
    }

    #[test]
    fn an_end_after_the_next_beginning_or_none_at_all_is_an_overlap_in_whatever_order() {
        let late = [term(1, 10, Some(21)), term(2, 20, Some(30)), term(3, 30, None)];
        assert_eq!(found(&late), [(1, 2)]);
        let open = [term(3, 30, None), term(2, 20, None), term(1, 10, None)];
        assert_eq!(found(&open), [(1, 2), (2, 3)]);
    }

    #[test]
    fn a_missing_term_in_between_hides_nothing() {
        assert_eq!(found(&[term(5, 50, None), term(2, 20, Some(60))]), [(2, 5)]);
    }

    #[test]
    fn names_and_reasons_that_no_store_could_keep_are_refused() {
        assert!(check_term("node-1", Some("http://10.0.0.1:8080")).is_ok());
        assert!(check_term("", None).is_err());
        assert!(check_term("a\0b", None).is_err());
        assert!(check_term("a", Some(&"x".repeat(ADDRESS_MAX + 1))).is_err());
        assert!(check_reason("").is_err());
        assert!(check_reason("step-down").is_ok());
    }
}
