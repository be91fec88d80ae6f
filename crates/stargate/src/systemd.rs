//! Tells systemd how this process is: ready, alive, stopping. Silent where nobody listens.
//!
//! The messages are sent from the runtime that runs the jobs and answers HTTP, never from a thread of their own:
//! when that runtime hangs, so do they, and the watchdog does its duty. The variables in which systemd says where
//! to send them stay in our environment, but no child gets them: see `jobs::process::inherited`.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::vitals::Vitals;

/// How often the status line is renewed and a stop that takes long is reported, at the least.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// For how long one message extends the time to stop: two more may be late.
const EXTENSION: Duration = Duration::from_secs(20);

/// Says that jobs are taken and HTTP answers, and then how it goes until `closing`.
pub(crate) async fn run(vitals: Arc<Vitals>, closing: CancellationToken) {
    let socket = match Socket::of_environment() {
        Ok(Some(socket)) => socket,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, "systemd cannot be told how this process is"),
    };
    let watchdog = sd_notify::watchdog_enabled();
    let mut reporter =
        Reporter { socket, vitals, watched: watchdog.is_some(), status: String::new(), failing: false };
    reporter.tell(&[NotifyState::Ready]);
    // Half of what systemd waits: one lost message costs nothing.
    let every =
        watchdog.map_or(TELL_EVERY, |limit| (limit / 2).min(TELL_EVERY)).max(Duration::from_millis(1));
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stop = reporter.vitals.stop.clone();
    // Never waits for `closing` here: that comes after the stop, and may come so soon that both are seen at once.
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        reporter.alive();
    }
    reporter.tell(&[NotifyState::Stopping]);
    ticks.reset_immediately();
    while closing.run_until_cancelled(ticks.tick()).await.is_some() {
        reporter.alive();
        reporter.tell(&[NotifyState::ExtendTimeoutUsec(micros(EXTENSION))]);
    }
}

struct Reporter {
    socket: Socket,
    vitals: Arc<Vitals>,
    /// Whether systemd waits for signs of life.
    watched: bool,
    /// What was told last.
    status: String,
    /// Whether the last message did not get through: that is logged once.
    failing: bool,
}

impl Reporter {
    fn alive(&mut self) {
        if self.watched && self.vitals.is_well() {
            self.tell(&[NotifyState::Watchdog]);
        }
        let status = self.vitals.summary();
        if status != self.status {
            self.tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) {
        match self.socket.send(states) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::warn!(%error, "systemd cannot be told how this process is");
            }
            Err(_) => {}
        }
    }
}

/// Where systemd listens. Never waits: a supervisor that does not read must not hold up the jobs.
struct Socket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Socket {
    /// The one that systemd named; the variable stays, because nothing else of this process reads it.
    fn of_environment() -> io::Result<Option<Self>> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let address = match name.as_encoded_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, address }))
    }

    fn send(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        self.socket.send_to_addr(message.as_bytes(), &self.address).map(drop)
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
