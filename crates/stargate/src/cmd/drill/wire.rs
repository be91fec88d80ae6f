//! The way from a worker to a store on a server, which a drill can cut: a relay on this machine between the two.
//!
//! While it is cut nothing gets through and nobody is told, as where a network loses packets: connections stay open, new
//! ones are taken and hear nothing. What was sent meanwhile arrives when it is mended, however late that is.

use std::net::Ipv4Addr;
use std::time::Duration;

use stargate_base::Secret;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use url::Url;

use crate::config::store_url::StoreUrl;
use crate::failure::{Failure, Result};

/// What a relay takes up at once; until it is handed on, nothing more is read.
const PIECE_BYTES: usize = 16 << 10;
const POSTGRES_PORT: u16 = 5432;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A relay in front of the store; it ends when dropped, and with it all connections.
pub(super) struct Wire {
    is_cut: watch::Sender<bool>,
    _relay: JoinSet<()>,
}

impl Wire {
    /// Lays a wire to the store, and tells where the store is for those who use it. None where no network is in between: to a
    /// file, to a socket on this machine; nor to one of several servers, of which a relay could stand for one only.
    pub(super) async fn lay(store: &StoreUrl) -> Result<Option<(Self, StoreUrl)>> {
        let StoreUrl::Postgres(url) = store else { return Ok(None) };
        let Ok(url) = Url::parse(url.reveal()) else { return Ok(None) };
        let Some(server) = server(&url) else { return Ok(None) };
        let no_port = |error| Failure::io("cannot listen on this machine", &error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(no_port)?;
        let port = listener.local_addr().map_err(no_port)?.port();
        let Some(detour) = detour(url, port) else { return Ok(None) };
        let (is_cut, cut) = watch::channel(false);
        let mut relay = JoinSet::new();
        relay.spawn(take(listener, server, cut));
        Ok(Some((Self { is_cut, _relay: relay }, detour)))
    }

    pub(super) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(super) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// Host and port of the one server that the URL names.
fn server(url: &Url) -> Option<String> {
    let asked =
        |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if asked("host").is_some() || asked("port").is_some() {
        return None;
    }
    let named = url.host_str().filter(|host| !host.is_empty() && !host.contains([',', '%', '/']))?;
    let host = asked("hostaddr").unwrap_or_else(|| named.to_owned());
    // An address of the longer kind has its own colons.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    Some(format!("{host}:{}", url.port().unwrap_or(POSTGRES_PORT)))
}

/// The same store by way of this port. The server keeps its name, by which its certificate is judged, and what else is asked for
/// stays as it was written: to take it apart and put it together again would change it.
fn detour(mut url: Url, port: u16) -> Option<StoreUrl> {
    let asked = url.query().unwrap_or_default().split('&');
    let mut asked: Vec<&str> =
        asked.filter(|pair| !pair.is_empty() && !pair.starts_with("hostaddr=")).collect();
    asked.push("hostaddr=127.0.0.1");
    let asked = asked.join("&");
    url.set_query(Some(&asked));
    url.set_port(Some(port)).ok()?;
    Some(StoreUrl::Postgres(Secret::new(url.as_str())))
}

async fn take(listener: TcpListener, server: String, cut: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connect(client, server.clone(), cut.clone()));
                }
                // Too many open files, say. There may be fewer in a moment.
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(client: TcpStream, server: String, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|is_cut| !is_cut).await.is_err() {
        return;
    }
    // Whoever gave up meanwhile is not taken to the server: there may be very many of them.
    let both = Interest::READABLE | Interest::WRITABLE;
    if client.ready(both).await.is_ok_and(|ready| ready.is_read_closed()) {
        return;
    }
    // A server that is not there refuses; dropping the connection says as much.
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(carry(from_client, to_server, cut.clone()), carry(from_server, to_client, cut));
}

/// Hands on what comes, and its end, but nothing while the wire is cut.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<bool>,
) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await.unwrap_or(0);
        if cut.wait_for(|is_cut| !is_cut).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&piece[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> Option<(String, String)> {
        let url: Url = text.parse().unwrap();
        let server = server(&url)?;
        let StoreUrl::Postgres(detour) = detour(url, 7).unwrap() else { panic!("not on a server") };
        Some((server, detour.reveal().to_owned()))
    }

    #[test]
    fn the_detour_keeps_the_name_of_the_server_and_all_else() {
        let cases = [
            ("postgres://u:p@db/app", "db:5432", "postgres://u:p@db:7/app?hostaddr=127.0.0.1"),
            (
                "postgres://u@db:6000/app?sslmode=require&hostaddr=10.0.0.9",
                "10.0.0.9:6000",
                "postgres://u@db:7/app?sslmode=require&hostaddr=127.0.0.1",
            ),
            ("postgres://u@[::1]:6000/app", "[::1]:6000", "postgres://u@[::1]:7/app?hostaddr=127.0.0.1"),
            (
                "postgres://u@db/app?sslrootcert=/etc/ca.pem&options=-c%20a%3Db",
                "db:5432",
                "postgres://u@db:7/app?sslrootcert=/etc/ca.pem&options=-c%20a%3Db&hostaddr=127.0.0.1",
            ),
            ("postgres://u@db/app?hostaddr=::1", "[::1]:5432", "postgres://u@db:7/app?hostaddr=127.0.0.1"),
        ];
        for (url, server, detour) in cases {
            assert_eq!(way(url), Some((server.to_owned(), detour.to_owned())), "{url}");
        }
    }

    #[test]
    fn no_wire_is_laid_where_no_network_is_or_several_servers_are() {
        for url in [
            "postgres://u@%2Fvar%2Frun/app",
            "postgres:///app?host=/var/run",
            "postgres://u@a,b/app",
            "postgres://u@db/app?port=1,2",
        ] {
            assert_eq!(way(url), None, "{url}");
        }
    }

    #[tokio::test]
    async fn nothing_gets_through_a_wire_that_is_cut_and_everything_when_it_is_mended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let store = format!("postgres://u@{}/app", listener.local_addr().unwrap());
        let store = StoreUrl::Postgres(Secret::new(store));
        let (wire, detour) = Wire::lay(&store).await.unwrap().unwrap();
        let StoreUrl::Postgres(detour) = detour else { panic!("not on a server") };
        let port = detour.reveal().parse::<Url>().unwrap().port().unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        wire.cut();
        client.write_all(b"late").await.unwrap();
        let mut late = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        late.write_all(b"later").await.unwrap();
        let mut piece = [0; 5];
        tokio::select! {
            biased;
            _ = server.read(&mut piece) => panic!("it got through"),
            _ = listener.accept() => panic!("somebody got through"),
            // What is under way in this runtime has its turn before that.
            () = turns(1000) => {}
        }
        wire.mend();
        server.read_exact(&mut piece[..4]).await.unwrap();
        assert_eq!(&piece[..4], b"late");
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut piece).await.unwrap();
        assert_eq!(&piece, b"later");
    }

    async fn turns(count: u32) {
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    }
}
