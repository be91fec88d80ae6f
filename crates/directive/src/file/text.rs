//! Text that names variables of the environment: `"Bearer ${env:ACME_TOKEN}"`.
//!
//! The variables are read when the text is needed, and what they hold is never shown (INV-8).

use std::fmt;

use stargate_base::Secret;

/// Text that may name variables of the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Secretive {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

/// A variable that is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {0} is not set")]
pub struct Unset(pub String);

impl Secretive {
    /// Reads the text; the problem if a reference is not closed or names no variable.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${env:") {
            let (name, after) = after.split_once('}').ok_or("has \"${env:\" without \"}\"")?;
            let is_name = !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !name.starts_with(|c: char| c.is_ascii_digit());
            if !is_name {
                return Err("names no environment variable; write \"${env:NAME}\"");
            }
            pieces.extend((!before.is_empty()).then(|| Piece::Text(before.to_owned())));
            pieces.push(Piece::Variable(name.to_owned()));
            rest = after;
        }
        pieces.extend((!rest.is_empty()).then(|| Piece::Text(rest.to_owned())));
        Ok(Self { pieces })
    }

    /// The text with the variables' values.
    pub fn reveal(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Secret, Unset> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Variable(name) => {
                    text.push_str(&environment(name).ok_or_else(|| Unset(name.clone()))?)
                }
            }
        }
        Ok(Secret::new(text))
    }

    /// The variables it names.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Variable(name) => Some(name.as_str()),
        })
    }
}

/// As it is written: with the names and not with the values.
impl fmt::Display for Secretive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Variable(name) => write!(f, "${{env:{name}}}"),
        })
    }
}

impl fmt::Debug for Secretive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_shown_by_name_only() {
        let text = Secretive::parse("Bearer ${env:A}.${env:B_2}!").unwrap();
        let revealed = text.reveal(|name| Some(format!("<{name}>"))).unwrap();
        assert_eq!(revealed.reveal(), "Bearer <A>.<B_2>!");
        assert_eq!(format!("{text} {text:?}"), "Bearer ${env:A}.${env:B_2}! \"Bearer ${env:A}.${env:B_2}!\"");
        assert_eq!(text.variables().collect::<Vec<_>>(), ["A", "B_2"]);
        assert_eq!(text.reveal(|_| None).unwrap_err(), Unset("A".to_owned()));
    }

    #[test]
    fn broken_references_are_refused() {
        for text in ["${env:A", "${env:}", "${env:1A}", "${env:a b}"] {
            assert!(Secretive::parse(text).is_err(), "{text}");
        }
        assert_eq!(Secretive::parse("$HOME {} ${x}").unwrap().to_string(), "$HOME {} ${x}");
    }
}
