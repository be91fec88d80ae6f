//! What `git push --porcelain` says about each ref.
//!
//! A line is `<flag> TAB <from>:<to> TAB <summary>`, the summary ending with ` (<reason>)` where there is one. Around
//! them stand `To <url>` and `Done`, which say nothing. The reason of a refusal comes from the other side and may
//! contain anything; a line that cannot be read is therefore not trusted to mean success, only left out, and whoever
//! asks for the ref finds nothing about it.

use std::fmt;

use crate::name::RefName;

/// How many lines are read at most: more than one push may update.
pub const LINES_MAX: usize = 10_000;
/// How much of a reason is kept.
pub const REASON_BYTES_MAX: usize = 1024;

/// What became of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flag {
    /// It was what was pushed before.
    UpToDate,
    /// It went forward.
    FastForward,
    /// It was made.
    New,
    /// It was moved against its history. We never ask for it on data refs.
    Forced,
    /// It was deleted.
    Deleted,
    /// It was refused, and stands where it stood.
    Rejected,
}

impl Flag {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            b'=' => Self::UpToDate,
            b' ' => Self::FastForward,
            b'*' => Self::New,
            b'+' => Self::Forced,
            b'-' => Self::Deleted,
            b'!' => Self::Rejected,
            _ => return None,
        })
    }
}

/// One ref of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What became of it.
    pub flag: Flag,
    /// The ref on the other side.
    pub to: RefName,
    /// `[rejected]`, `[remote rejected]`, `1234..5678`, …
    pub summary: String,
    /// Why, if it says so.
    pub reason: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.to, self.summary)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Reads what a push wrote to stdout; never fails, see above.
pub fn parse(stdout: &[u8]) -> Vec<Line> {
    stdout.split(|byte| *byte == b'\n').filter_map(parse_line).take(LINES_MAX).collect()
}

fn parse_line(line: &[u8]) -> Option<Line> {
    let (&first, rest) = line.split_first()?;
    let flag = Flag::from_byte(first)?;
    let rest = rest.strip_prefix(b"\t")?;
    let rest = String::from_utf8_lossy(rest);
    let (refs, summary) = rest.split_once('\t')?;
    // Neither an id nor a name of a ref contains a colon.
    let (_, to) = refs.split_once(':')?;
    let to = RefName::parse(to).ok()?;
    let (summary, reason) = split_reason(summary.trim_end_matches('\r'));
    let reason = reason.map(|reason| reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned());
    let summary = summary[..summary.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
    Some(Line { flag, to, summary, reason })
}

fn split_reason(summary: &str) -> (&str, Option<&str>) {
    let inner = summary.strip_suffix(')').and_then(|rest| rest.split_once(" ("));
    match inner {
        Some((summary, reason)) => (summary, Some(reason)),
        None => (summary, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Line {
        let lines = parse(line.as_bytes());
        assert_eq!(lines.len(), 1, "{line:?}");
        lines.into_iter().next().unwrap()
    }

    #[test]
    fn what_git_writes_is_read() {
        let text = "To ../remote.git\n\
            =\t1111111111111111111111111111111111111111:refs/kv/a\t[up to date]\n\
            \x20\t2222222222222222222222222222222222222222:refs/kv/b\t1234567..89abcde\n\
            *\t3333333333333333333333333333333333333333:refs/kv/c\t[new reference]\n\
            +\t3333333333333333333333333333333333333333:refs/kv/d\t1234567...89abcde (forced update)\n\
            -\t:refs/kv/e\t[deleted]\n\
            !\t4444444444444444444444444444444444444444:refs/kv/f\t[rejected] (non-fast-forward)\n\
            !\t4444444444444444444444444444444444444444:refs/kv/g\t[remote rejected] (hook declined)\n\
            Done\n";
        let flags: Vec<Flag> = parse(text.as_bytes()).iter().map(|line| line.flag).collect();
        use Flag::*;
        assert_eq!(flags, [UpToDate, FastForward, New, Forced, Deleted, Rejected, Rejected]);
        let line = one("!\t44:refs/kv/g\t[remote rejected] (cannot lock ref (x) (y))");
        assert_eq!(line.summary, "[remote rejected]");
        assert_eq!(line.reason.as_deref(), Some("cannot lock ref (x) (y)"));
        assert_eq!(line.to.as_str(), "refs/kv/g");
    }

    #[test]
    fn what_is_no_line_is_left_out() {
        for text in [
            "",
            "Done",
            "To x",
            "=",
            "=\t",
            "=\ta:refs/kv/x",
            "=\trefs/kv/x\t[up to date]",
            "=\ta:b\t[up to date]",
            "= a:refs/kv/x\t[up to date]",
            "?\ta:refs/kv/x\t[up to date]",
            "=\ta:refs/kv/../x\t[up to date]",
            "==\ta:refs/kv/x\t[up to date]",
        ] {
            assert_eq!(parse(text.as_bytes()), [], "{text:?}");
        }
    }

    #[test]
    fn what_the_other_side_says_is_bounded() {
        let line = one(&format!("!\ta:refs/kv/x\t[remote rejected] ({})", "ä".repeat(5000)));
        assert!(line.reason.unwrap().len() <= REASON_BYTES_MAX);
        let many = "=\ta:refs/kv/x\t[up to date]\n".repeat(LINES_MAX + 5);
        assert_eq!(parse(many.as_bytes()).len(), LINES_MAX);
    }

    /// Bytes that look like lines more often than chance would have it.
    fn noise(random: &mut impl rand::RngExt) -> Vec<u8> {
        const PIECES: [&[u8]; 16] = [
            b"\t",
            b"\t",
            b"\n",
            b"\n",
            b":",
            b":",
            b" (",
            b")",
            b"refs/kv/x",
            b"refs/",
            b"[rejected]",
            b"=",
            b"*",
            b"!",
            b" ",
            b"\xff",
        ];
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(0..24) {
            match random.random_range(0..20) {
                piece @ 0..16 => bytes.extend_from_slice(PIECES[piece]),
                16 => bytes.extend_from_slice(b"=\ta:refs/kv/y\t[up to date]\n"),
                _ => bytes.push(random.random()),
            }
        }
        bytes
    }

    /// `STARGATE_TEST_CASES` changes the number.
    fn cases() -> u64 {
        std::env::var("STARGATE_TEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000)
    }

    #[test]
    fn no_bytes_make_the_parser_fall_over_and_each_line_it_reads_is_there() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(seed);
        let mut read = 0;
        for _ in 0..cases() {
            let bytes = noise(&mut random);
            for line in parse(&bytes) {
                // No ref and no success is made up.
                let found = bytes.split(|byte| *byte == b'\n').any(|raw| {
                    let name = [b":", line.to.as_str().as_bytes(), b"\t"].concat();
                    raw.first().copied().and_then(Flag::from_byte) == Some(line.flag)
                        && raw.windows(name.len()).any(|part| part == name)
                });
                assert!(found, "{line:?} was made up, of {bytes:?}");
                read += 1;
            }
        }
        assert!(read > 0, "nothing looked like a line");
    }
}
