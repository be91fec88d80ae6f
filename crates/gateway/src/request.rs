//! What a smart-HTTP request asks for, read from its line and head. Pure: nothing is looked up here.

use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stargate_base::Secret;
use stargate_git::Service;

use crate::gate::{Credentials, Denied};
use crate::name::RepoName;
use crate::refusal::Refusal;

/// How the client tells which protocol it speaks.
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
/// Bytes of that header at most; clients send `version=2`.
const PROTOCOL_BYTES_MAX: usize = 200;

/// The two steps of a fetch or push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Tell what there is: `GET info/refs`.
    Advertise,
    /// Exchange objects: `POST`.
    Exchange,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) repo: RepoName,
    pub(crate) service: Service,
    pub(crate) step: Step,
}

/// Reads the method, the path below the prefix as it was sent, and the query.
pub(crate) fn wanted(method: &Method, path: &str, query: Option<&str>) -> Result<Wanted, Refusal> {
    let (name, service, step) = match path.strip_suffix("/info/refs") {
        Some(name) => (name, None, Step::Advertise),
        None => {
            let (name, last) = path.rsplit_once('/').ok_or(Denied::NotFound)?;
            (name, Some(Service::parse(last).ok_or(Denied::NotFound)?), Step::Exchange)
        }
    };
    let expected = if step == Step::Advertise { Method::GET } else { Method::POST };
    if *method != expected {
        return Err(Refusal::Method);
    }
    let service = match service {
        Some(service) => service,
        None => asked_service(query)?,
    };
    // What cannot be a name cannot be a repository either; the client learns no more than that.
    let repo = RepoName::parse(name).map_err(|_| Denied::NotFound)?;
    Ok(Wanted { repo, service, step })
}

fn asked_service(query: Option<&str>) -> Result<Service, Refusal> {
    let name = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("service="));
    let name = name.ok_or(Refusal::Malformed("only the smart protocol is served; use git 1.6.6 or newer"))?;
    Service::parse(name).ok_or(Refusal::Malformed("no such service"))
}

/// The protocol header, checked to be harmless in an environment variable.
pub(crate) fn protocol(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = headers.get(GIT_PROTOCOL) else { return Ok(None) };
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"=:._-".contains(&byte);
    match value.to_str() {
        Ok(text) if text.len() <= PROTOCOL_BYTES_MAX && text.bytes().all(harmless) => Ok(Some(text)),
        _ => Err(Refusal::Malformed("the header git-protocol cannot be read")),
    }
}

/// Whether the first answer is framed as a service announcement: not in version 2, which pushes do not have.
pub(crate) fn is_announced(service: Service, protocol: Option<&str>) -> bool {
    let versions = protocol.unwrap_or_default().split(':').filter_map(|item| item.strip_prefix("version="));
    // git takes the highest version it knows.
    service == Service::ReceivePack || !versions.into_iter().any(|version| version == "2")
}

/// How the body of a request is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Gzip,
}

/// Checks the media type and tells how the body is packed.
///
/// The media type is also what keeps pages of other sites out: a browser does not send it without asking first.
pub(crate) fn encoding(headers: &HeaderMap, service: Service) -> Result<Encoding, Refusal> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let media_type = text(CONTENT_TYPE).unwrap_or_default();
    if media_type.strip_prefix("application/x-") != Some(&format!("{}-request", service.as_str())) {
        return Err(Refusal::MediaType("the body is not of the type that git sends"));
    }
    match text(CONTENT_ENCODING).map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "identity") => Ok(Encoding::Plain),
        Some("gzip" | "x-gzip") => Ok(Encoding::Gzip),
        Some(_) => Err(Refusal::MediaType("only gzip is unpacked")),
    }
}

