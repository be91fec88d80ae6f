//! Signing in with a token, which a cookie then carries, and signing out.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::Site;
use super::call::Api;
use super::fields::{Fields, Sent};
use super::frame::{cookie, local, render, see_other, set_cookie};
use crate::access::SESSION;
use crate::api::types::access::Whoami;
use crate::caller::LOCAL;

#[derive(Template)]
#[template(path = "login.html")]
struct Login<'a> {
    base: &'a str,
    instance: &'a str,
    next: &'a str,
    problem: Option<String>,
    /// Whether nobody needs a token.
    open: bool,
}

fn form(site: &Site, status: StatusCode, next: &str, open: bool, problem: Option<String>) -> Response {
    let shared = &site.0.shared;
    let page =
        Login { base: site.base(), instance: &shared.about.instance, next: local(next), problem, open };
    render(status, &page)
}

/// `GET /login`
pub(crate) async fn show(State(site): State<Site>, parts: Parts, fields: Fields) -> Response {
    let who = Api::new(&site.0.api, &parts).get::<Whoami>("/whoami").await;
    let open = who.is_ok_and(|who| who.name == LOCAL);
    form(&site, StatusCode::OK, fields.text("next"), open, None)
}

/// `POST /login`
pub(crate) async fn sign_in(State(site): State<Site>, parts: Parts, Sent(fields): Sent) -> Response {
    let next = fields.text("next");
    let token = fields.text("token");
    // What a cookie or a header could not carry is no token of ours.
    let clean =
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"\";,\\".contains(&byte));
    let api = Api::new(&site.0.api, &parts).with_token(token).filter(|_| clean);
    let answer = match api {
        Some(api) => api.get::<Whoami>("/whoami").await.map_err(|failed| (failed.status, failed.message)),
        None => Err((StatusCode::UNAUTHORIZED, "that is not a token".to_owned())),
    };
    match answer {
        Ok(_) => {
            let mut response = see_other(&site, next);
            set_cookie(&mut response, &cookie(SESSION, token, site.base(), None));
            response
        }
        Err((status, message)) => form(&site, status, next, false, Some(message)),
    }
}

/// `POST /logout`
pub(crate) async fn sign_out(State(site): State<Site>) -> Response {
    let mut response = see_other(&site, "/login");
    set_cookie(&mut response, &cookie(SESSION, "", site.base(), Some(0)));
    response
}
