//! Downloads a file that somebody else named.
//!
//! The address comes with a job, so it may be chosen to make this worker talk to what only it can reach. Every hop
//! is checked: the address as written, each redirect, and each answer of the name service. Names are resolved by
//! [`Guard`], which hands on only addresses that may be reached, so what was checked is what is connected to.
//!
//! A download is bounded in size and by the silence it may contain; the caller bounds its time. A download that
//! does not succeed leaves no file.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use stargate_base::{chain, clock};
use tokio::io::AsyncWriteExt as _;
use url::{Host, Url};

use crate::address::is_public;
use crate::http::retry_delay;

/// Redirects that are followed.
const HOPS_MAX: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a server counts as dead.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30);

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("leads to a private address")]
    Blocked,
    #[error("leads to {scheme}, which is neither http nor https")]
    Scheme { scheme: String },
    #[error("answered {status}")]
    Absent { status: StatusCode },
    #[error("answered {status}")]
    Refused { status: StatusCode },
    #[error("redirects more than {HOPS_MAX} times, or to nowhere")]
    Redirects,
    #[error("is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    #[error("answered {status}")]
    Busy { status: StatusCode, retry_after: Option<Duration> },
    #[error("{what}")]
    Network { what: String },
    #[error("cannot write the download")]
    Disk(#[from] std::io::Error),
}

/// Whether private addresses may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only hosts of the internet.
    Public,
    /// Every host.
    Any,
    /// As `Public`, with one local address that plays a host of the internet.
    #[cfg(test)]
    Pretend(IpAddr),
}

impl Reach {
    fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Public => is_public(address),
            Self::Any => true,
            #[cfg(test)]
            Self::Pretend(public) => address == public || is_public(address),
        }
    }

    /// Whether an address may be called as it is written; a name is looked at when it is resolved.
    ///
    /// Addresses that are written as numbers never reach the resolver. All their spellings, such as `0x7f.1` and
    /// `2130706433`, have become one when the address was parsed.
    pub(crate) fn admits(self, url: &Url) -> bool {
        match url.host() {
            Some(Host::Ipv4(address)) => self.allows(address.into()),
            Some(Host::Ipv6(address)) => self.allows(address.into()),
            Some(Host::Domain(_)) => true,
            None => false,
        }
    }

    /// Whether an answer came from where it may come from: a second look at what was really connected to.
    pub(crate) fn admits_answer(self, response: &Response) -> bool {
        response.remote_addr().is_none_or(|address| self.allows(address.ip()))
    }

    /// Resolves names to addresses that may be reached.
    pub(crate) fn resolver(self) -> Arc<impl Resolve + 'static> {
        Arc::new(Guard { reach: self })
    }
}

/// Downloads files.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    client: Client,
    reach: Reach,
}

impl Fetcher {
    /// Gives up on a server after `idle_max` of silence.
    pub(crate) fn new(reach: Reach, idle_max: Duration) -> reqwest::Result<Self> {
        let client = Client::builder()
            // Followed by hand, because each one is checked.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .dns_resolver(reach.resolver())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(idle_max)
            .pool_max_idle_per_host(0)
            .user_agent(concat!("stargate/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, reach })
    }

    /// Downloads into the new file `to` and answers its size.
    pub(crate) async fn fetch(&self, url: &Url, to: &Path, bytes_max: u64) -> Result<u64, FetchError> {
        let mut response = self.open(url).await?;
        if response.content_length().is_some_and(|length| length > bytes_max) {
            return Err(FetchError::TooLarge { bytes_max });
        }
        let partial = Partial(Some(to));
        let mut file = tokio::fs::File::create_new(to).await?;
        let mut bytes = 0_u64;
        while let Some(chunk) =
            response.chunk().await.map_err(|error| network(error, "the download broke off"))?
        {
            bytes = bytes.saturating_add(chunk.len() as u64);
            if bytes > bytes_max {
                return Err(FetchError::TooLarge { bytes_max });
            }
            file.write_all(&chunk).await?;
        }
        file.flush().await?;
        partial.keep();
        Ok(bytes)
    }

    /// The first answer that is no redirect, if it is a good one.
    async fn open(&self, url: &Url) -> Result<Response, FetchError> {
        let mut url = url.clone();
        for _ in 0..=HOPS_MAX {
            self.check(&url)?;
            let response = self.client.get(url.clone()).send().await;
            let response = response.map_err(|error| network(error, "could not be reached"))?;
            if !self.reach.admits_answer(&response) {
                return Err(FetchError::Blocked);
            }
            let status = response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return judge(response);
            }
            let next = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            url = next.and_then(|next| url.join(next).ok()).ok_or(FetchError::Redirects)?;
        }
        Err(FetchError::Redirects)
    }

    fn check(&self, url: &Url) -> Result<(), FetchError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchError::Scheme { scheme: url.scheme().to_owned() });
        }
        if self.reach.admits(url) { Ok(()) } else { Err(FetchError::Blocked) }
    }
}

/// An address as shown to people: without user, password, query and fragment.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // They fail for addresses that cannot have such parts.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

fn judge(response: Response) -> Result<Response, FetchError> {
    let status = response.status();
    match status.as_u16() {
        200..=299 => Ok(response),
        404 | 410 => Err(FetchError::Absent { status }),
        408 | 425 | 429 | 500..=599 => {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let retry_after = after.and_then(|text| retry_delay(text, clock::wall()));
            Err(FetchError::Busy { status, retry_after })
        }
        _ => Err(FetchError::Refused { status }),
    }
}

/// The resolver's refusal comes back as the cause of a failed connection.
pub(crate) fn is_blocked(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<BlockedName>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

fn network(error: reqwest::Error, what: &str) -> FetchError {
    let error = error.without_url();
    if is_blocked(&error) {
        return FetchError::Blocked;
    }
    let what = if error.is_timeout() { "did not answer in time" } else { what };
    FetchError::Network { what: format!("{what}: {}", chain(&error)) }
}

/// Resolves names to addresses that may be reached.
#[derive(Debug)]
struct Guard {
    reach: Reach,
}

#[derive(Debug, thiserror::Error)]
#[error("the name leads to private addresses only")]
struct BlockedName;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let any = !found.is_empty();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| reach.allows(address.ip())).collect();
            if any && allowed.is_empty() {
                return Err(BlockedName.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// A file that is removed again unless it is complete, also when the download is dropped in the middle.
#[derive(Debug)]
pub(crate) struct Partial<'a>(pub(crate) Option<&'a Path>);

impl Partial<'_> {
    /// The file is complete.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a partial download could not be removed");
        }
    }
}

#[cfg(test)]
mod tests;
