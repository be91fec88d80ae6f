//! The lock in Redis, version 7 or newer, or Valkey.
//!
//! One key with a time to live. Taking it is `SET … NX EX`; renewing and releasing compare the value inside a script,
//! so that a late call never touches a successor's lock. Each connection belongs to one run of one server, asked for
//! when it is made; a bid names the run it approves of, and no other grants it.
//!
//! The account needs `SET`, `GET`, `PTTL`, `DEL`, `PEXPIRE`, `EVAL`, `INFO` and `WAIT`; `PUBLISH` and `SUBSCRIBE` on
//! `<key>:free` make handovers quick. A proxy that spreads the calls of one connection over several servers must not
//! stand in between.
//!
//! A connection is used by one call at a time and kept only if the call ended well: after a timeout nobody knows what
//! is still on its way.

mod watch;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline, RedisError, RedisResult};
use stargate_base::Secret;
use tokio::sync::Mutex;

use crate::error::{Error, Result};
use crate::lease::{Acquired, Bid, Hint, Incumbent, Inspection, Lease, Released, Renewed, Server, Value};
use watch::Watch;

/// Extends the lock while the value is the caller's.
const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

/// Removes the lock while the value is the caller's, and tells those who wait by whom. Not being allowed to tell is no
/// error.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.pcall('publish', ARGV[2], ARGV[3]) return 1 end return 0";

/// The longest key.
const KEY_BYTES_MAX: usize = 512;

/// How long an onlooker waits; calls with a bid have their own timeout.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);

/// On how many replicas a lock must be before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replicas {
    /// On all that are connected and up to date at the time. A primary that was cut off from its replicas first, and
    /// replaced then, still grants: only the epoch protects from that.
    #[default]
    Connected,
    /// On at least so many, however many are connected: also a primary that has been cut off grants nothing.
    Exactly(usize),
}

/// Where the lock is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `redis://`, `rediss://` (TLS), `redis+unix://`; with user and password if need be. TLS needs a crypto provider
    /// of rustls, which the program chooses before the first connection. Since v0.2.
    pub url: Secret,
    /// The key. Default `stargate:leader`. Since v0.2.
    pub key: String,
    /// Replicas that must have the lock. Default all that are connected. Since v0.2.
    pub replicas: Replicas,
    /// Certificates in PEM form of the authority that signed the server's; `None`: those of the system. Since v0.2.
    pub authority: Option<Vec<u8>>,
}

impl Settings {
    /// The usual key at a URL.
    pub fn of(url: Secret) -> Self {
        Self { url, key: "stargate:leader".to_owned(), replicas: Replicas::default(), authority: None }
    }
}

/// A lock in Redis.
///
/// ```
/// use stargate_base::Secret;
/// use stargate_leader::{Lease as _, RedisLease, redis::Settings};
///
/// let lease = RedisLease::new(Settings::of(Secret::new("redis://:password@127.0.0.1:6379"))).unwrap();
/// assert_eq!(lease.place(), "redis at 127.0.0.1:6379");
/// ```
pub struct RedisLease {
    client: Client,
    place: String,
    key: String,
    replicas: Replicas,
    connection: Mutex<Option<Connected>>,
    watch: Watch,
}

/// A connection and the run of the server behind it.
struct Connected {
    connection: MultiplexedConnection,
    run: String,
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLease").field("place", &self.place).finish_non_exhaustive()
    }
}

