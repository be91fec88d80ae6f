//! One connection: requests in, pages or faults out.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::data::{Data, Id};
use super::{Fault, Request, State, lock};

/// Bytes that are collected before they are written.
const PIECE: usize = 256 * 1024;

type Io<T> = std::io::Result<T>;

/// Answers the requests of a connection until one of them ends it.
pub(super) async fn connection(stream: TcpStream, state: Arc<State>) {
    // Small pieces are sent at once: otherwise each answer waits for the client to acknowledge its head.
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    while let Ok(Some((target, headers))) = read_request(&mut stream).await {
        let (request, fault) = state.take(target, headers);
        if !matches!(answer(&mut stream, &state, &request, fault).await, Ok(true)) {
            return;
        }
    }
}

/// Target and headers of the next request; bodies are not expected.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Io<Option<(String, Vec<(String, String)>)>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Some((target, headers)))
}

/// Whether the connection may go on.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    state: &State,
    request: &Request,
    fault: Option<Fault>,
) -> Io<bool> {
    let mut more = Vec::new();
    match fault {
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::Close) => return Ok(false),
        Some(Fault::Answer { status, headers, body }) => {
            return fixed(stream, status, &headers, &body).await;
        }
        Some(fault @ (Fault::Truncate | Fault::HangInside)) => {
            let page = page(state, request);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                page.whole().len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&page.whole().as_bytes()[..page.whole().len() / 2]).await?;
            stream.flush().await?;
            return if fault == Fault::Truncate { Ok(false) } else { std::future::pending().await };
        }
        Some(Fault::Headers(headers)) => more = headers,
        Some(Fault::Delay(by)) => tokio::time::sleep(by).await,
        None => {}
    }
    if request.path() != "/items" {
        return fixed(stream, 404, &[], b"there is only /items").await;
    }
    send(stream, page(state, request), &more).await
}

async fn fixed(
    stream: &mut BufReader<TcpStream>,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> Io<bool> {
    let head = format!(
        "HTTP/1.1 {status} As told\r\ncontent-length: {}\r\n{}\r\n",
        body.len(),
        written(headers, "")
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await?;
    Ok(true)
}

/// Headers as they are sent, but for one.
fn written(headers: &[(String, String)], but: &str) -> String {
    headers
        .iter()
        .filter(|(name, _)| name != but)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

/// What a page consists of. Items are made while they are sent: pages may be larger than memory.
struct Page {
    data: Data,
    ids: Vec<Id>,
    next: Option<Id>,
    link: Option<String>,
    total: u64,
}

impl Page {
    fn end(&self) -> String {
        let next = self.next.map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
        format!(r#"],"next":{next},"total":{}}}"#, self.total)
    }

    fn whole(&self) -> String {
        let items: Vec<String> = self.ids.iter().map(|id| self.data.item(*id)).collect();
        format!(r#"{{"items":[{}{}"#, items.join(","), self.end())
    }
}

/// The page that a request asks for.
fn page(state: &State, request: &Request) -> Page {
    let data = lock(&state.data).clone();
    let number = |name: &str| request.param(name).and_then(|text| text.parse::<u64>().ok());
    let limit = number("limit").map_or(data.page_default, |limit| limit as usize).min(data.page_max).max(1);
    let from = if let Some(id) = number("after") {
        data.position_after(id)
    } else if let Some(page) = number("page") {
        (page.saturating_sub(1) as usize).saturating_mul(limit)
    } else {
        number("offset").unwrap_or(0) as usize
    };
    let from = from.min(data.ids.len());
    let to = from.saturating_add(limit).min(data.ids.len());
    let ids = data.ids[from..to].to_vec();
    let next = ids.last().copied().filter(|_| to < data.ids.len());
    let link = next.map(|id| {
        let others = request.target.split_once('?').map_or("", |(_, query)| query);
        let others: String = others
            .split('&')
            .filter(|p| !p.is_empty() && !p.starts_with("after="))
            .map(|p| format!("&{p}"))
            .collect();
        format!("</items?after={id}{others}>; rel=\"next\", </items>; rel=\"first\"")
    });
    let total = data.total.unwrap_or(data.ids.len() as u64);
    Page { ids, next, link, total, data }
}

/// Sends a page in chunks.
async fn send(stream: &mut BufReader<TcpStream>, page: Page, more: &[(String, String)]) -> Io<bool> {
    let has = |name: &str| more.iter().any(|(other, _)| other == name);
    let mut head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned();
    if !has("content-type") {
        head.push_str("content-type: application/json\r\n");
    }
    if let Some(link) = page.link.as_ref().filter(|_| !has("link")) {
        head.push_str(&format!("link: {link}\r\n"));
    }
    head.push_str(&written(more, "transfer-encoding"));
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut piece = r#"{"items":["#.to_owned();
    for (index, id) in page.ids.iter().enumerate() {
        if index > 0 {
            piece.push(',');
        }
        piece.push_str(&page.data.item(*id));
        if piece.len() >= PIECE {
            chunk(stream, &std::mem::take(&mut piece)).await?;
        }
    }
    piece.push_str(&page.end());
    chunk(stream, &piece).await?;
    stream.write_all(b"0\r\n\r\n").await?;
    stream.flush().await?;
    Ok(true)
}

async fn chunk(stream: &mut BufReader<TcpStream>, text: &str) -> Io<()> {
    stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}
