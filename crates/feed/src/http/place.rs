//! Where in a JSON API we are, what to ask for there, and what comes after an answer. Decides; asks nobody.
//!
//! A place is written as the directive's pointer. It holds what is needed to go on and to notice that the source moved
//! under our feet, and never the place before it.

use serde::{Deserialize, Serialize};
use stargate_directive::Pointer;
use stargate_directive::file::Pagination;

/// Where we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// There is one page.
    Whole,
    Page(PagePlace),
    Offset(OffsetPlace),
    Token(TokenPlace),
}

/// By the number of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PagePlace {
    page: u64,
    /// What pages are asked to have. Another size would move the borders of all pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    /// What pages have, all but the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    full: Option<u64>,
    /// What the page before had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    /// Records of all pages before.
    #[serde(default)]
    seen: u64,
    /// What the source said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

/// By the number of records before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OffsetPlace {
    offset: u64,
    /// What the source said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

/// By what the page before said: a cursor or a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenPlace {
    /// Null for the first page.
    pub(super) next: Option<String>,
    /// Records of all pages before.
    #[serde(default)]
    seen: u64,
}

/// What to ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask<'p> {
    /// The address as it is.
    Plain,
    /// With a parameter.
    Param(&'p str, String),
    /// Another address.
    Link(&'p str),
}

/// What an answer said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Answer {
    /// Records in it.
    pub(super) count: u64,
    /// What comes after it, for cursors and links.
    pub(super) next: Option<String>,
    /// How many records there are, if the directive says where that stands.
    pub(super) total: Option<u64>,
}

/// What comes after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Onward {
    /// Where to go on; after the last page, where a later run finds what was added.
    pub(super) place: Place,
    pub(super) is_last: bool,
}

/// What does not hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Odd {
    /// The next page is this one.
    Loop { bytes: usize },
    /// Borders have moved: records may have been passed over.
    Shifted(String),
    /// The end came before all records.
    Incomplete { seen: u64, total: u64 },
}

impl Place {
    /// The place that a pointer names; `None` if it names none of this kind.
    pub(super) fn read(pointer: &Pointer, pagination: &Pagination) -> Option<Self> {
        if pointer.is_null() {
            return Some(Self::beginning(pagination));
        }
        match pagination {
            Pagination::None => None,
            Pagination::Page { .. } => Deserialize::deserialize(pointer).ok().map(Self::Page),
            Pagination::Offset { .. } => Deserialize::deserialize(pointer).ok().map(Self::Offset),
            Pagination::Cursor { .. } | Pagination::Link => {
                Deserialize::deserialize(pointer).ok().map(Self::Token)
            }
        }
    }

    fn beginning(pagination: &Pagination) -> Self {
        match pagination {
            Pagination::None => Self::Whole,
            Pagination::Page { start, .. } => Self::Page(PagePlace {
                page: *start,
                size: None,
                full: None,
                before: None,
                seen: 0,
                total: None,
            }),
            Pagination::Offset { .. } => Self::Offset(OffsetPlace { offset: 0, total: None }),
            Pagination::Cursor { .. } | Pagination::Link => Self::Token(TokenPlace { next: None, seen: 0 }),
        }
    }

    /// The place as a pointer.
    pub(super) fn write(&self) -> Pointer {
        let written = match self {
            Self::Whole => return Pointer::Null,
            Self::Page(place) => serde_json::to_value(place),
            Self::Offset(place) => serde_json::to_value(place),
            Self::Token(TokenPlace { next: None, .. }) => return Pointer::Null,
            Self::Token(place) => serde_json::to_value(place),
        };
        written.unwrap_or_default()
    }