impl RedisLease {
    /// A lock at a URL. Connects when first used.
    pub fn new(settings: Settings) -> Result<Self> {
        let bad = |problem: String| Error::invalid("leader.redis_url", problem);
        if settings.key.is_empty() || settings.key.len() > KEY_BYTES_MAX {
            let problem = format!("must have 1 to {KEY_BYTES_MAX} bytes");
            return Err(Error::invalid("leader.key", problem));
        }
        // The error of the driver could quote the URL, and with it the password (INV-8).
        let unreadable = |_| bad("not a redis:// or rediss:// URL".to_owned());
        let client = match settings.authority {
            None => Client::open(settings.url.reveal()).map_err(unreadable)?,
            Some(root) => {
                let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(root) };
                Client::build_with_tls(settings.url.reveal(), certificates).map_err(|_| {
                    bad("not a rediss:// URL, or the authority's certificate is unreadable".to_owned())
                })?
            }
        };
        let place = format!("redis at {}", client.get_connection_info().addr());
        let watch = Watch::new(client.clone(), channel(&settings.key));
        Ok(Self {
            client,
            place,
            key: settings.key,
            replicas: settings.replicas,
            connection: Mutex::new(None),
            watch,
        })
    }

    /// Runs `call` on the connection, made anew if need be.
    async fn on<T>(
        &self,
        operation: &'static str,
        call: impl AsyncFnOnce(&mut Connected) -> RedisResult<T>,
    ) -> Result<T> {
        let mut slot = self.connection.lock().await;
        let mut doubt = Doubt(Some(&self.watch));
        let used = async {
            let mut connected = match slot.take() {
                Some(connected) => connected,
                None => self.connect().await?,
            };
            let answer = call(&mut connected).await?;
            // Only now: a call that fails, or is dropped half way, takes its connection with it.
            *slot = Some(connected);
            Ok(answer)
        };
        let answer: RedisResult<T> = used.await;
        // A refusal is an answer; the line is fine.
        if answer.as_ref().err().is_none_or(|error| error.code().is_some()) {
            doubt.0 = None;
        }
        answer.map_err(|error| self.unreachable(operation, &error))
    }

    async fn connect(&self) -> RedisResult<Connected> {
        // The caller's timeout ends both connecting and waiting for an answer.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let server = ask_server(&mut connection).await?;
        Ok(Connected { connection, run: server.run })
    }

    fn unreachable(&self, operation: &'static str, error: &RedisError) -> Error {
        Error::Unreachable { operation, place: self.place.clone(), problem: error.to_string() }
    }

    /// Sends a write and waits until the replicas have it.
    async fn replicated<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        mut write: Pipeline,
        bid: &Bid,
    ) -> RedisResult<(T, Replication)> {
        // Asked in the same breath as the write, so that a replica that connects later does not count.
        write.cmd("INFO").arg("replication");
        let (answer, info): (T, String) = write.query_async(connection).await?;
        let expected = match self.replicas {
            Replicas::Connected => replicas_online(&info),
            Replicas::Exactly(count) => count,
        };
        if expected == 0 {
            return Ok((answer, Replication { reached: 0, expected }));
        }
        // Less than the caller waits, or the answer would find nobody.
        let patience = (bid.timeout.mul_f64(0.8)).as_millis().max(1);
        let patience = u64::try_from(patience).unwrap_or(u64::MAX);
        let reached = redis::cmd("WAIT").arg(expected).arg(patience).query_async(connection).await?;
        Ok((answer, Replication { reached, expected }))
    }
}

/// Tells the watch when it is dropped with a call that got no answer, also because its caller has gone.
struct Doubt<'a>(Option<&'a Watch>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.0 {
            watch.doubt();
        }
    }
}

/// How far a write got.
#[derive(Debug, Clone, Copy)]
struct Replication {
    reached: usize,
    expected: usize,
}

#[async_trait]
impl Lease for RedisLease {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn acquire(&self, bid: &Bid) -> Result<Acquired> {
        self.on("acquire", async |connected| {
            let connection = &mut connected.connection;
            if bid.approved.as_deref() != Some(&connected.run) {
                let (server, incumbent) = look(connection, &self.key).await?;
                return Ok(Acquired::Unapproved(server, incumbent));
            }
            let (set, replication): (Option<String>, _) =
                self.replicated(connection, set(&self.key, bid), bid).await?;
            if set.is_none() {
                return Ok(Acquired::Held(incumbent(connection, &self.key).await?.unwrap_or_else(vanished)));
            }
            let Replication { reached, expected } = replication;
            if reached < expected {
                return Ok(Acquired::Unreplicated { reached, expected });
            }
            Ok(Acquired::Granted)
        })
        .await
    }

    async fn renew(&self, bid: &Bid) -> Result<Renewed> {
        self.on("renew", async |connected| {
            let mut write = Pipeline::new();
            write.cmd("EVAL").arg(RENEW).arg(1).arg(&self.key).arg(bid.value()).arg(millis(bid.ttl));
            let (extended, replication): (i64, _) =
                self.replicated(&mut connected.connection, write, bid).await?;
            let Replication { reached, expected } = replication;
            Ok(match extended {
                1 if reached < expected => Renewed::Unreplicated { reached, expected },
                1 => Renewed::Extended,
                _ => Renewed::Lost,
            })
        })
        .await
    }

