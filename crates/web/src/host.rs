//! By which names this node may be called while everybody gets in.
//!
//! A node on the loopback address without tokens trusts whoever can reach it. A web page can: its owner lets its own name
//! lead to 127.0.0.1, and the browser takes the node for a part of that page (DNS rebinding). What gives it away is the
//! name it calls: `Host` is the page's. So as long as there is no token, only names are answered to that nobody can make
//! lead elsewhere: addresses, `localhost` and what ends in `.localhost`. With a token the name does not matter, because a
//! foreign page does not have it.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::Shared;
use crate::error::Problem;
use crate::request;

/// Probes ask by whatever name they know, and learn nothing but whether we are well.
const PROBED: [&str; 2] = ["/healthz", "/readyz"];

/// Answers only to our own names while everybody gets in. It stands before all routes, those of git too.
pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if is_own(&request) || PROBED.contains(&request.uri().path()) || !is_open(&shared).await {
        return next.run(request).await;
    }
    let message = "this node has no tokens, so it answers only to an address, localhost or a name that ends in .localhost; \
                   make a token (stargate token add) to call it by another name";
    let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "FOREIGN_HOST", message);
    request::refused(problem, request.headers())
}

/// Whether everybody gets in. A store that cannot be asked lets nobody in, which the route says itself.
async fn is_open(shared: &Shared) -> bool {
    match &shared.authority {
        Some(authority) => authority.is_open().await.unwrap_or(false),
        // Nobody was told who may do what, in a process that tells nothing but how it is.
        None => false,
    }
}

/// Whether every name that the request calls us by is ours. Browsers always send one; programs that do not are no page.
fn is_own(request: &Request) -> bool {
    let headers = request.headers().get_all(header::HOST).iter();
    let mut hosts = headers.map(|value| value.to_str().unwrap_or("?"));
    let target = request.uri().authority().map(axum::http::uri::Authority::as_str);
    hosts.all(is_ours) && target.is_none_or(is_ours)
}

/// Whether a host, perhaps with a port, cannot be made to lead elsewhere.
fn is_ours(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse::<Ipv4Addr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_ours_and_other_names_are_not() {
        for ours in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:8080",
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "app.localhost:8080",
        ] {
            assert!(is_ours(ours), "{ours}");
        }
        for foreign in [
            "",
            ":8080",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "notlocalhost",
            "127.0.0.1.evil.example",
            "127.1.evil",
            "[::1",
            "[::1]evil.example",
            "[evil.example]",
            "0x7f.1",
            "user@localhost.evil.example",
            "?",
        ] {
            assert!(!is_ours(foreign), "{foreign}");
        }
    }
}
