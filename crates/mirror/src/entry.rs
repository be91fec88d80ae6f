//! An entry of the journal: one ref that moved, as one line of JSON.
//!
//! Our lines have all fields, in a fixed order, without spaces, and end with the check:
//!
//! ```text
//! {"entry_id":…,"seq":…,…,"meta":{…},"crc":"e3069283"}
//! ```
//!
//! The check is the CRC-32C (Castagnoli), as eight lower-case hex digits, of the line's bytes without the newline and
//! without the last member, that is, of the line in which `,"crc":"e3069283"` is cut out. A line that has a member
//! `crc` must end so and match. Lines of other writers need not have one, nor `seq`, `ns` or `entry_id`; required are
//! `ref` and `new_oid`, which the older form `{ns, epoch, oid, ref, ts}` calls `oid`.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use stargate_base::clock;
use ulid::Ulid;

use crate::error::{Error, Result};

/// The longest line that is written, and the longest that is read as an entry, with its newline.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// The longest id that is taken from a line of another writer; a longer one is replaced by one that we make.
pub const ENTRY_ID_BYTES_MAX: usize = 128;
/// The longest name of a ref.
pub const REF_BYTES_MAX: usize = 1024;
/// What our lines say in `event`.
pub const REF_UPDATE: &str = "ref_update";

/// What the check adds to a line: `,"crc":"01234567"`.
const CHECK_BYTES: usize = 17;

/// An entry that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Opaque. Made of the line's place and content if its writer gave none.
    pub entry_id: String,
    /// Number in the journal, rising, without promise of being gapless. None in lines of other writers.
    pub seq: Option<u64>,
    /// When it was written, if that can be read.
    pub timestamp: Option<Timestamp>,
    /// `ref_update` from us.
    pub event: String,
    /// The namespace, if the writer named one.
    pub ns: Option<String>,
    /// The ref. Begins with `refs/` and has no control characters or spaces; git's own rules are left to the reader.
    pub ref_name: String,
    /// Where the ref was; none if it is new.
    pub old_oid: Option<String>,
    /// Where the ref is: 40 or 64 hex digits. All zeros if it was deleted.
    pub new_oid: String,
    /// Who pushed.
    pub pusher: Option<String>,
    /// The repository, as its writer calls it.
    pub repo: Option<String>,
    /// Who wrote the line: `post-receive`, `reconcile`, `requeue`.
    pub source: Option<String>,
    /// `pending` from us; what became of it is in the status records.
    pub status: Option<String>,
    /// Anything else: `txn_id`, `requeue_of`, `epoch`.
    pub meta: Map<String, Value>,
    /// Whether the line carried a check, which matched.
    pub checked: bool,
}

/// A whole line that is no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong with it.
    pub reason: String,
    /// Its bytes without the newline; the first [`LINE_BYTES_MAX`] if there are more.
    pub raw: Vec<u8>,
    /// How many bytes it really has.
    pub bytes: u64,
}

/// An entry to be written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewEntry {
    /// A new one is made if none is given.
    pub entry_id: Option<String>,
    /// The namespace.
    pub ns: Option<String>,
    /// The ref that moved.
    pub ref_name: String,
    /// Where it was; none if it is new.
    pub old_oid: Option<String>,
    /// Where it is now; all zeros if it was deleted.
    pub new_oid: String,
    /// Who pushed.
    pub pusher: Option<String>,
    /// The repository.
    pub repo: Option<String>,
    /// Who writes this: `post-receive`, `reconcile`, `requeue`.
    pub source: String,
    /// Anything else.
    pub meta: Map<String, Value>,
}

/// Our lines, in the order of their fields, without the check.
#[derive(Serialize)]
struct Written<'a> {
    entry_id: &'a str,
    seq: u64,
    timestamp: Timestamp,
    event: &'static str,
    ns: Option<&'a str>,
    r#ref: &'a str,
    old_oid: Option<&'a str>,
    new_oid: &'a str,
    pusher: Option<&'a str>,
    repo: Option<&'a str>,
    source: &'a str,
    status: &'static str,
    meta: &'a Map<String, Value>,
}

