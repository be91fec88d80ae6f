//! How a command fails: an exit code, a stable code, a message, and what to do next.

use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan};
use stargate_base::chain;
use stargate_queue::Error;

/// The result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit codes; documented in `stargate --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The work itself failed.
    Failed = 1,
    /// Wrong arguments or a wrong configuration.
    Usage = 2,
    /// Nothing of that name.
    NotFound = 3,
    /// Not possible in the present state.
    Conflict = 4,
    /// Bad input, or the store, a file or the network did not work.
    Input = 5,
    /// Another node leads, or none.
    NotLeader = 9,
    /// Waited long enough.
    TimedOut = 10,
    /// Both sides differ in a way that is not ours to settle.
    Refused = 11,
    /// A signal ended it before its work was done.
    Killed = 130,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    place: Option<Box<Place>>,
}

/// Where in a file the cause is.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    text: String,
    span: Range<usize>,
    label: String,
}

impl Failure {
    /// A failure with a stable code.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self { exit, code: code.to_owned(), message: message.into(), help: None, place: None }
    }

    /// Input that cannot be used.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(Exit::Input, "INVALID", message)
    }

    /// A file, a socket or a directory that did not work.
    pub(crate) fn io(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::new(Exit::Input, "IO", format!("{what}: {error}"))
    }

    /// A configuration that is refused.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "CONFIG_INVALID", message)
    }

    /// The work itself failed.
    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, code, message)
    }

    /// With what to do next.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With the place in a file; `label` stands under the caret.
    #[must_use]
    pub(crate) fn at(
        mut self,
        path: &Path,
        text: &str,
        span: Range<usize>,
        label: impl Into<String>,
    ) -> Self {
        let place = Place { path: path.to_owned(), text: text.to_owned(), span, label: label.into() };
        self.place = Some(Box::new(place));
        self
    }

    /// Path, line and column of the cause, from 1.
    pub(crate) fn position(&self) -> Option<(&Path, usize, usize)> {
        let place = self.place.as_deref()?;
        let (line, column) = line_column(&place.text, place.span.start);
        Some((&place.path, line, column))
    }

    /// The failure for people, with escape codes for colour.
    pub(crate) fn render(&self) -> String {
        if self.place.is_none() {
            return self.render_plain();
        }
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(100);
        let mut text = String::new();
        match handler.render_report(&mut text, &Snippet(self)) {
            Ok(()) => text.trim_end().to_owned(),
            Err(_) => self.render_plain(),
        }
    }

    fn render_plain(&self) -> String {
        use owo_colors::OwoColorize as _;
        let mut text = format!("{} {}", "error:".red().bold(), self.message);
        for line in self.help.iter().flat_map(|help| help.lines()) {
            text.push_str(&format!("\n  {} {line}", "next:".cyan()));
        }
        text
    }

    /// The failure for programs.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let mut error = serde_json::json!({ "code": self.code, "message": self.message, "help": self.help });
        if let Some((path, line, column)) = self.position() {
            error["file"] = path.display().to_string().into();
            error["line"] = line.into();
            error["column"] = column.into();
        }
        serde_json::json!({ "error": error })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit code that tells what a store refused.
pub(crate) fn exit_of(error: &Error) -> Exit {
    match error {
        Error::NotFound { .. } => Exit::NotFound,
        Error::WrongState { .. } | Error::Conflict { .. } => Exit::Conflict,
        Error::QueueFull { .. } => Exit::Failed,
        Error::Deposed { .. } => Exit::NotLeader,
        _ => Exit::Input,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let error = match error {
            // What a node refused comes through as it was told: see `remote.rs`.
            Error::Store { source, .. } if source.is::<Self>() => match source.downcast() {
                Ok(failure) => return *failure,
                Err(_) => return Self::input("the node refused, and why was lost"),
            },
            other => other,
        };
        let exit = exit_of(&error);
        let help = match &error {
            Error::UnknownKind { kind, .. } => Some(format!(
                "describe it in stargate.toml under [kinds.\"{kind}\"], or start the worker that serves it first"
            )),
            Error::NotFound { what: "job", .. } => {
                Some("'stargate job list' shows the jobs there are".to_owned())
            }
            Error::NotFound { what, .. } => Some(format!("'stargate {what} list' shows what there is")),
            Error::Store { .. } => Some("'stargate doctor' checks the store and says what to do".to_owned()),
            _ => None,
        };
        let mut failure = Self::new(exit, error.code(), chain(&error));
        failure.help = help;
        failure
    }
}

