//! What a form or a query says: pairs of text, in their order, each perhaps more than once.

use axum::Form;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::response::Response;

use super::Site;
use super::call::Failed;
use super::frame::bare_error;

/// The pairs of a query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    /// The first value of that name, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let of_name = self.0.iter().filter(|(found, _)| found == name);
        of_name.map(|(_, value)| value.trim()).find(|value| !value.is_empty())
    }

    /// The same, or nothing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// All values of that name that are not empty.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.0.iter().filter(move |(found, _)| found == name);
        of_name.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// A number that was asked for.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failed> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Failed::invalid(format!("{name}: {text:?} is not such a number")))
    }
}

impl FromRequestParts<Site> for Fields {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Response> {
        let query = Query::from_request_parts(parts, site).await;
        query
            .map(|Query(pairs)| Self(pairs))
            .map_err(|error| bare_error(site, &Failed::invalid(error.body_text())))
    }
}

/// The pairs of a form that was sent.
#[derive(Debug)]
pub(crate) struct Sent(pub(crate) Fields);

impl FromRequest<Site> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, site: &Site) -> Result<Self, Response> {
        let form = Form::from_request(request, site).await;
        form.map(|Form(pairs)| Self(Fields(pairs)))
            .map_err(|error| bare_error(site, &Failed::new(error.status(), "BAD_REQUEST", error.body_text())))
    }
}