    async fn release(&self, bid: &Bid) -> Result<Released> {
        self.on("release", async |connected| {
            let mut call = redis::cmd("EVAL");
            call.arg(RELEASE).arg(1).arg(&self.key).arg(bid.value());
            call.arg(channel(&self.key)).arg(&bid.holder.instance);
            let freed: i64 = call.query_async(&mut connected.connection).await?;
            Ok(if freed == 1 { Released::Freed } else { Released::NotOurs })
        })
        .await
    }

    async fn inspect(&self) -> Result<Inspection> {
        let look = self.on("inspect", async |connected| look(&mut connected.connection, &self.key).await);
        let (server, incumbent) = tokio::time::timeout(INSPECT_TIMEOUT, look).await.map_err(|_| {
            let problem = format!("no answer within {INSPECT_TIMEOUT:?}");
            Error::Unreachable { operation: "inspect", place: self.place.clone(), problem }
        })??;
        Ok(Inspection { server: Some(server), incumbent })
    }

    async fn hint(&self) -> Hint {
        self.watch.hint().await
    }
}

/// The channel on which a release is told.
fn channel(key: &str) -> String {
    format!("{key}:free")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn set(key: &str, bid: &Bid) -> Pipeline {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(bid.value()).arg("NX");
    let ms = millis(bid.ttl);
    if ms.is_multiple_of(1000) {
        set.arg("EX").arg(ms / 1000);
    } else {
        set.arg("PX").arg(ms);
    }
    let mut write = Pipeline::new();
    write.add_command(set);
    write
}

/// The lock ended between two calls.
fn vanished() -> Incumbent {
    Incumbent { value: Value::parse(""), left: Some(Duration::ZERO) }
}

async fn incumbent(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<Option<Incumbent>> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(key).cmd("PTTL").arg(key);
    let (value, left): (Option<Vec<u8>>, i64) = pipeline.query_async(connection).await?;
    Ok(value.map(|value| Incumbent {
        value: Value::parse(&String::from_utf8_lossy(&value)),
        // -1: no expiry; -2: gone meanwhile.
        left: match left {
            -1 => None,
            left => Some(Duration::from_millis(u64::try_from(left).unwrap_or(0))),
        },
    }))
}

async fn look(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<(Server, Option<Incumbent>)> {
    let server = ask_server(connection).await?;
    Ok((server, incumbent(connection, key).await?))
}

async fn ask_server(connection: &mut MultiplexedConnection) -> RedisResult<Server> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    // The difference of two times that were each cut to seconds: up to a second more than the truth.
    let uptime = field(&info, "uptime_in_seconds").and_then(|text| text.parse::<u64>().ok());
    let uptime = uptime.map(|seconds| seconds.saturating_sub(1));
    match (field(&info, "run_id"), uptime) {
        (Some(run), Some(uptime)) => Ok(Server { run: run.to_owned(), uptime: Duration::from_secs(uptime) }),
        _ => Err(RedisError::from((
            redis::ErrorKind::UnexpectedReturnType,
            "INFO server names no run_id or uptime",
        ))),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Counts the replicas that are up to date enough to confirm a write.
fn replicas_online(info: &str) -> usize {
    let online = |line: &&str| line.starts_with("slave") && line.contains("state=online");
    info.lines().filter(online).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_info() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:42\r\n";
        assert_eq!(field(info, "run_id"), Some("abc"));
        assert_eq!(field(info, "uptime_in_seconds"), Some("42"));
        assert_eq!(field(info, "uptime"), None);
    }

    #[test]
    fn only_replicas_that_are_online_count() {
        let info = "role:master\r\nconnected_slaves:3\r\n\
            slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=0\r\n\
            slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
            slave2:ip=127.0.0.1,port=3,state=online,offset=1,lag=1\r\n";
        assert_eq!(replicas_online(info), 2);
        assert_eq!(replicas_online("role:master\r\nconnected_slaves:0\r\n"), 0);
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in
            ["http://u:canary@host", "canary", "redis://u:canary@host:99999/", "redis://:canary@host/x"]
        {
            let error = RedisLease::new(Settings::of(Secret::new(url))).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("canary") && shown.contains("leader.redis_url"), "{shown}");
        }
    }

    #[test]
    fn the_place_names_host_and_port_only() {
        let lease = RedisLease::new(Settings::of(Secret::new("redis://u:canary@host:7000/2"))).unwrap();
        assert_eq!(lease.place(), "redis at host:7000");
        assert!(!format!("{lease:?}").contains("canary"));
    }
}
