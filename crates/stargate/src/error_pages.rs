//! The pages of `docs/errors`, in the program: what each error code means and what to do about it.

/// Every code with its page, by code. Written by `build.rs`.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

/// How much a code may differ from what was written and still be what was meant.
const TYPOS_MAX: usize = 3;

/// A code and what is known about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) code: &'static str,
    pub(crate) text: &'static str,
}

impl Page {
    /// The first sentence below the title.
    pub(crate) fn summary(&self) -> String {
        let body = self.text.split_once('\n').map_or("", |(_, body)| body).trim_start();
        let paragraph = body.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
        plain(paragraph[..end].trim_end_matches('.'))
    }

    /// The page for a terminal, with escape codes for colour.
    pub(crate) fn render(&self) -> String {
        let mut is_example = false;
        let lines = self.text.trim_end().lines().filter_map(|line| {
            if line.starts_with("```") {
                is_example = !is_example;
                return None;
            }
            Some(if is_example { format!("  {line}") } else { rendered(line) })
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Page> {
    PAGES.iter().map(|(code, text)| Page { code, text })
}

/// The page of a code, written in whatever case.
pub(crate) fn find(code: &str) -> Option<Page> {
    let code = code.trim().replace('-', "_");
    all().find(|page| page.code.eq_ignore_ascii_case(&code))
}

/// Whether somebody who wrote this meant a code rather than something else.
pub(crate) fn looks_like_code(text: &str) -> bool {
    !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The codes that may have been meant, the nearest first.
pub(crate) fn similar(text: &str) -> Vec<&'static str> {
    let text = text.to_ascii_uppercase();
    let mut near: Vec<(usize, &str)> = all()
        .map(|page| {
            let related = page.code.contains(&text) || text.contains(page.code);
            (if related { 0 } else { distance(&text, page.code) }, page.code)
        })
        .filter(|(distance, _)| *distance <= TYPOS_MAX)
        .collect();
    near.sort_unstable();
    near.into_iter().map(|(_, code)| code).take(5).collect()
}

/// How many letters have to be changed, added or left out to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for column in 0..other.len() {
            let changed = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

fn rendered(line: &str) -> String {
    use owo_colors::OwoColorize as _;
    match line.trim_start_matches('#') {
        title if title.len() < line.len() => title.trim().bold().to_string(),
        _ => coloured(line),
    }
}

/// A line whose code stands out and whose links are their texts.
fn coloured(line: &str) -> String {
    use owo_colors::OwoColorize as _;
    let mut text = String::new();
    for (index, part) in unlinked(line).split('`').enumerate() {
        match index % 2 {
            0 => text.push_str(part),
            _ => text.push_str(&part.cyan().to_string()),
        }
    }
    text
}

/// A line without marks.
fn plain(line: &str) -> String {
    unlinked(line).replace('`', "")
}

/// `[text](place)` as `text`.
fn unlinked(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, after)) = link.split_once("](") else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        text.push_str(before);
        text.push_str(name);
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_begins_with_its_code_and_has_a_summary() {
        assert!(all().count() > 90);
        for page in all() {
            assert!(page.text.starts_with(&format!("# {}\n", page.code)), "{}", page.code);
            let summary = page.summary();
            assert!(summary.len() > 10 && !summary.contains(['\n', '`']), "{}: {summary}", page.code);
        }
    }

    #[test]
    fn a_code_is_found_in_whatever_case_and_a_typo_is_answered_with_what_was_meant() {
        assert_eq!(find("not_leader").map(|page| page.code), Some("NOT_LEADER"));
        assert_eq!(find("Not-Leader").map(|page| page.code), Some("NOT_LEADER"));
        assert_eq!(find("NOPE"), None);
        assert_eq!(similar("NOT_LEDER").first(), Some(&"NOT_LEADER"));
        assert!(similar("MIRROR").iter().all(|code| code.contains("MIRROR")));
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_page_is_shown_without_marks() {
        let page =
            Page { code: "X", text: "# X\n\nSee [this](that.md) and `code`.\n\n```console\n$ a\n```\n" };
        let shown = anstream::adapter::strip_str(&page.render()).to_string();
        assert_eq!(shown, "X\n\nSee this and code.\n\n  $ a");
    }
}
