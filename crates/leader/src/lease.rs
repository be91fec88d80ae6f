//! The contract of a lock that expires by itself, and the values in it.
//!
//! The rules every backend keeps:
//!
//! 1. Of any number of bids at once, at most one is granted.
//! 2. A granted lock is nobody else's until its time to live has passed since the last grant or renewal, by the
//!    backend's own clock, or until its owner has released it.
//! 3. A renewal extends the lock only while the very same bid holds it; it never creates one.
//! 4. A release removes the lock only while the very same bid holds it. However late it arrives, it never removes
//!    a successor's.
//! 5. Nothing is granted by a server that the bid does not approve of.
//! 6. A call that fails leaves open whether it took effect. Calling again is safe.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt as _;

use crate::error::Result;

/// The longest name of a node and of its address.
pub const NAME_BYTES_MAX: usize = 255;

/// A node: what it is called and where clients reach it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The name of the node.
    pub instance: String,
    /// Where clients reach it, so that others can point them there.
    pub address: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.instance),
            None => f.write_str(&self.instance),
        }
    }
}

/// 128 random bits that name one acquisition. Never used for a second one after it was given back: a release that
/// arrives late must not fit a later lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u128);

impl Token {
    /// A new one.
    pub fn random(rng: &mut impl rand::Rng) -> Self {
        Self(rng.random())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What is written into the lock: `instance:token` and, if known, `:address`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Who holds the lock.
    pub holder: Holder,
    /// Which acquisition this is. `None`: written by somebody who uses another form.
    pub token: Option<Token>,
}

impl Value {
    /// Reads what is in a lock. Whatever it is, somebody holds it.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, ':');
        let (instance, token, address) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let token = token.filter(|t| t.len() == 32).and_then(|t| u128::from_str_radix(t, 16).ok());
        match token {
            Some(token) => {
                let address = address.map(legible).filter(|address| !address.is_empty());
                Self { holder: Holder { instance: legible(instance), address }, token: Some(Token(token)) }
            }
            None => Self { holder: Holder { instance: legible(text), address: None }, token: None },
        }
    }
}

/// A name as it may be shown and passed on, whoever wrote it: on one line, and no longer than a name may be.
fn legible(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// A bid for the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bid {
    /// Who bids.
    pub holder: Holder,
    /// Which acquisition this is.
    pub token: Token,
    /// How long the lock lives without renewal.
    pub ttl: Duration,
    /// How long the answer may take. After it the caller has gone.
    pub timeout: Duration,
    /// The server that may grant it, by [`Server::run`]. Backends without servers ignore it.
    pub approved: Option<String>,
}

impl Bid {
    /// What to write into the lock.
    pub fn value(&self) -> String {
        let (instance, token) = (&self.holder.instance, self.token);
        match &self.holder.address {
            Some(address) => format!("{instance}:{token}:{address}"),
            None => format!("{instance}:{token}"),
        }
    }
}

/// The server process behind a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Names one run of the server: another one after each restart and on each replica.
    pub run: String,
    /// How long it has been running.
    pub uptime: Duration,
}

/// Who has the lock now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incumbent {
    /// What is in the lock.
    pub value: Value,
    /// How long the lock will live without renewal; `None`: it does not end by time.
    pub left: Option<Duration>,
}

/// The answer to a bid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is the bidder's.
    Granted,
    /// Somebody has it, perhaps the bidder by an earlier call whose answer was lost.
    Held(Incumbent),
    /// The bid does not approve of this server. Nothing was changed.
    Unapproved(Server, Option<Incumbent>),
    /// Granted, but not on all replicas: a failover could forget it. To be released.
    Unreplicated {
        /// Replicas that have it.
        reached: usize,
        /// Replicas that should.
        expected: usize,
    },
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The lock lives for another time to live.
    Extended,
    /// The lock is another's, or nobody's.
    Lost,
    /// Extended, but not on all replicas: does not count.
    Unreplicated {
        /// Replicas that have it.
        reached: usize,
        /// Replicas that should.
        expected: usize,
    },
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It was ours and is free now.
    Freed,
    /// It was not ours any more. Nothing was changed.
    NotOurs,
}

/// What an onlooker sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The server behind the backend, if there is one.
    pub server: Option<Server>,
    /// Who has the lock, if anybody.
    pub incumbent: Option<Incumbent>,
}

/// Something that makes it worth while to try now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The lock was released, by the node of this name if the backend tells.
    Released(Option<String>),
    /// The backend answers again, or for the first time: whatever was told before was not heard.
    Reachable,
}

/// A lock that expires by itself. The rules are at the head of this file.
#[async_trait]
pub trait Lease: fmt::Debug + Send + Sync {
    /// Where the lock is, for people; without any password.
    fn place(&self) -> String;

    /// Whether nodes on several machines compete for this lock. If not, a node elsewhere that uses the same store
    /// knows nothing of it, and only the epoch stands between the two.
    fn is_shared(&self) -> bool;

    /// Takes the lock if nobody has it.
    async fn acquire(&self, bid: &Bid) -> Result<Acquired>;

    /// Extends the lock while the bid holds it.
    async fn renew(&self, bid: &Bid) -> Result<Renewed>;

    /// Gives the lock back while the bid holds it.
    async fn release(&self, bid: &Bid) -> Result<Released>;

    /// Looks and changes nothing.
    async fn inspect(&self) -> Result<Inspection>;

    /// Ends when there is a reason to try now. Missed hints cost time, never safety.
    async fn hint(&self) -> Hint {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bid(address: Option<&str>) -> Bid {
        Bid {
            holder: Holder { instance: "a-1".to_owned(), address: address.map(str::to_owned) },
            token: Token(0xabc),
            ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
            approved: None,
        }
    }

    #[test]
    fn what_is_written_into_the_lock_can_be_read_back() {
        for address in [None, Some("http://[::1]:8080/x")] {
            let bid = bid(address);
            let read = Value::parse(&bid.value());
            assert_eq!(read, Value { holder: bid.holder.clone(), token: Some(bid.token) });
        }
        assert_eq!(bid(None).value(), format!("a-1:{}abc", "0".repeat(29)));
    }

    #[test]
    fn a_foreign_value_is_a_holder_without_token() {
        for text in ["", "somebody", "x:short", "x:zz00000000000000000000000000000z", "tab\there"] {
            assert_eq!(Value::parse(text).token, None, "{text:?}");
        }
        assert!(Value::parse(&"é".repeat(1000)).holder.instance.len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn names_in_a_foreign_value_are_bounded_and_fit_on_a_line() {
        let token = "0".repeat(32);
        let long = "é".repeat(1000);
        let holder = Value::parse(&format!("{long}:{token}:http://{long}")).holder;
        let address = holder.address.unwrap();
        assert!(holder.instance.len() <= NAME_BYTES_MAX && holder.instance.starts_with('é'));
        assert!(address.len() <= NAME_BYTES_MAX && address.starts_with("http://é"));
        let value = Value::parse(&format!("a\r\nb\u{85}:{token}:http://x\u{1b}[31m\n"));
        assert_eq!(value.token, Some(Token(0)));
        let holder = Holder { instance: "ab".to_owned(), address: Some("http://x[31m".to_owned()) };
        assert_eq!(value.holder, holder);
        assert_eq!(Value::parse(&format!("a:{token}:")).holder.address, None, "an empty address is none");
    }
}
