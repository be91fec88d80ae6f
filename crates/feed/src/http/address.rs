//! Addresses: with parameters, and as they may be shown.

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

/// The parts of a query, as they are written.
pub(super) fn segments(url: &Url) -> impl Iterator<Item = &str> {
    url.query().unwrap_or_default().split('&').filter(|segment| !segment.is_empty())
}

fn name_of(segment: &str) -> &str {
    segment.split('=').next().unwrap_or_default()
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
}