impl From<stargate_mirror::Error> for Failure {
    fn from(error: stargate_mirror::Error) -> Self {
        use stargate_mirror::Error;
        let (exit, help) = match error {
            Error::Git(error) => return error.into(),
            Error::NoDeadLetter { .. } => {
                (Exit::NotFound, Some("'stargate mirror dead-letter list' shows what there is"))
            }
            Error::NotRequeueable { .. } => (Exit::Conflict, None),
            Error::Locked { .. } => {
                (Exit::Conflict, Some("end the other one, or let it do the work: there may be one only"))
            }
            Error::NotLeader => (Exit::NotLeader, Some("'stargate leader status' tells which node leads")),
            Error::Full { .. } => (Exit::Input, Some("make room and try again; nothing was lost")),
            _ => (Exit::Input, None),
        };
        let failure = Self::new(exit, error.code(), chain(&error));
        help.into_iter().fold(failure, Self::help)
    }
}

impl From<stargate_git::Error> for Failure {
    fn from(error: stargate_git::Error) -> Self {
        use stargate_git::Error;
        let help = match &error {
            Error::Start { .. } => Some("is git installed? 'stargate doctor' checks it"),
            Error::Failed { .. } | Error::TimedOut { .. } => Some(
                "check the remote's URL and what lets you in there; mirror.protocols lists the transports allowed",
            ),
            _ => None,
        };
        let failure = Self::new(Exit::Input, error.code(), chain(&error));
        help.into_iter().fold(failure, Self::help)
    }
}

impl From<Failure> for stargate_web::Refusal {
    fn from(failure: Failure) -> Self {
        use stargate_web::Why;
        let why = match failure.exit {
            Exit::NotFound => Why::Missing,
            Exit::Conflict | Exit::Refused => Why::Conflict,
            Exit::Input if failure.code == "INVALID" => Why::Invalid,
            // Asking again does not help, and the request is not what is wrong: somebody has to mend the file.
            Exit::Input if failure.code == "DIRECTIVE_INVALID" => Why::Conflict,
            Exit::Failed if failure.code == "INTERNAL" => Why::Failed,
            Exit::Usage => Why::Failed,
            _ => Why::Unavailable,
        };
        Self::new(why, failure.code, failure.message)
    }
}

/// What miette draws.
#[derive(Debug)]
struct Snippet<'a>(&'a Failure);

impl std::fmt::Display for Snippet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Snippet<'_> {}

impl miette::Diagnostic for Snippet<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.0.place.as_deref().map(|place| place as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.0.place.as_deref()?;
        let label = LabeledSpan::new_with_span(Some(place.label.clone()), place.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

impl miette::SourceCode for Place {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let contents = self.text.read_span(span, lines_before, lines_after)?;
        Ok(Box::new(miette::MietteSpanContents::new_named(
            self.path.display().to_string(),
            contents.data(),
            *contents.span(),
            contents.line(),
            contents.column(),
            contents.line_count(),
        )))
    }
}

/// Line and column of a byte, both from 1; columns count characters.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_file_line_column_and_caret() {
        let text = "[worker]\nconcurency = 4\n";
        let failure =
            Failure::config("unknown key").at(Path::new("stargate.toml"), text, 9..19, "here").help("try x");
        assert_eq!(failure.position().map(|(_, line, column)| (line, column)), Some((2, 1)));
        let shown = anstream::adapter::strip_str(&failure.render()).to_string();
        assert!(shown.contains("stargate.toml:2:1"), "{shown}");
        assert!(shown.contains("concurency = 4") && shown.contains("try x"), "{shown}");
    }
}
