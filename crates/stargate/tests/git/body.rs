//! Requests that are larger than anybody wants: refused on the real binary, with little memory and little disk.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use stargate_testkit::eventually;

use crate::PATIENCE;
use crate::site::Site;

const BOUNDS: &str = "[git]\nmax_push = \"8MiB\"\nmax_fetch_request = \"1MiB\"\n";
const MIB: u64 = 1 << 20;
/// What a body without end has sent when nobody has stopped it.
const SENT_MAX: u64 = 256 * MIB;
/// What the node may grow by, whatever is sent.
const GROWTH_KIB_MAX: u64 = 32 << 10;

/// The most memory that a process has had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Bytes of all files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    // Files come and go while git works.
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn post(site: &Site, service: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site.node.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /git/r.git/{service} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/x-{service}-request\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // One that is refused while it sends may find the connection reset behind the answer.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A blob as it stands in a pack: its length, and zlib that does not compress.
fn blob() -> Vec<u8> {
    const BYTES: u16 = 32 << 10;
    let data: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
    let mut length = usize::from(BYTES);
    // The kind 3 and four bits of the length, then seven bits each.
    let mut entry = vec![0x80 | (3 << 4) | (length & 15) as u8];
    length >>= 4;
    while length > 127 {
        entry.push(0x80 | (length & 127) as u8);
        length >>= 7;
    }
    entry.push(length as u8);
    entry.extend([0x78, 0x01, 0x01]);
    entry.extend(BYTES.to_le_bytes());
    entry.extend((!BYTES).to_le_bytes());
    entry.extend(&data);
    let (low, high) = data.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    entry.extend(((high << 16) | low).to_be_bytes());
    entry
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_says_that_it_has_ten_gigabytes_is_not_even_begun() {
    let site = Site::open("").await;
    let refused = answer(post(&site, "git-receive-pack", "content-length: 10737418240\r\n"));
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    assert!(refused.contains("BODY_TOO_LARGE: more than 4294967296 bytes"), "{refused}");
    assert!(refused.contains("git.max_push"), "{refused}");
    assert_eq!(site.left_over(), [""; 0]);
}

/// A pack that is as it should be and never ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_without_end_is_stopped_at_the_bound_and_leaves_nothing() {
    let site = Site::open(BOUNDS).await;
    let commit = site.client.commit("first");
    let before = (peak_kib(site.node.id()), bytes_below(&site.repo()));
    let command = format!("{} {commit} refs/heads/main\0report-status", "0".repeat(40));
    let mut start = format!("{:04x}{command}0000PACK\0\0\0\u{2}", command.len() + 4).into_bytes();
    // So many that git makes room for their list, and not more.
    start.extend(1_000_000_u32.to_be_bytes());
    let mut stream = post(&site, "git-receive-pack", "transfer-encoding: chunked\r\n");
    stream.write_all(&chunk(&start)).unwrap();
    let entry = chunk(&blob());
    let (mut sent, mut disk) = (0, 0);
    // Until it is answered, as a stock client does it.
    let mut first = [0];
    while sent < SENT_MAX && stream.write_all(&entry).is_ok() {
        sent += entry.len() as u64;
        disk = disk.max(bytes_below(&site.repo()));
        stream.set_nonblocking(true).unwrap();
        let is_answered = stream.peek(&mut first).is_ok();
        stream.set_nonblocking(false).unwrap();
        if is_answered {
            break;
        }
    }
    let answer = answer(stream);
    let (grown, disk) = (peak_kib(site.node.id()) - before.0, disk.saturating_sub(before.1));
    println!("{sent} bytes sent, {grown} KiB of memory, {disk} bytes on disk; answer {answer:?}");
    assert!(sent < SENT_MAX, "nobody has stopped it");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("git.max_push"), "{answer}");
    assert!(disk > MIB, "git has refused it before it was too large");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    assert!(disk < 16 * MIB, "{disk} bytes on disk");
    assert_eq!(site.ref_of("refs/heads/main"), None);
    clean(&site).await;
    assert!(bytes_below(&site.repo()) < before.1 + MIB, "the pack is still there");
    site.client.must(&["push", "-q", "origin", "HEAD:main"]);
}

/// Waits until nothing is left of requests that were refused.
async fn clean(site: &Site) {
    eventually(PATIENCE, "what the push has left to be tidied up", || {
        let left = site.left_over();
        async move { if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) } }
    })
    .await;
}

/// As git packs what it has to say when it fetches: here 256 MiB of it in a few hundred KiB.
#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_that_is_a_bomb_is_stopped_while_it_is_unpacked() {
    let site = Site::open(BOUNDS).await;
    let commit = site.client.commit("first");
    site.client.must(&["push", "-q", "origin", "HEAD:main"]);
    let before = peak_kib(site.node.id());
    let have = format!("0032have {}", "1".repeat(40));
    let script =
        format!("(printf '0032want {commit}\\n0000'; yes '{have}' | head -c {}) | gzip -1", 256 * MIB);
    #[expect(clippy::disallowed_methods, reason = "makes the bomb")]
    let packed = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    assert!((1000..4 * MIB).contains(&(packed.len() as u64)), "{} bytes", packed.len());
    let headers = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", packed.len());
    let mut stream = post(&site, "git-upload-pack", &headers);
    // It may be refused before everything is sent.
    let _ = stream.write_all(&packed);
    let refused = answer(stream);
    assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains("git.max_fetch_request"), "{refused}");
    let grown = peak_kib(site.node.id()) - before;
    println!("{} bytes packed, {grown} KiB of memory", packed.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    clean(&site).await;
}

/// What somebody with a stock client is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_pusher_of_too_much_is_told_the_bound() {
    let site = Site::open(BOUNDS).await;
    let mut random = vec![0; 24 << 20];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    std::fs::write(site.client.dir().join("random"), random).unwrap();
    site.client.must(&["add", "random"]);
    site.client.commit("large");
    let said = site.client.refused(&["push", "origin", "HEAD:main"]);
    println!("{said}");
    assert!(said.contains("HTTP 413"), "{said}");
    assert_eq!(site.ref_of("refs/heads/main"), None);
    clean(&site).await;
}
