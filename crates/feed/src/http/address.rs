//! Addresses: with parameters, as they may be shown, and as the header `Link` gives them.

use reqwest::Url;

/// An address as it is written in the directive, for messages: without what comes after `?` and without a password.
pub(super) fn shown(written: &str) -> String {
    let plain = written.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else { return plain.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// The address with these parameters in place of those of the same name.
pub(super) fn with_params(url: &Url, params: &[(&str, &str)]) -> Url {
    let mut url = url.clone();
    let kept: Vec<&str> =
        segments(&url).filter(|segment| !params.iter().any(|(name, _)| *name == name_of(segment))).collect();
    let kept = kept.join("&");
    url.set_query(Some(kept.as_str()).filter(|kept| !kept.is_empty()));
    if !params.is_empty() {
        url.query_pairs_mut().extend_pairs(params);
    }
    url
}

fn segments(url: &Url) -> impl Iterator<Item = &str> {
    url.query().unwrap_or_default().split('&').filter(|segment| !segment.is_empty())
}

fn name_of(segment: &str) -> &str {
    segment.split('=').next().unwrap_or_default()
}

/// A link as it is kept: path and query, without what the directive's own address has too. That may be a key, and
/// what is kept is shown.
pub(super) fn kept(link: &Url, base: &Url) -> String {
    let own: Vec<&str> = segments(base).collect();
    let query: Vec<&str> = segments(link).filter(|segment| !own.contains(segment)).collect();
    format!("{}?{}", link.path(), query.join("&"))
}

/// The address that a kept link means.
pub(super) fn restored(kept: &str, base: &Url) -> Url {
    let (path, query) = kept.split_once('?').unwrap_or((kept, ""));
    let given: Vec<&str> = query.split('&').filter(|segment| !segment.is_empty()).collect();
    let names: Vec<&str> = given.iter().map(|segment| name_of(segment)).collect();
    let own = segments(base).filter(|segment| !names.contains(&name_of(segment)));
    let query = own.chain(given.iter().copied()).collect::<Vec<_>>().join("&");
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
    url
}

/// The target of the first `rel="next"` of a header `Link` (RFC 8288).
pub(super) fn next_link(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let (params, following) = split_params(after);
        if params.iter().any(|param| is_next(param)) {
            return Some(target);
        }
        rest = following;
    }
    None
}

/// The parameters of a link, and what follows it. Quoted text may hold commas and semicolons.
fn split_params(text: &str) -> (Vec<&str>, &str) {
    let (mut params, mut from, mut is_quoted) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b';' if !is_quoted => {
                params.push(&text[from..at]);
                from = at + 1;
            }
            b',' if !is_quoted => {
                params.push(&text[from..at]);
                return (params, &text[at + 1..]);
            }
            _ => {}
        }
    }
    params.push(&text[from..]);
    (params, "")
}

fn is_next(param: &str) -> bool {
    let Some((name, value)) = param.split_once('=') else { return false };
    let value = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel")
        && value.split_whitespace().any(|rel| rel.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_shown_address_has_no_secrets() {
        assert_eq!(shown("https://u:p@api.example:1/a/b?key=${env:K}#x"), "https://api.example:1/a/b");
        assert_eq!(shown("${env:URL}?key=1"), "${env:URL}");
        assert_eq!(shown("http://u:p@host"), "http://host");
    }

    #[test]
    fn parameters_take_the_place_of_those_of_the_same_name() {
        let base = url("http://h/a?key=%20x&page=9");
        assert_eq!(
            with_params(&base, &[("page", "2"), ("q", "a b&c")]).as_str(),
            "http://h/a?key=%20x&page=2&q=a+b%26c"
        );
        assert_eq!(with_params(&url("http://h/a?page=1"), &[]).as_str(), "http://h/a?page=1");
    }

    #[test]
    fn a_kept_link_leaves_out_what_the_directive_says_anyway() {
        let base = url("http://u:p@h/items?key=secret&state=open");
        let link = url("http://h/items?after=x%2By&key=secret&state=all");
        let text = kept(&link, &base);
        assert_eq!(text, "/items?after=x%2By&state=all");
        assert_eq!(restored(&text, &base).as_str(), "http://u:p@h/items?key=secret&after=x%2By&state=all");
        assert_eq!(restored("/x?", &url("http://h/")).as_str(), "http://h/x");
    }

    #[test]
    fn the_next_link_is_found_among_others() {
        let header = r#"</a?x=1,2;3>; rel="prev", <https://h/b?c=d>; title="a,b;<c>"; REL="last Next""#;
        assert_eq!(next_link(header), Some("https://h/b?c=d"));
        assert_eq!(next_link("</b>;rel=next"), Some("/b"));
        assert_eq!(next_link(r#"</a>; rel="prev", </b>; rel="nextish""#), None);
        assert_eq!(next_link("nonsense, <unclosed; rel=next"), None);
    }
}
