//! Which refs are mirrored, under which name, and which of them move a watermark.

use stargate_git::{Oid, RefName, RefPattern};

use crate::error::{Error, Result};

/// Where watermarks are kept on the other side.
const WATERMARKS: &str = "refs/kv-mirror/*";

/// Which refs are mirrored and how they are called on the other side.
#[derive(Debug, Clone)]
pub struct Routes {
    watched: Vec<RefPattern>,
    ledgers: Vec<RefPattern>,
    mappings: Vec<Mapping>,
    watermarks: RefPattern,
}

/// Refs that have another name on the other side.
#[derive(Debug, Clone)]
struct Mapping {
    here: RefPattern,
    there: RefPattern,
}

/// Where a ref goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name on the other side.
    pub to: RefName,
    /// The watermark that moves with it; none unless it is a ledger.
    pub watermark: Option<RefName>,
}

impl Routes {
    /// The refs to mirror, those of them that move a watermark, and pairs of patterns for those that are to have another
    /// name there.
    pub fn new(
        watched: Vec<RefPattern>,
        ledgers: Vec<RefPattern>,
        mappings: Vec<(RefPattern, RefPattern)>,
    ) -> Result<Self> {
        let watermarks = RefPattern::parse(WATERMARKS)?;
        if watched.is_empty() {
            return Err(Error::invalid("mirror.refs", "no refs to mirror"));
        }
        let overlaps = |pattern: &RefPattern| {
            let (a, b) = (pattern.folder(), watermarks.folder());
            a == b || (pattern.has_star() && b.starts_with(a)) || a.starts_with(b)
        };
        if let Some(bad) = watched.iter().chain(mappings.iter().map(|(_, there)| there)).find(|p| overlaps(p))
        {
            let problem = format!("{bad} contains {WATERMARKS}, which is kept for watermarks");
            return Err(Error::invalid("mirror.refs", problem));
        }
        for (here, there) in &mappings {
            if here.has_star() != there.has_star() {
                let problem = format!("{here} and {there} must both end with * or neither");
                return Err(Error::invalid("mirror.map", problem));
            }
        }
        let mappings = mappings.into_iter().map(|(here, there)| Mapping { here, there }).collect();
        Ok(Self { watched, ledgers, mappings, watermarks })
    }

    /// `refs/kv/*`, which are ledgers, and `refs/kv-index/*`.
    pub fn standard() -> Result<Self> {
        let ledgers = vec![RefPattern::parse("refs/kv/*")?];
        Self::new(
            vec![RefPattern::parse("refs/kv/*")?, RefPattern::parse("refs/kv-index/*")?],
            ledgers,
            Vec::new(),
        )
    }

    /// The patterns of the refs that are mirrored, as they are called here.
    pub fn watched(&self) -> &[RefPattern] {
        &self.watched
    }

    /// The patterns of all that is looked at on the other side.
    pub fn there(&self) -> Vec<RefPattern> {
        let mapped = self.mappings.iter().map(|mapping| mapping.there.clone());
        self.watched.iter().cloned().chain(mapped).chain([self.watermarks.clone()]).collect()
    }

    /// Whether a ref is mirrored.
    pub fn watches(&self, name: &RefName) -> bool {
        self.watched.iter().any(|pattern| pattern.matches(name))
    }

    /// The patterns of the refs that move a watermark.
    pub fn ledgers(&self) -> &[RefPattern] {
        &self.ledgers
    }

    /// Whether a ref moves a watermark.
    pub fn is_ledger(&self, name: &RefName) -> bool {
        self.ledgers.iter().any(|pattern| pattern.matches(name))
    }

    /// The watermark of a namespace.
    pub fn watermark(&self, ns: &str) -> Result<RefName> {
        Ok(self.watermarks.fill(ns)?)
    }

    /// Whether a ref of the other side is a watermark.
    pub fn is_watermark(&self, there: &RefName) -> bool {
        self.watermarks.matches(there)
    }