    /// How many records to ask for, and what else.
    pub(super) fn ask<'p>(&'p mut self, size: u32, pagination: &'p Pagination) -> (u32, Ask<'p>) {
        match (self, pagination) {
            (Self::Page(place), Pagination::Page { param, .. }) => {
                let size = *place.size.get_or_insert(size);
                (size, Ask::Param(param, place.page.to_string()))
            }
            (Self::Offset(place), Pagination::Offset { param }) => {
                (size, Ask::Param(param, place.offset.to_string()))
            }
            (Self::Token(TokenPlace { next: Some(next), .. }), Pagination::Cursor { param, .. }) => {
                (size, Ask::Param(param, next.clone()))
            }
            (Self::Token(TokenPlace { next: Some(next), .. }), Pagination::Link) => (size, Ask::Link(next)),
            _ => (size, Ask::Plain),
        }
    }

    /// What comes after this answer.
    pub(super) fn onward(&self, answer: &Answer, start: u64) -> Result<Onward, Odd> {
        match self {
            Self::Whole => {
                complete(answer.count, answer.total)?;
                Ok(Onward { place: Self::Whole, is_last: true })
            }
            Self::Page(place) => place.onward(answer, start),
            Self::Offset(place) => place.onward(answer),
            Self::Token(place) => place.onward(answer),
        }
    }
}

impl PagePlace {
    fn onward(&self, answer: &Answer, start: u64) -> Result<Onward, Odd> {
        unshrunk(self.total, answer.total)?;
        let (count, seen) = (answer.count, self.seen + answer.count);
        let full = self.full.unwrap_or(count);
        if count > 0 {
            let is_before_short = self.before.is_some_and(|before| before < full);
            if is_before_short || count > full {
                return Err(Odd::Shifted(format!(
                    "page {} has {count} records, the one before had {}, and full ones have {full}",
                    self.page,
                    self.before.unwrap_or(full)
                )));
            }
        } else {
            complete(seen, answer.total)?;
        }
        let is_last = count == 0 || answer.total.is_some_and(|total| seen >= total);
        let place = match (is_last, count) {
            // What is added will stand in the last page that had records, unless that is full.
            (true, 0) => self.back(start, answer.total),
            (true, count) if self.full.is_none_or(|full| count < full) => {
                Self { total: answer.total, ..self.clone() }
            }
            _ => Self {
                page: self.page + 1,
                size: self.size,
                full: Some(full),
                before: Some(count),
                seen,
                total: answer.total,
            },
        };
        Ok(Onward { place: Place::Page(place), is_last })
    }

    /// The page before this one, to be read again.
    fn back(&self, start: u64, total: Option<u64>) -> Self {
        let Some(before) = self.before.filter(|_| self.page > start) else {
            return Self { total, ..self.clone() };
        };
        let page = self.page - 1;
        Self {
            page,
            size: self.size,
            // Of a single page nobody knows whether it was full.
            full: self.full.filter(|_| page > start),
            before: None,
            seen: self.seen - before.min(self.seen),
            total,
        }
    }
}

impl OffsetPlace {
    fn onward(&self, answer: &Answer) -> Result<Onward, Odd> {
        unshrunk(self.total, answer.total)?;
        let offset = self.offset + answer.count;
        if answer.count == 0 {
            complete(offset, answer.total)?;
        }
        let is_last = answer.count == 0 || answer.total.is_some_and(|total| offset >= total);
        Ok(Onward { place: Place::Offset(Self { offset, total: answer.total }), is_last })
    }
}

impl TokenPlace {
    fn onward(&self, answer: &Answer) -> Result<Onward, Odd> {
        let seen = self.seen + answer.count;
        let Some(next) = answer.next.as_ref().filter(|next| !next.is_empty()) else {
            complete(seen, answer.total)?;
            // What is added will stand in this page or after it.
            return Ok(Onward { place: Place::Token(self.clone()), is_last: true });
        };
        if self.next.as_ref() == Some(next) {
            return Err(Odd::Loop { bytes: next.len() });
        }
        Ok(Onward { place: Place::Token(Self { next: Some(next.clone()), seen }), is_last: false })
    }
}

/// At the end there must have been as many records as the source says.
fn complete(seen: u64, total: Option<u64>) -> Result<(), Odd> {
    match total {
        Some(total) if seen < total => Err(Odd::Incomplete { seen, total }),
        _ => Ok(()),
    }
}

/// When records go, those behind them move forward over a border that was passed already.
fn unshrunk(before: Option<u64>, now: Option<u64>) -> Result<(), Odd> {
    match (before, now) {
        (Some(before), Some(now)) if now < before => {
            Err(Odd::Shifted(format!("there were {before} records and now there are {now}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
