//! What is around every page: who looks, what they may do, where they are; and how a page ends, as HTML or elsewhere.

use std::sync::LazyLock;

use askama::Template;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html as HtmlResponse, IntoResponse, Response};
use jiff::Timestamp;
use stargate_base::clock;

use super::call::{Api, Failed};
use super::html::encode;
use super::{Site, assets};
use crate::api::types::access::Whoami;
use crate::api::types::leader as leader_types;
use crate::caller::LOCAL;

/// Carries what was done to the page that is shown next.
const FLASH: &str = "stargate_flash";
/// Longer is not carried in a cookie.
const FLASH_CHARS_MAX: usize = 700;

/// Somebody at a page.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) site: Site,
    pub(crate) api: Api,
    pub(crate) who: Whoami,
    /// Path and query, without the base.
    pub(crate) at: String,
    flash: Option<Flash>,
}

/// What is told on the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flash {
    pub(crate) is_bad: bool,
    pub(crate) text: String,
}

/// How a page ends without being shown.
pub(crate) enum Ends {
    /// With an error, in the frame of the page.
    Failed(Box<Visit>, Failed),
    /// With another answer.
    Answer(Box<Response>),
}

/// What a page is asked for comes to.
pub(crate) type Shown = std::result::Result<Response, Ends>;

impl FromRequestParts<Site> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Response> {
        let api = Api::new(&site.0.api, parts);
        let at = parts.uri.path_and_query().map_or("/", |at| at.as_str()).to_owned();
        let who = match api.get::<Whoami>("/whoami").await {
            Ok(who) => who,
            Err(failed) if failed.status == StatusCode::UNAUTHORIZED => {
                return Err(see_other(site, &format!("/login?next={}", encode(&at))));
            }
            Err(failed) => return Err(bare_error(site, &failed)),
        };
        Ok(Self { site: site.clone(), api, who, at, flash: flash(&parts.headers) })
    }
}

impl Visit {
    /// What the layout needs. `here` is the entry of the side bar.
    pub(crate) fn frame(&self, title: impl Into<String>, here: &'static str) -> Frame {
        let about = &self.site.0.shared.about;
        let standing = self.site.0.shared.leadership.as_ref().map(stargate_leader::Leadership::standing);
        Frame {
            base: self.site.base().to_owned(),
            title: title.into(),
            here,
            at: self.at.clone(),
            instance: about.instance.clone(),
            version: about.version.clone(),
            node_role: standing.as_ref().map(leader_types::role),
            who: self.who.name.clone(),
            role: self.who.role.clone().unwrap_or_default(),
            read_only: self.who.read_only,
            signed_in: self.who.name != LOCAL,
            flash: self.flash.clone(),
            now: clock::wall(),
        }
    }

    /// Shows a page.
    pub(crate) fn show(&self, page: &impl Template) -> Shown {
        Ok(self.show_as(StatusCode::OK, page))
    }

    pub(crate) fn show_as(&self, status: StatusCode, page: &impl Template) -> Response {
        let mut response = render(status, page);
        if self.flash.is_some() {
            set_cookie(&mut response, &cookie(FLASH, "", self.site.base(), Some(0)));
        }
        response
    }

    /// Goes on to another page and tells there what was done.
    pub(crate) fn done(&self, to: &str, text: impl Into<String>) -> Shown {
        self.leave(to, Flash { is_bad: false, text: text.into() })
    }

    /// Goes on to another page and tells there what was not.
    pub(crate) fn refused(&self, to: &str, failed: &Failed) -> Shown {
        let text = format!("{}: {}", failed.code, failed.message);
        self.leave(to, Flash { is_bad: true, text })
    }

    /// Does what the answer of a change asks for: tells it, or what went wrong, on the page named.
    pub(crate) fn after<T>(
        &self,
        to: &str,
        done: super::call::Answer<T>,
        tell: impl FnOnce(T) -> String,
    ) -> Shown {
        match done {
            Ok(done) => self.done(to, tell(done)),
            Err(failed) if failed.status == StatusCode::UNAUTHORIZED => {
                Ok(see_other(&self.site, &format!("/login?next={}", encode(to))))
            }
            Err(failed) => self.refused(to, &failed),
        }
    }

    fn leave(&self, to: &str, flash: Flash) -> Shown {
        let mut response = see_other(&self.site, to);
        let mark = if flash.is_bad { "!" } else { "." };
        let text: String = flash.text.chars().take(FLASH_CHARS_MAX).collect();
        let value = format!("{mark}{}", encode(&text));
        set_cookie(&mut response, &cookie(FLASH, &value, self.site.base(), Some(60)));
        Ok(response)
    }

    /// The error, in the frame of the page.
    pub(crate) fn fail(self, failed: Failed) -> Ends {
        Ends::Failed(Box::new(self), failed)
    }
}

/// Turns an answer of the API into a page that ends with its error.
macro_rules! ask {
    ($visit:expr, $answer:expr) => {
        match $answer {
            Ok(answer) => answer,
            Err(failed) => return Err($visit.fail(failed.into())),
        }
    };
}
pub(crate) use ask;

impl IntoResponse for Ends {
    fn into_response(self) -> Response {
        match self {
            Self::Answer(response) => *response,
            Self::Failed(visit, failed) => {
                if failed.status == StatusCode::UNAUTHORIZED {
                    return see_other(&visit.site, &format!("/login?next={}", encode(&visit.at)));
                }
                let frame = visit.frame(heading(failed.status), "");
                let status = failed.status;
                visit.show_as(status, &ErrorPage { frame, failed })
            }
        }
    }
}

