//! The `Authorization` header: `Bearer` from scripts and the API, `Basic` from git.
//!
//! git asks for a user and a password and sends both. The user is free, the password is the token. A token in the
//! place of the user is taken as well: `https://TOKEN@host/…` is what people write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stargate_base::Secret;

use crate::token::PREFIX;

/// Longer headers are not looked at.
pub const HEADER_BYTES_MAX: usize = 4096;

/// What WWW-Authenticate is to say with a 401, so that git asks for a password.
pub const CHALLENGE: &str = r#"Basic realm="stargate", charset="UTF-8""#;

/// The token in the value of an `Authorization` header. Another scheme, or what cannot be read, is no token at all.
pub fn presented(value: &[u8]) -> Option<Secret> {
    if value.len() > HEADER_BYTES_MAX {
        return None;
    }
    let (scheme, rest) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return given(rest);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    if user.starts_with(PREFIX) && !password.starts_with(PREFIX) { given(user) } else { given(password) }
}

fn given(text: &str) -> Option<Secret> {
    (!text.is_empty()).then(|| Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(pair: &str) -> Option<String> {
        read(&format!("Basic {}", STANDARD.encode(pair)))
    }

    fn read(value: &str) -> Option<String> {
        presented(value.as_bytes()).map(|secret| secret.reveal().to_owned())
    }

    #[test]
    fn a_bearer_is_the_token_in_any_case_of_the_scheme() {
        for value in ["Bearer sg_a", "bearer sg_a", "BEARER   sg_a ", "  Bearer sg_a"] {
            assert_eq!(read(value).as_deref(), Some("sg_a"), "{value:?}");
        }
    }

    #[test]
    fn of_a_pair_the_password_is_the_token_whoever_the_user_is() {
        assert_eq!(basic("anybody:sg_a").as_deref(), Some("sg_a"));
        assert_eq!(basic(":sg_a").as_deref(), Some("sg_a"));
        assert_eq!(basic("git:sg_a:b").as_deref(), Some("sg_a:b"));
        assert_eq!(basic("sg_user:sg_a").as_deref(), Some("sg_a"));
    }

    #[test]
    fn a_token_in_the_place_of_the_user_is_taken() {
        assert_eq!(basic("sg_a:").as_deref(), Some("sg_a"));
        assert_eq!(basic("sg_a:x-oauth-basic").as_deref(), Some("sg_a"));
    }

    #[test]
    fn everything_else_is_no_token() {
        let long = format!("Bearer {}", "a".repeat(HEADER_BYTES_MAX));
        for value in
            ["", "Bearer", "Bearer ", "sg_a", "Digest a", "Basic !!!", "Basic YQ==", "Basic Og==", &long]
        {
            assert_eq!(read(value), None, "{value:?}");
        }
        assert!(presented(b"Bearer \xff\xfe").is_none());
        assert!(presented(format!("Basic {}", STANDARD.encode([0xff, b':', b'a'])).as_bytes()).is_none());
    }
}
