//! Takes secrets out of what git and the other side say, before anybody sees it (INV-8).

use stargate_base::Secret;

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// Secrets shorter than this are not looked for: they would be found everywhere.
const SECRET_BYTES_MIN: usize = 4;

/// Knows the secrets of a remote and takes them, and passwords in URLs, out of texts.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that no part of a longer one is left.
    secrets: Vec<Secret>,
}

impl Redactor {
    /// Looks for these, and for each as it appears in an `Authorization: Basic` header or in a URL.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut all: Vec<Secret> = Vec::new();
        for secret in secrets {
            let text = secret.reveal();
            let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            for form in [text.to_owned(), encoded] {
                let known = all.iter().any(|other| other.reveal() == form);
                if form.len() >= SECRET_BYTES_MIN && !known {
                    all.push(Secret::new(form));
                }
            }
        }
        all.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        Self { secrets: all }
    }

    /// The longest secret: a text that was cut anywhere may begin with a part of one of this length.
    pub(crate) fn longest(&self) -> usize {
        self.secrets.first().map_or(0, |secret| secret.reveal().len())
    }

    /// The text without secrets.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.reveal()) {
                text = text.replace(secret.reveal(), HIDDEN);
            }
        }
        hide_user_info(&text)
    }

    /// Bytes as a redacted text; what is not UTF-8, and NUL, becomes U+FFFD.
    pub fn redact_bytes(&self, bytes: &[u8]) -> String {
        self.redact(&String::from_utf8_lossy(bytes).replace('\0', "\u{FFFD}"))
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor of {} secrets", self.secrets.len())
    }
}

/// `scheme://user:password@host` becomes `scheme://***@host`; so does a user alone, which may be a token. git also
/// writes `user:password@host` without a scheme.
fn hide_user_info(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    // Nothing but white space ends a URL: a password may hold quotes.
    for word in text.split_inclusive(char::is_whitespace) {
        hide_in_word(word, &mut shown);
    }
    shown
}

fn hide_in_word(word: &str, shown: &mut String) {
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let authority_end = after.find(['/', '?', '#']).unwrap_or(after.len());
        // A password may itself contain an @; the last one separates it from the host.
        rest = match after[..authority_end].rfind('@') {
            Some(sign) => {
                shown.push_str(HIDDEN);
                &after[sign..]
            }
            None => after,
        };
    }
    match rest.rfind('@') {
        Some(sign) if rest.len() == word.len() && rest[..sign].contains(':') => {
            shown.push_str(HIDDEN);
            shown.push_str(&rest[sign..]);
        }
        _ => shown.push_str(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_secrets_and_passwords_in_urls_are_taken_out() {
        let redactor = Redactor::new([Secret::new("ghp_canary"), Secret::new("ghp_canary_longer/x")]);
        let text = "a ghp_canary b ghp_canary_longer/x c ghp_canary_longer%2Fx \
                    fatal: unable to access 'https://me:p@ss@host/x.git/': no; git://tok@h/y ssh://h/z look up me:pw@h:1 \
                    url=\"https://bob:one'two\"three<four@h/x\"";
        assert_eq!(
            redactor.redact(text),
            "a *** b *** c *** fatal: unable to access 'https://***@host/x.git/': no; git://***@h/y ssh://h/z look up ***@h:1 \
             url=\"https://***@h/x\""
        );
        assert!(!format!("{redactor:?}").contains("canary"));
    }

    #[test]
    fn a_text_without_secrets_stays_as_it_is() {
        let redactor = Redactor::new([Secret::new(""), Secret::new("abc")]);
        let text = "abc mail me@host :// http:// https://host/a@b git@host:path";
        assert_eq!(redactor.redact(text), text);
        assert_eq!(Redactor::default().redact("://@://a@"), "://***@://***@");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert_eq!(Redactor::default().redact_bytes(b"a\0\xFFb"), "a\u{FFFD}\u{FFFD}b");
    }
}