fn heading(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::SERVICE_UNAVAILABLE => "Not available",
        _ if status.is_server_error() => "Something broke",
        _ => "That did not work",
    }
}

/// An error in the frame of the page.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    failed: Failed,
}

/// An error where nobody knows who looks.
#[derive(Template)]
#[template(path = "error_bare.html")]
struct BareError<'a> {
    base: &'a str,
    title: &'static str,
    failed: &'a Failed,
}

/// An error without the frame.
pub(crate) fn bare_error(site: &Site, failed: &Failed) -> Response {
    render(failed.status, &BareError { base: site.base(), title: heading(failed.status), failed })
}

pub(crate) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, HtmlResponse(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            (StatusCode::INTERNAL_SERVER_ERROR, HtmlResponse("the page could not be rendered"))
                .into_response()
        }
    }
}

/// Sends a browser on, to a path of ours.
pub(crate) fn see_other(site: &Site, to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = format!("{}{}", site.base(), local(to));
    let location = HeaderValue::from_str(&location).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// A path of ours, whatever was asked for: `//elsewhere` is another host to a browser.
pub(crate) fn local(path: &str) -> &str {
    let harmless = path.starts_with('/')
        && !path.starts_with("//")
        && !path.starts_with("/\\")
        && !path.chars().any(|c| c.is_control() || c == '\\');
    if harmless { path } else { "/" }
}

/// A cookie that no script and no other site gets to see.
pub(crate) fn cookie(name: &str, value: &str, base: &str, seconds: Option<u32>) -> String {
    let path = if base.is_empty() { "/" } else { base };
    let age = seconds.map_or_else(String::new, |seconds| format!("; Max-Age={seconds}"));
    format!("{name}={value}; Path={path}; HttpOnly; SameSite=Strict{age}")
}

pub(crate) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn flash(headers: &HeaderMap) -> Option<Flash> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, value)| *name == FLASH && !value.is_empty())?;
    let (mark, text) = value.split_at_checked(1)?;
    Some(Flash { is_bad: mark == "!", text: decode(text) })
}

fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        let digits = (byte == b'%').then(|| [rest.next(), rest.next()]);
        match digits {
            Some([Some(high), Some(low)]) => {
                let hex = [high, low];
                let hex = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.extend(hex);
            }
            Some(_) => {}
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the layout shows around a page.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) here: &'static str,
    /// Path and query of this page.
    pub(crate) at: String,
    pub(crate) instance: String,
    pub(crate) version: String,
    pub(crate) node_role: Option<&'static str>,
    pub(crate) who: String,
    pub(crate) role: String,
    pub(crate) read_only: bool,
    pub(crate) signed_in: bool,
    pub(crate) flash: Option<Flash>,
    pub(crate) now: Timestamp,
}

/// An entry of the side bar: its address, and what it is called.
pub(crate) struct Place {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
}

/// The side bar, in groups.
static PLACES: LazyLock<[(&'static str, Vec<Place>); 3]> = LazyLock::new(|| {
    let places = |all: &[(&'static str, &'static str)]| {
        all.iter().map(|&(path, name)| Place { path, name }).collect::<Vec<_>>()
    };
    [
        (
            "Work",
            places(&[
                ("/", "Overview"),
                ("/jobs", "Jobs"),
                ("/queues", "Queues"),
                ("/dead-letters", "Dead letters"),
                ("/schedules", "Schedules"),
                ("/workers", "Workers"),
            ]),
        ),
        ("Data", places(&[("/mirror", "Mirror"), ("/directives", "Directives")])),
        ("System", places(&[("/leadership", "Leadership"), ("/audit", "Audit"), ("/api", "API")])),
    ]
});

impl Frame {
    /// The side bar.
    pub(crate) fn places(&self) -> &'static [(&'static str, Vec<Place>)] {
        &*PLACES
    }

    /// The address of a file of the page.
    pub(crate) fn asset(&self, name: &str) -> String {
        format!("{}/assets/{}/{name}", self.base, assets::hash())
    }

    /// Whether single jobs may be changed.
    pub(crate) fn can_write(&self) -> bool {
        !self.read_only && ["write", "operate", "admin"].contains(&self.role.as_str())
    }

    /// Whether queues, schedules, dead letters and many jobs at once may be changed.
    pub(crate) fn can_operate(&self) -> bool {
        !self.read_only && ["operate", "admin"].contains(&self.role.as_str())
    }

    /// Whether they may know who did what.
    pub(crate) fn sees_audit(&self) -> bool {
        ["operate", "admin"].contains(&self.role.as_str())
    }

    /// Whether leadership and the rest may be changed.
    pub(crate) fn can_admin(&self) -> bool {
        !self.read_only && self.role == "admin"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for (path, expected) in [
            ("/jobs?state=failed", "/jobs?state=failed"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nset-cookie: x", "/"),
            ("", "/"),
        ] {
            assert_eq!(local(path), expected, "{path:?}");
        }
    }

    #[test]
    fn what_was_done_is_carried_over_whatever_it_says() {
        let text = "job 7; \"ü\" =%, <b>";
        let value = format!("a=b; {FLASH}=!{}; c=d", encode(text));
        let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(&value).unwrap())]);
        assert_eq!(flash(&headers), Some(Flash { is_bad: true, text: text.to_owned() }));
        assert_eq!(flash(&HeaderMap::new()), None);
        for broken in ["%", "%4", "%zz"] {
            let _ = decode(broken);
        }
    }
}