    /// Where a ref goes. `ns` is what its entry says; otherwise it is the last part of the name.
    pub fn route(&self, name: &RefName, ns: Option<&str>) -> Result<Route> {
        if !self.watches(name) {
            let problem = format!("{name} is none of the refs that are mirrored");
            return Err(Error::invalid("ref", problem));
        }
        let mapped = self.mappings.iter().find_map(|mapping| {
            let rest = mapping.here.rest_of(name)?;
            Some(mapping.there.fill(rest))
        });
        let to = mapped.transpose()?.unwrap_or_else(|| name.clone());
        let ns = ns.unwrap_or_else(|| name.last_part());
        let watermark = self.is_ledger(name).then(|| self.watermark(ns)).transpose()?;
        Ok(Route { to, watermark })
    }

    /// The name here of a ref of the other side, if it is one that is mirrored.
    pub fn name_here(&self, there: &RefName) -> Option<RefName> {
        let back = self.mappings.iter().find_map(|mapping| {
            let rest = mapping.there.rest_of(there)?;
            mapping.here.fill(rest).ok()
        });
        let here = back.unwrap_or_else(|| there.clone());
        // A ref that has another name there is not mirrored under its own.
        let leads_back = self.route(&here, None).is_ok_and(|route| route.to == *there);
        leads_back.then_some(here)
    }
}

/// Reads an object id and a name that came out of the journal.
pub(crate) fn names_of(ref_name: &str, oid: &str) -> Result<(RefName, Oid)> {
    Ok((RefName::parse(ref_name)?, Oid::parse(oid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RefName {
        RefName::parse(text).unwrap()
    }

    fn pattern(text: &str) -> RefPattern {
        RefPattern::parse(text).unwrap()
    }

    #[test]
    fn only_ledgers_move_a_watermark() {
        let routes = Routes::standard().unwrap();
        let ledger = routes.route(&name("refs/kv/deep/main"), None).unwrap();
        assert_eq!(ledger.to.as_str(), "refs/kv/deep/main");
        assert_eq!(ledger.watermark.unwrap().as_str(), "refs/kv-mirror/main");
        assert_eq!(routes.route(&name("refs/kv-index/main"), None).unwrap().watermark, None);
        let named = routes.route(&name("refs/kv/x"), Some("other")).unwrap();
        assert_eq!(named.watermark.unwrap().as_str(), "refs/kv-mirror/other");
    }

    #[test]
    fn what_is_not_mirrored_goes_nowhere() {
        let routes = Routes::standard().unwrap();
        for bad in ["refs/heads/main", "refs/kv-mirror/main", "refs/kvx/main"] {
            assert!(routes.route(&name(bad), None).is_err(), "{bad}");
        }
        for ns in ["../heads/main", "a b", "", "x.lock", "a:b", "*"] {
            assert!(routes.route(&name("refs/kv/main"), Some(ns)).is_err(), "ns {ns:?}");
        }
    }

    #[test]
    fn a_mapped_ref_has_another_name_there_and_leads_back() {
        let map = vec![(pattern("refs/_blog/*"), pattern("refs/heads/_mirror/*"))];
        let routes = Routes::new(vec![pattern("refs/_blog/*")], Vec::new(), map).unwrap();
        let to = routes.route(&name("refs/_blog/a/b"), None).unwrap().to;
        assert_eq!(to.as_str(), "refs/heads/_mirror/a/b");
        assert_eq!(routes.name_here(&to), Some(name("refs/_blog/a/b")));
        assert_eq!(routes.name_here(&name("refs/_blog/a/b")), None);
        assert_eq!(routes.name_here(&name("refs/heads/main")), None);
    }

    #[test]
    fn watermarks_cannot_be_mirrored_and_stars_must_pair() {
        for bad in ["refs/kv-mirror/*", "refs/*", "refs/kv-mirror/main"] {
            assert!(Routes::new(vec![pattern(bad)], Vec::new(), Vec::new()).is_err(), "{bad}");
        }
        let map = vec![(pattern("refs/a/*"), pattern("refs/b"))];
        assert!(Routes::new(vec![pattern("refs/a/*")], Vec::new(), map).is_err());
        assert!(Routes::new(Vec::new(), Vec::new(), Vec::new()).is_err());
    }
}
