//! The header `Link` (RFC 8288), and links as they are kept.
//!
//! A link is followed as it is: nothing is added to it. It is kept as path and query, without what the environment gave
//! to the directive's address and without parameters that the directive's address has too: those may be keys, and what
//! is kept is shown. Marks stand in their place: `</2>` for a part of the directive's path, `<?0.key>` for one of its
//! parameters, those of [`Hidden`] for the rest.

use reqwest::Url;

use super::address::segments;
use super::hidden::{Hidden, decoded};

/// The directive's address, and what of it is not kept.
pub(super) struct Home {
    pub(super) url: Url,
    pub(super) hidden: Hidden,
    /// As it is written in the directive.
    pub(super) written: String,
}

impl Home {
    /// A link as it is kept.
    pub(super) fn kept(&self, link: &Url) -> String {
        let own: Vec<&str> = self.url.path().split('/').collect();
        let path: Vec<String> = link
            .path()
            .split('/')
            .enumerate()
            .map(|(at, part)| match own.get(at) {
                Some(own) if self.is_given(own) && decoded(own, false) == decoded(part, false) => {
                    format!("</{at}>")
                }
                _ => part.to_owned(),
            })
            .collect();
        let mut kept = between_marks(&path.join("/"), |text| self.hidden.hide(text));
        if link.query().is_some() {
            let query: Vec<String> = segments(link).map(|segment| self.kept_param(segment)).collect();
            kept.push('?');
            kept.push_str(&query.join("&"));
        }
        kept
    }

    /// Whether a part of our path came from the environment.
    fn is_given(&self, part: &str) -> bool {
        !part.is_empty() && !self.written.split(['/', '?', '#']).any(|written| written == part)
    }

    fn kept_param(&self, segment: &str) -> String {
        let kept = self.hidden.hide(segment);
        if kept.contains('<') {
            return kept;
        }
        let name = segment.split('=').next().unwrap_or_default();
        let own = self.named(name).position(|own| decoded(own, true) == decoded(segment, true));
        own.map_or(kept, |number| format!("<?{number}.{name}>"))
    }

    /// Our parameters of a name.
    fn named(&self, name: &str) -> impl Iterator<Item = &str> {
        segments(&self.url).filter(move |own| own.split('=').next() == Some(name))
    }

    /// The address that a kept link means; none if what a mark stands for is not there any more.
    pub(super) fn restored(&self, kept: &str) -> Option<Url> {
        // A mark of a parameter has a question mark too, but stands behind that of the address.
        let (path, query) = kept.split_once('?').unzip();
        let mut url = self.url.clone();
        url.set_path(&self.filled(path.unwrap_or(kept))?);
        match query {
            Some(query) => url.set_query(Some(&self.filled(query)?)),
            None => url.set_query(None),
        }
        Some(url)
    }

    fn filled(&self, kept: &str) -> Option<String> {
        let (mut text, mut rest) = (String::new(), kept);
        while let Some((before, after)) = rest.split_once('<') {
            let (mark, after) = after.split_once('>')?;
            text.push_str(before);
            text.push_str(&self.fill(mark)?);
            rest = after;
        }
        text.push_str(rest);
        Some(text)
    }

    fn fill(&self, mark: &str) -> Option<String> {
        if let Some(at) = mark.strip_prefix('/') {
            return self.url.path().split('/').nth(at.parse().ok()?).map(str::to_owned);
        }
        if let Some(param) = mark.strip_prefix('?') {
            let (number, name) = param.split_once('.')?;
            return self.named(name).nth(number.parse().ok()?).map(str::to_owned);
        }
        self.hidden.fill(mark)
    }
}

/// Changes what stands between marks.
fn between_marks(text: &str, change: impl Fn(&str) -> String) -> String {
    let (mut changed, mut rest) = (String::new(), text);
    while let Some((before, (mark, after))) =
        rest.split_once('<').and_then(|(before, after)| Some((before, after.split_once('>')?)))
    {
        changed.push_str(&change(before));
        changed.push_str(&format!("<{mark}>"));
        rest = after;
    }
    changed.push_str(&change(rest));
    changed
}