impl NewEntry {
    /// Refuses what a reader would refuse, before anything is written.
    pub fn check(&self) -> Result<()> {
        check_ref(&self.ref_name).map_err(|problem| Error::invalid("ref", problem))?;
        check_oid(&self.new_oid).map_err(|problem| Error::invalid("new_oid", problem))?;
        if let Some(oid) = &self.old_oid {
            check_oid(oid).map_err(|problem| Error::invalid("old_oid", problem))?;
        }
        match &self.entry_id {
            Some(id) if !is_usable_id(id) => {
                Err(Error::invalid("entry_id", "is empty, too long or unprintable"))
            }
            _ => Ok(()),
        }
    }

    /// The id it gets.
    pub(crate) fn id(&self) -> String {
        self.entry_id.clone().unwrap_or_else(new_id)
    }

    /// Appends the line, newline included.
    pub(crate) fn write(&self, entry_id: &str, seq: u64, at: Timestamp, to: &mut Vec<u8>) -> Result<()> {
        let from = to.len();
        let line = Written {
            entry_id,
            seq,
            timestamp: at,
            event: REF_UPDATE,
            ns: self.ns.as_deref(),
            r#ref: &self.ref_name,
            old_oid: self.old_oid.as_deref().filter(|oid| !is_zero(oid)),
            new_oid: &self.new_oid,
            pusher: self.pusher.as_deref(),
            repo: self.repo.as_deref(),
            source: &self.source,
            status: "pending",
            meta: &self.meta,
        };
        serde_json::to_writer(&mut *to, &line).map_err(|error| Error::invalid("entry", error.to_string()))?;
        seal(to, from);
        let bytes = to.len() - from;
        if bytes > LINE_BYTES_MAX {
            let problem = format!("its line has {bytes} bytes, more than {LINE_BYTES_MAX}");
            return Err(Error::invalid("entry", problem));
        }
        Ok(())
    }
}

/// A new id: a ULID.
pub fn new_id() -> String {
    Ulid::from_datetime(clock::wall().into()).to_string()
}

/// Where a line stands, for an id if it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// Reads a line, given without its newline.
pub(crate) fn parse(line: &[u8], place: Place) -> Result<Entry, Malformed> {
    read(line, place).map_err(|reason| Malformed { reason, raw: line.to_vec(), bytes: line.len() as u64 })
}

/// The number of a line, if it is one of ours. Numbers of others prove nothing.
pub(crate) fn checked_seq(line: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: u64,
    }
    if verify(line) != Check::Matches {
        return None;
    }
    serde_json::from_slice::<Numbered>(line).ok().map(|line| line.seq)
}

/// An id made of a line's place and content. The same line at the same place has the same id.
pub(crate) fn id_of(line: &[u8], place: Place) -> String {
    format!("line-{}-{}-{:08x}", place.segment, place.offset, crc32c::crc32c(line))
}

fn read(line: &[u8], place: Place) -> Result<Entry, String> {
    let mut fields: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
    let checked = match (verify(line), fields.remove("crc")) {
        (Check::Matches, Some(_)) => true,
        (_, None | Some(Value::Null)) => false,
        (Check::Differs, _) => return Err("the check (crc) does not match".to_owned()),
        (_, Some(_)) => return Err("the check (crc) is not the line's last member".to_owned()),
    };
    let ref_name = text(&mut fields, "ref").ok_or("there is no ref")?;
    check_ref(&ref_name).map_err(|problem| format!("ref {problem}"))?;
    let new_oid = text(&mut fields, "new_oid").or_else(|| text(&mut fields, "oid"));
    let new_oid = new_oid.ok_or("there is no new_oid")?.to_ascii_lowercase();
    check_oid(&new_oid).map_err(|problem| format!("new_oid {problem}"))?;
    let old_oid =
        text(&mut fields, "old_oid").map(|oid| oid.to_ascii_lowercase()).filter(|oid| !is_zero(oid));
    if let Some(oid) = &old_oid {
        check_oid(oid).map_err(|problem| format!("old_oid {problem}"))?;
    }
    Ok(Entry {
        entry_id: text(&mut fields, "entry_id")
            .filter(|id| is_usable_id(id))
            .unwrap_or_else(|| id_of(line, place)),
        seq: fields.get("seq").and_then(Value::as_u64),
        timestamp: time(&fields),
        event: text(&mut fields, "event").unwrap_or_else(|| REF_UPDATE.to_owned()),
        ns: text(&mut fields, "ns").filter(|ns| !ns.is_empty()),
        ref_name,
        old_oid,
        new_oid,
        pusher: text(&mut fields, "pusher"),
        repo: text(&mut fields, "repo"),
        source: text(&mut fields, "source"),
        status: text(&mut fields, "status"),
        meta: meta(&mut fields),
        checked,
    })
}

