//! The operator's query and the statements around it.

use std::ops::Range;

use stargate_base::ErrorClass;
use stargate_directive::source::SourceError;

use super::error::QUERY;

/// A template of a statement around the query.
macro_rules! around {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/databases/", $name, ".sql"))
    };
}
pub(super) use around;

/// A query and its column that rises.
#[derive(Debug, Clone)]
pub(super) struct Query {
    text: String,
    /// In double quotes.
    watermark: String,
}

/// A statement with the query in it.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) text: String,
    /// Where the query stands in it, in bytes.
    query: Range<usize>,
}

impl Query {
    /// A semicolon at the end of the query is passed over: it stands within another one.
    pub(super) fn new(text: &str, watermark: &str) -> Result<Self, SourceError> {
        let text = text.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
        if text.trim().is_empty() {
            return Err(SourceError::new(
                ErrorClass::ValidationFailure,
                QUERY,
                "the query of the source is empty; write a SELECT with the watermark among its columns",
            ));
        }
        Ok(Self { text: text.to_owned(), watermark: format!("\"{}\"", watermark.replace('"', "\"\"")) })
    }

    /// The watermark as statements name it.
    pub(super) fn watermark(&self) -> &str {
        &self.watermark
    }

    /// Fills a template. The query goes in last, so that nothing in it is taken for a place.
    pub(super) fn within(&self, template: &str, places: &[(&str, &str)]) -> Statement {
        const QUERY_PLACE: &str = "{query}";
        let mut text = template.to_owned();
        for (place, filling) in places {
            text = text.replace(place, filling);
        }
        text = text.replace("{watermark}", &self.watermark);
        let begin = text.find(QUERY_PLACE).unwrap_or(text.len());
        text = text.replacen(QUERY_PLACE, &self.text, 1);
        Statement { text, query: begin..begin + self.text.len() }
    }
}

impl Statement {
    /// Line and column, from 1, of a byte of the statement if it stands in the query.
    pub(super) fn place(&self, byte: usize) -> Option<(usize, usize)> {
        if !self.query.contains(&byte) {
            return None;
        }
        let before = self.text.get(self.query.start..byte)?;
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Some((line, column))
    }

    /// The byte of a character, from 1.
    pub(super) fn byte_of(&self, character: usize) -> usize {
        self.text.char_indices().nth(character.saturating_sub(1)).map_or(self.text.len(), |(byte, _)| byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_at_the_end_is_passed_over_and_an_empty_query_refused() {
        let query = Query::new("select 1 as a ; \n;", "a").unwrap();
        assert_eq!(query.within("({query})", &[]).text, "(select 1 as a)");
        assert_eq!(Query::new(" ;", "a").unwrap_err().code, QUERY);
    }

    #[test]
    fn what_looks_like_a_place_in_a_query_is_left_alone() {
        let query = Query::new("select '{size} {watermark} {query}' as a", "a\"b").unwrap();
        let statement = query.within("{size} {watermark} {query}", &[("{size}", "7")]);
        assert_eq!(statement.text, "7 \"a\"\"b\" select '{size} {watermark} {query}' as a");
    }

    #[test]
    fn places_are_told_as_in_the_query() {
        let query = Query::new("select ü,\n  oops", "a").unwrap();
        let statement = query.within("before\n{query}\nafter", &[]);
        let byte = statement.text.find("oops").unwrap();
        assert_eq!(statement.place(byte), Some((2, 3)));
        assert_eq!(statement.byte_of(statement.text[..byte].chars().count() + 1), byte);
        assert_eq!(statement.place(0), None);
        assert_eq!(statement.place(statement.text.len() - 1), None);
    }
}
