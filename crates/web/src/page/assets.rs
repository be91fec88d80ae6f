//! Style, scripts and the icon: part of the binary, named by what is in them, kept by browsers for a year.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../../assets/", $name)) }
    };
}

static ASSETS: [Asset; 8] = [
    asset!("app.css", "text/css; charset=utf-8"),
    asset!("vendor/uPlot.min.css", "text/css; charset=utf-8"),
    asset!("theme.js", "text/javascript; charset=utf-8"),
    asset!("app.js", "text/javascript; charset=utf-8"),
    asset!("vendor/htmx.min.js", "text/javascript; charset=utf-8"),
    asset!("vendor/hx-sse.min.js", "text/javascript; charset=utf-8"),
    asset!("vendor/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
];

/// Of all files together: one that changes gives all a new address, which is simpler and costs nothing.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for asset in &ASSETS {
        hash.update(asset.name);
        hash.update(asset.bytes);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
});

/// Compressed once.
static COMPRESSED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let compress = |asset: &Asset| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail; if it did, an empty answer would show at once.
        let written = encoder.write_all(asset.bytes);
        written.and_then(|()| encoder.finish()).unwrap_or_default()
    };
    ASSETS.iter().map(compress).collect()
});

/// The part of an address that changes with the files.
pub(crate) fn hash() -> &'static str {
    &HASH
}

/// `GET /assets/{hash}/{name}`
pub(crate) async fn serve(Path((hash, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some(index) = ASSETS.iter().position(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let asset = &ASSETS[index];
    let accepts =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let gzip =
        accepts.split(',').any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"));
    let mut response = match gzip {
        true => COMPRESSED[index].as_slice().into_response(),
        false => asset.bytes.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    // An address of an older version may be answered while nodes are replaced, but not be kept.
    let keep = if hash == *HASH { "public, max-age=31536000, immutable" } else { "no-store" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_page_loads_is_small() {
        let bytes: usize = COMPRESSED.iter().map(Vec::len).sum();
        assert!(bytes < 60_000, "{bytes} bytes, compressed");
    }

    #[tokio::test]
    async fn it_is_kept_for_long_only_under_its_own_name() {
        let gzip =
            HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=1"))]);
        let of = |hash: &str, name: &str| serve(Path((hash.to_owned(), name.to_owned())), gzip.clone());
        let answer = of(hash(), "vendor/htmx.min.js").await;
        assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip");
        assert!(answer.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
        assert_eq!(of("old", "app.css").await.headers()[header::CACHE_CONTROL], "no-store");
        assert_eq!(of(hash(), "../../Cargo.toml").await.status(), 404);
    }
}