/// What the client says about itself.
pub(crate) fn credentials(headers: &HeaderMap) -> Result<Credentials, Refusal> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(Credentials::None) };
    // What cannot be read is not let pass as "nothing": the client meant to be somebody.
    let text = value.to_str().map_err(|_| Denied::Unauthenticated)?;
    let (scheme, rest) = text.split_once(' ').ok_or(Denied::Unauthenticated)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        return Ok(Credentials::Bearer(Secret::new(rest)));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(Denied::Unauthenticated.into());
    }
    let pair = STANDARD.decode(rest).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = pair.ok_or(Denied::Unauthenticated)?;
    let (user, password) = pair.split_once(':').ok_or(Denied::Unauthenticated)?;
    Ok(Credentials::Basic { user: user.to_owned(), password: Secret::new(password) })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn get(path: &str, query: &str) -> Result<Wanted, Refusal> {
        wanted(&Method::GET, path, Some(query))
    }

    #[test]
    fn the_three_routes_are_known() {
        let found = get("a/b.git/info/refs", "service=git-upload-pack").unwrap();
        assert_eq!(
            (found.repo.as_str(), found.service, found.step),
            ("a/b", Service::UploadPack, Step::Advertise)
        );
        let found = wanted(&Method::POST, "a/git-receive-pack", None).unwrap();
        assert_eq!(
            (found.repo.as_str(), found.service, found.step),
            ("a", Service::ReceivePack, Step::Exchange)
        );
        assert_eq!(get("a/info/refs", "x=1&service=git-receive-pack").unwrap().service, Service::ReceivePack);
    }

    #[test]
    fn other_routes_methods_and_services_are_refused() {
        let missing = Err(Refusal::Denied(Denied::NotFound));
        for path in
            ["", "a", "a/HEAD", "a/objects/info/packs", "a.git/config", "info/refs", "git-upload-pack"]
        {
            assert_eq!(wanted(&Method::POST, path, None), missing, "{path}");
        }
        assert_eq!(wanted(&Method::POST, "a/info/refs", None), Err(Refusal::Method));
        assert_eq!(wanted(&Method::GET, "a/git-upload-pack", None), Err(Refusal::Method));
        for query in ["", "service=", "service=git-upload-archive", "service=git%2dupload-pack"] {
            assert!(matches!(get("a/info/refs", query), Err(Refusal::Malformed(_))), "{query}");
        }
    }

    #[test]
    fn a_path_that_leads_out_of_the_root_is_a_repository_that_is_not_there() {
        for name in
            ["..", "../a", "%2e%2e/a", "%252e%252e%252fa", "/etc", "a%00", "a/../b", "a//b", "a.git/hooks"]
        {
            let path = format!("{name}/info/refs");
            let answer = get(&path, "service=git-upload-pack");
            assert_eq!(answer, Err(Refusal::Denied(Denied::NotFound)), "{name}");
        }
    }

    #[test]
    fn only_old_protocols_and_pushes_are_announced() {
        use Service::{ReceivePack, UploadPack};
        assert!(is_announced(UploadPack, None));
        assert!(is_announced(UploadPack, Some("version=1")));
        assert!(!is_announced(UploadPack, Some("version=2")));
        assert!(!is_announced(UploadPack, Some("version=1:x:version=2")));
        assert!(is_announced(ReceivePack, Some("version=2")));
    }

    #[test]
    fn a_protocol_header_that_is_strange_is_refused() {
        let with = |text: &str| HeaderMap::from_iter([(GIT_PROTOCOL, HeaderValue::from_str(text).unwrap())]);
        assert_eq!(protocol(&with("version=2")), Ok(Some("version=2")));
        assert_eq!(protocol(&HeaderMap::new()), Ok(None));
        for strange in ["a b", "$(x)", "a;b", &"x".repeat(PROTOCOL_BYTES_MAX + 1)] {
            assert!(protocol(&with(strange)).is_err(), "{strange}");
        }
    }

    #[test]
    fn bodies_of_other_types_and_packings_are_refused() {
        let with = |media: &'static str, packed: Option<&'static str>| {
            let packed = packed.map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value)));
            let media = (CONTENT_TYPE, HeaderValue::from_static(media));
            encoding(&HeaderMap::from_iter([Some(media), packed].into_iter().flatten()), Service::UploadPack)
        };
        let right = "application/x-git-upload-pack-request";
        assert_eq!(with(right, None), Ok(Encoding::Plain));
        assert_eq!(with(right, Some("gzip")), Ok(Encoding::Gzip));
        assert!(matches!(with(right, Some("br")), Err(Refusal::MediaType(_))));
        for wrong in ["text/plain", "application/x-git-receive-pack-request", ""] {
            assert!(matches!(with(wrong, None), Err(Refusal::MediaType(_))), "{wrong}");
        }
    }

    #[test]
    fn credentials_are_read_and_never_printed() {
        let with = |text: &str| {
            credentials(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(text).unwrap())]))
        };
        assert_eq!(credentials(&HeaderMap::new()), Ok(Credentials::None));
        let basic = with(&format!("Basic {}", STANDARD.encode("git:pass:word"))).unwrap();
        assert_eq!(basic, Credentials::Basic { user: "git".into(), password: Secret::new("pass:word") });
        assert!(!format!("{basic:?}").contains("pass:word"), "{basic:?}");
        assert_eq!(with("bearer abc"), Ok(Credentials::Bearer(Secret::new("abc"))));
        for wrong in ["Basic", "Basic !!!", "Basic YWJj", "Digest x", "Bearer "] {
            assert_eq!(with(wrong), Err(Refusal::Denied(Denied::Unauthenticated)), "{wrong}");
        }
    }
}