/// A field that is a text. Another type counts as absent: only two fields are required.
fn text(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// `timestamp`, or `ts` of the older form, which is also written as seconds since 1970.
fn time(fields: &Map<String, Value>) -> Option<Timestamp> {
    match fields.get("timestamp").or_else(|| fields.get("ts"))? {
        Value::String(text) => text.parse().ok(),
        Value::Number(seconds) => Timestamp::from_second(seconds.as_i64()?).ok(),
        _ => None,
    }
}

/// The epoch of the older form is kept beside what else there is.
fn meta(fields: &mut Map<String, Value>) -> Map<String, Value> {
    let mut meta = match fields.remove("meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    if let Some(epoch) = fields.remove("epoch").filter(|epoch| !epoch.is_null()) {
        meta.entry("epoch").or_insert(epoch);
    }
    meta
}

#[derive(Debug, PartialEq, Eq)]
enum Check {
    Matches,
    Differs,
    Absent,
}

/// Puts the check into the object that begins at `from`, and ends the line.
pub(crate) fn seal(line: &mut Vec<u8>, from: usize) {
    let crc = crc32c::crc32c(&line[from..]);
    line.truncate(line.len() - 1);
    line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
}

fn verify(line: &[u8]) -> Check {
    let Some(cut) = line.len().checked_sub(CHECK_BYTES + 1) else { return Check::Absent };
    let (body, check) = line.split_at(cut);
    let digits = check.strip_prefix(b",\"crc\":\"").and_then(|rest| rest.strip_suffix(b"\"}"));
    let Some(digits) = digits else { return Check::Absent };
    let crc = crc32c::crc32c_append(crc32c::crc32c(body), b"}");
    if digits == format!("{crc:08x}").as_bytes() { Check::Matches } else { Check::Differs }
}

/// Whether an object id is the one that means "no object".
pub fn is_zero(oid: &str) -> bool {
    oid.bytes().all(|b| b == b'0')
}

fn is_usable_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= ENTRY_ID_BYTES_MAX && !id.chars().any(char::is_control)
}

fn check_oid(oid: &str) -> Result<(), String> {
    let hex = oid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match oid.len() {
        40 | 64 if hex => Ok(()),
        length => Err(format!("is no object id of 40 or 64 lower-case hex digits (it has {length} bytes)")),
    }
}

