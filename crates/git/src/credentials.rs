//! How git proves who it is to a remote. No secret ever stands in an argument, a URL, a file or a configuration.
//!
//! A token is handed over in the environment of the one child that needs it, under a name that git itself does not
//! print. git is given a credential helper, a line of shell that prints that variable, and only for the origin that
//! the token belongs to: a server that redirects git elsewhere does not learn it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use stargate_base::Secret;
use url::Url;

use crate::error::{Error, Result};
use crate::redact::Redactor;

/// Where the child finds the user name and the token; nobody else has these variables.
const USER: &str = "STARGATE_GIT_USERNAME";
const TOKEN: &str = "STARGATE_GIT_TOKEN";

/// Prints the user and the token when git asks for them, and nothing when it wants to store or erase them.
/// `printf` is part of the shell, so the token is no argument of any program.
const HELPER: &str = r#"!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$STARGATE_GIT_USERNAME" "$STARGATE_GIT_TOKEN"; }; f"#;

/// How ssh behaves when nobody can answer it, and when the other side is silent.
const SSH: &str =
    "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3";

/// How git proves who it is.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    token: Option<Token>,
    ssh: Option<Ssh>,
}

#[derive(Debug, Clone)]
struct Token {
    /// `https://host[:port]`: the only place that is told.
    origin: String,
    username: String,
    token: Secret,
}

#[derive(Debug, Clone)]
struct Ssh {
    key: PathBuf,
    known_hosts: Option<PathBuf>,
}

impl Credentials {
    /// None: public remotes, local paths, and what ssh finds by itself.
    pub fn none() -> Self {
        Self::default()
    }

    /// A token for HTTPS. `origin` is the remote's URL or the beginning of it; only scheme, host and port count.
    ///
    /// `http` is accepted too: whoever configures it has decided so.
    pub fn token(origin: &str, username: &str, token: Secret) -> Result<Self> {
        let bad = |problem: &str| Error::invalid("mirror.token", problem);
        let url = Url::parse(origin).map_err(|_| bad("the remote's URL cannot be read"))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let (true, Some(host)) = (matches!(url.scheme(), "https" | "http"), host) else {
            return Err(bad("a token works with an https:// remote only; for ssh give a key"));
        };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        if username.is_empty() || username.chars().any(char::is_control) {
            return Err(bad("the user name is empty or contains a control character"));
        }
        if token.reveal().is_empty() || token.reveal().chars().any(char::is_control) {
            return Err(bad("the token is empty or contains a control character"));
        }
        let origin = format!("{}://{host}{port}", url.scheme());
        Ok(Self { token: Some(Token { origin, username: username.to_owned(), token }), ssh: None })
    }

    /// A private key for ssh and, if given, the only file of known hosts that counts.
    pub fn ssh_key(key: &Path, known_hosts: Option<&Path>) -> Result<Self> {
        for path in std::iter::once(key).chain(known_hosts) {
            let text = path.to_str().unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@');
            if !path.is_absolute() || !text.chars().all(plain) {
                let problem = format!("{} must be an absolute path of plain characters", path.display());
                return Err(Error::invalid("mirror.ssh_key", problem));
            }
        }
        let known_hosts = known_hosts.map(Path::to_owned);
        Ok(Self { token: None, ssh: Some(Ssh { key: key.to_owned(), known_hosts }) })
    }

    /// What takes these credentials out of texts.
    pub fn redactor(&self) -> Redactor {
        let token = self.token.iter().flat_map(|t| {
            // How the pair stands in a header.
            let basic = BASE64_STANDARD.encode(format!("{}:{}", t.username, t.token.reveal()));
            [t.token.clone(), Secret::new(basic)]
        });
        Redactor::new(token)
    }

    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = vec![("GIT_SSH_COMMAND".into(), self.ssh_command().into())];
        if let Some(token) = &self.token {
            env.push((USER.into(), token.username.clone().into()));
            env.push((TOKEN.into(), token.token.reveal().into()));
        }
        env
    }

    pub(crate) fn configuration(&self) -> Vec<String> {
        // An empty value forgets the helpers that were configured before.
        let mut settings = vec!["credential.helper=".to_owned()];
        if let Some(token) = &self.token {
            settings.push(format!("credential.{}.helper={HELPER}", token.origin));
        }
        settings
    }

    fn ssh_command(&self) -> String {
        let mut command = SSH.to_owned();
        if let Some(ssh) = &self.ssh {
            command += &format!(" -i {} -o IdentitiesOnly=yes", ssh.key.display());
            if let Some(hosts) = &ssh.known_hosts {
                command += &format!(
                    " -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes",
                    hosts.display()
                );
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_bound_to_scheme_host_and_port_and_appears_in_the_environment_only() {
        let url = "https://someone@git.example:8443/a/b.git";
        let credentials = Credentials::token(url, "x-access-token", Secret::new("canary-1")).unwrap();
        let settings = credentials.configuration();
        assert_eq!(settings[0], "credential.helper=");
        assert!(settings[1].starts_with("credential.https://git.example:8443.helper=!f()"), "{settings:?}");
        assert!(!settings.concat().contains("canary") && !format!("{credentials:?}").contains("canary"));
        assert!(credentials.environment().iter().any(|(name, value)| name == TOKEN && value == "canary-1"));
    }

    #[test]
    fn what_cannot_be_a_token_or_a_key_is_refused() {
        let token = |url: &str, user: &str, text: &str| Credentials::token(url, user, Secret::new(text));
        assert!(token("https://h/x", "u", "t").is_ok());
        for (url, user, text) in [
            ("ssh://h/x", "u", "t"),
            ("/srv/x", "u", "t"),
            ("https://h/x", "", "t"),
            ("https://h/x", "u", ""),
            ("https://h/x", "u", "a\nhost=evil"),
            ("https://h/x", "u\nhost=evil", "t"),
        ] {
            assert!(token(url, user, text).is_err(), "{url} {user:?} {text:?} was accepted");
        }
        assert!(Credentials::ssh_key(Path::new("/etc/stargate/key"), None).is_ok());
        for path in ["key", "/a b/key", "/a;touch x", "/a'b", "/$(id)", "/a\"b"] {
            assert!(Credentials::ssh_key(Path::new(path), None).is_err(), "{path} was accepted");
        }
    }

    #[test]
    fn the_form_of_a_header_is_known_to_the_redactor() {
        let credentials = Credentials::token("https://h", "user", Secret::new("pass")).unwrap();
        assert_eq!(credentials.redactor().redact("Basic dXNlcjpwYXNz pass"), "Basic *** ***");
    }
}