/// A header `Link` that is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The target of the first `rel="next"` of a header `Link`.
pub(super) fn next_link(header: &str) -> Result<Option<&str>, Unreadable> {
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            return Ok(None);
        }
        let (target, after) =
            rest.strip_prefix('<').and_then(|rest| rest.split_once('>')).ok_or(Unreadable)?;
        let (params, following) = split_params(after)?;
        if params.iter().any(|param| is_next(param)) {
            return Ok(Some(target));
        }
        rest = following;
    }
}

/// The parameters of a link, and what follows it. Quoted text may hold commas, semicolons and escaped quotes.
fn split_params(text: &str) -> Result<(Vec<&str>, &str), Unreadable> {
    let (mut params, mut from, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    let mut end = text.len();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b';' => {
                params.push(&text[from..at]);
                from = at + 1;
            }
            b',' => {
                end = at;
                break;
            }
            // Another link without a comma before it.
            b'<' => return Err(Unreadable),
            _ => {}
        }
    }
    params.push(&text[from..end]);
    // What stands between a target and its first parameter belongs to neither.
    match is_quoted || !params.remove(0).trim().is_empty() {
        true => Err(Unreadable),
        false => Ok((params, &text[end..])),
    }
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

    fn home(url: &str, written: &str) -> Home {
        let (url, written) = (Url::parse(url).unwrap(), written.to_owned());
        Home { url, hidden: Hidden::default(), written }
    }

    fn kept(home: &Home, link: &str) -> String {
        let kept = home.kept(&Url::parse(link).unwrap());
        let restored = home.restored(&kept).unwrap();
        assert_eq!(restored.as_str(), link.replace("http://h/", "http://u:p@h/"));
        kept
    }

    #[test]
    fn a_kept_link_leaves_out_what_the_directive_says_and_nothing_is_added_to_it() {
        let url = "http://u:p@h/items?key=secret&state=open&tag=a&tag=b";
        let home = home(url, url);
        assert_eq!(
            kept(&home, "http://h/items?after=x%2By&tag=b&key=secret&state=all"),
            "/items?after=x%2By&<?1.tag>&<?0.key>&state=all"
        );
        assert_eq!(kept(&home, "http://h/x?info=%3C"), "/x?info=%3C");
        assert_eq!(kept(&home, "http://h/x"), "/x");
    }

    #[test]
    fn short_values_of_the_environment_are_left_out_where_the_directive_has_them() {
        let home = home("http://u:p@h/v1/me/items?k=a/b", "http://u:p@h/v1/${env:M}/items?k=${env:K}");
        assert_eq!(kept(&home, "http://h/v1/me/items?page=2"), "/v1/</2>/items?page=2");
        let anew = home.kept(&Url::parse("http://h/v1/m%65/items?k=a%2Fb").unwrap());
        assert_eq!(anew, "/v1/</2>/items?<?0.k>");
    }

    #[test]
    fn a_kept_link_whose_marks_mean_nothing_is_none() {
        let home = home("http://h/items?key=secret", "");
        for kept in ["/</7>", "/x?<?1.key>", "/x?<?0.other>", "/x?<TOKEN.0.0.0>", "/x?<", "/x?<>", "/<?0.key"]
        {
            assert_eq!(home.restored(kept), None, "{kept}");
        }
    }

    #[test]
    fn the_next_link_is_found_among_others() {
        let header = r#"</a?x=1,2;3>; rel="prev", <https://h/b?c=d>; title="a,b;<c>"; REL="last Next""#;
        assert_eq!(next_link(header), Ok(Some("https://h/b?c=d")));
        assert_eq!(next_link("</b>;rel=next"), Ok(Some("/b")));
        assert_eq!(next_link(r#"</a>; title="a\"b, <"; rel="next""#), Ok(Some("/a")));
        assert_eq!(next_link(r#"</a>; rel="prev", , </b> ; rel="nextish""#), Ok(None));
        assert_eq!(next_link(" "), Ok(None));
    }

    #[test]
    fn a_header_that_cannot_be_read_to_its_end_is_unreadable() {
        for header in [
            "nonsense, </b>; rel=next",
            "<unclosed; rel=next",
            "</a>; title=\"b; rel=next",
            "</a> nonsense; rel=next",
            "</a>; rel=prev </b>; rel=next",
            "</a>; rel=prev, nonsense",
        ] {
            assert_eq!(next_link(header), Err(Unreadable), "{header}");
        }
        assert_eq!(next_link("</a>; rel=next, nonsense"), Ok(Some("/a")));
    }
}