fn check_ref(name: &str) -> Result<(), String> {
    if name.len() > REF_BYTES_MAX {
        return Err(format!("has {} bytes, more than {REF_BYTES_MAX}", name.len()));
    }
    if !name.starts_with("refs/") {
        return Err("does not begin with refs/".to_owned());
    }
    if name.chars().any(|c| c.is_control() || c == ' ') {
        return Err("has a space or a control character".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    const HERE: Place = Place { segment: 3, offset: 77 };
    const OID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn new_entry() -> NewEntry {
        NewEntry {
            ref_name: "refs/kv/main".to_owned(),
            new_oid: OID.to_owned(),
            pusher: Some("Ada \"the\" 1st\n\u{1F600}".to_owned()),
            source: "post-receive".to_owned(),
            meta: serde_json::from_str(r#"{"txn_id":"7"}"#).unwrap(),
            ..NewEntry::default()
        }
    }

    fn line() -> Vec<u8> {
        let mut line = Vec::new();
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        new_entry().write("01JGFJJZ00", 9, at, &mut line).unwrap();
        line
    }

    fn refused(line: &[u8]) -> String {
        parse(line, HERE).unwrap_err().reason
    }

    #[test]
    fn our_line_has_the_fields_of_the_contract_in_their_order_and_ends_with_the_check() {
        let text = String::from_utf8(line()).unwrap();
        let body = concat!(
            r#"{"entry_id":"01JGFJJZ00","seq":9,"timestamp":"2026-01-02T03:04:05.678Z","event":"ref_update","#,
            r#""ns":null,"ref":"refs/kv/main","old_oid":null,"#,
            r#""new_oid":"0123456789abcdef0123456789abcdef01234567","#,
            r#""pusher":"Ada \"the\" 1st\n😀","repo":null,"source":"post-receive","status":"pending","#,
            r#""meta":{"txn_id":"7"}}"#
        );
        let crc = crc32c::crc32c(body.as_bytes());
        assert_eq!(text, format!("{},\"crc\":\"{crc:08x}\"}}\n", &body[..body.len() - 1]));
        // The name of the checksum is no accident: its value for the digits 1 to 9 is in every table.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_written_is_read() {
        let entry = parse(line().trim_ascii_end(), HERE).unwrap();
        assert!(entry.checked);
        assert_eq!(entry.seq, Some(9));
        assert_eq!(entry.entry_id, "01JGFJJZ00");
        assert_eq!(entry.ref_name, "refs/kv/main");
        assert_eq!(entry.pusher, new_entry().pusher);
        assert_eq!(entry.meta, new_entry().meta);
        assert_eq!(checked_seq(line().trim_ascii_end()), Some(9));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let line = line();
        let line = line.trim_ascii_end();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.to_vec();
                changed[at] ^= 1 << bit;
                let read = parse(&changed, HERE);
                // In the name of the member the change makes it a line of somebody else, without a check.
                let name = line.len() - CHECK_BYTES..line.len() - 10;
                assert!(name.contains(&at) || read.is_err(), "bit {bit} of byte {at}: {read:?}");
                assert!(checked_seq(&changed).is_none(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_line_of_another_writer_needs_a_ref_and_an_object_and_nothing_else() {
        let text = format!(r#"{{"ref":"refs/kv/x","new_oid":"{OID}"}}"#);
        let entry = parse(text.as_bytes(), HERE).unwrap();
        assert_eq!((entry.seq, entry.ns, entry.old_oid, entry.checked), (None, None, None, false));
        assert_eq!(entry.entry_id, format!("line-3-77-{:08x}", crc32c::crc32c(text.as_bytes())));
        assert_eq!(checked_seq(br#"{"seq":18446744073709551615}"#), None);

        let text =
            format!(r#"{{"new_oid":"{OID}","seq":"no","ns":7,"entry_id":"","ref":"refs/kv/x","meta":[1]}}"#);
        let entry = parse(text.as_bytes(), HERE).unwrap();
        assert_eq!((entry.seq, entry.ns, entry.meta.len()), (None, None, 0));
        assert!(entry.entry_id.starts_with("line-"));
    }

    #[test]
    fn the_older_form_is_read() {
        let text = format!(
            r#"{{"ns":"main","epoch":"2026Q1","oid":"{OID}","ref":"refs/kv/main","ts":"2026-01-02T03:04:05Z"}}"#
        );
        let entry = parse(text.as_bytes(), HERE).unwrap();
        assert_eq!((entry.ns.as_deref(), entry.new_oid.as_str()), (Some("main"), OID));
        assert_eq!(entry.timestamp, Some("2026-01-02T03:04:05Z".parse().unwrap()));
        assert_eq!(entry.meta["epoch"], "2026Q1");
        let text = format!(r#"{{"oid":"{OID}","ref":"refs/kv/main","ts":1767323045}}"#);
        assert_eq!(parse(text.as_bytes(), HERE).unwrap().timestamp, entry.timestamp);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        assert!(refused(b"{\"ref\":").starts_with("no JSON object"));
        assert!(refused(b"[1]").starts_with("no JSON object"));
        assert_eq!(refused(b"{}"), "there is no ref");
        assert_eq!(refused(br#"{"ref":"refs/kv/x"}"#), "there is no new_oid");
        assert!(refused(br#"{"ref":"refs/kv/x","new_oid":"12"}"#).starts_with("new_oid is no object id"));
        assert!(
            refused(format!(r#"{{"ref":"--x","new_oid":"{OID}"}}"#).as_bytes()).starts_with("ref does not")
        );
        assert!(
            refused(format!(r#"{{"ref":"refs/a\nb","new_oid":"{OID}"}}"#).as_bytes()).contains("control")
        );
        let moved = format!(r#"{{"crc":"00000000","ref":"refs/a","new_oid":"{OID}"}}"#);
        assert!(refused(moved.as_bytes()).contains("last member"));
        let wrong = format!(r#"{{"ref":"refs/a","new_oid":"{OID}","crc":"00000000"}}"#);
        assert!(refused(wrong.as_bytes()).contains("does not match"));
    }

    #[test]
    fn what_a_reader_would_refuse_is_not_written() {
        let bad_ref = NewEntry { ref_name: "main".to_owned(), ..new_entry() };
        let bad_oid = NewEntry { new_oid: "x".repeat(40), ..new_entry() };
        let bad_id = NewEntry { entry_id: Some("a\nb".to_owned()), ..new_entry() };
        for entry in [bad_ref, bad_oid, bad_id] {
            assert!(entry.check().is_err(), "{entry:?}");
        }
        let long = NewEntry { pusher: Some("x".repeat(LINE_BYTES_MAX)), ..new_entry() };
        assert!(long.write("1", 1, Timestamp::UNIX_EPOCH, &mut Vec::new()).is_err());
    }

    /// How many cases; more on demand.
    fn cases(usual: u32) -> u32 {
        std::env::var("STARGATE_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: cases(1000), failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn any_text_survives_writing_and_reading(
            pusher in ".{0,40}", key in ".{0,10}", value in ".{0,40}", name in "[^\\p{Cc} ]{1,40}", seq: u64,
        ) {
            let mut entry = new_entry();
            entry.ref_name = format!("refs/{name}");
            entry.pusher = Some(pusher);
            entry.meta.insert(key, Value::from(value));
            let mut line = Vec::new();
            entry.write("1", seq, Timestamp::UNIX_EPOCH, &mut line).unwrap();
            prop_assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
            let read = parse(&line[..line.len() - 1], HERE).unwrap();
            prop_assert!(read.checked);
            prop_assert_eq!((read.ref_name, read.pusher, read.meta), (entry.ref_name, entry.pusher, entry.meta));
            prop_assert_eq!(checked_seq(&line[..line.len() - 1]), Some(seq));
        }
    }

    /// Parts cut out, put in, doubled and changed: what comes out is read without panic and never taken for ours.
    #[test]
    fn a_damaged_line_is_never_taken_for_ours() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let whole = line();
        let whole = whole.trim_ascii_end();
        for case in 0..cases(100_000) {
            let from = random.random_range(0..whole.len());
            let to = (from + random.random_range(0..40)).min(whole.len());
            let mut put = vec![0; random.random_range(0..8)];
            random.fill(put.as_mut_slice());
            if random.random_ratio(1, 3) {
                put.extend_from_slice(&whole[from..to]);
            }
            let changed = [&whole[..from], &put, &whole[to..]].concat();
            if changed != whole {
                assert_eq!(checked_seq(&changed), None, "case {case} of seed {seed}");
                let read = parse(&changed, HERE);
                assert!(
                    read.is_err() || read.is_ok_and(|entry| !entry.checked),
                    "case {case} of seed {seed}"
                );
            }
        }
    }
}
