//! Questions to the repository and to the remote: refs, ancestry, what is there.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::git::{Git, LOCAL_TIME_MAX, Objects, expect_success};
use crate::name::{RefName, RefPattern, RemoteName};
use crate::oid::Oid;
use crate::repo::RepoDir;
use crate::run::{Bounds, End, run};

/// Refs and what they point to.
pub type Refs = BTreeMap<RefName, Oid>;

/// What a listing of refs may take up: half a million refs.
const REFS_BYTES_MAX: usize = 64 << 20;
/// How many commits are listed to see whether some are ancestors of another.
pub const COMMITS_MAX: usize = 200_000;

impl Git {
    /// The refs of a remote that match one of the patterns.
    ///
    /// The other side sends all that it has; git can restrict that to branches and tags only.
    pub async fn ls_remote(
        &self,
        repo: &RepoDir,
        remote: &RemoteName,
        patterns: &[RefPattern],
        timeout: Duration,
    ) -> Result<Refs> {
        let args = ["ls-remote", "--refs", "--quiet", "--", remote.as_str()].map(OsString::from).to_vec();
        let bounds = Bounds { time: timeout, stdout_bytes_max: REFS_BYTES_MAX };
        let answer = self.remote("ls-remote", repo, args, bounds).await?;
        let answer = expect_success("ls-remote", timeout, answer)?;
        self.refs_of("ls-remote", &answer.stdout, patterns, '\t')
    }

    /// The refs of the repository that match one of the patterns.
    pub async fn local_refs(&self, repo: &RepoDir, patterns: &[RefPattern]) -> Result<Refs> {
        let mut args = vec!["for-each-ref", "--format=%(objectname)%09%(refname)", "--"];
        args.extend(patterns.iter().map(RefPattern::folder));
        let bounds = Bounds { time: LOCAL_TIME_MAX, stdout_bytes_max: REFS_BYTES_MAX };
        let spec = self.spec(Some(repo), &[], args);
        let answer = run("for-each-ref", &spec, b"", bounds, self.redactor()).await?;
        let answer = expect_success("for-each-ref", LOCAL_TIME_MAX, answer)?;
        self.refs_of("for-each-ref", &answer.stdout, patterns, '\t')
    }

    fn refs_of(
        &self,
        operation: &'static str,
        stdout: &[u8],
        patterns: &[RefPattern],
        between: char,
    ) -> Result<Refs> {
        let mut refs = Refs::new();
        for line in String::from_utf8_lossy(stdout).lines() {
            let unreadable = || {
                let line: String = self.redactor().redact(line).chars().take(200).collect();
                Error::Unreadable { operation, line }
            };
            let (oid, name) = line.split_once(between).ok_or_else(unreadable)?;
            let oid = Oid::parse(oid).map_err(|_| unreadable())?;
            // A name that we could not push is not one of ours, whatever the other side has.
            if let Ok(name) = RefName::parse(name)
                && patterns.iter().any(|pattern| pattern.matches(&name))
            {
                refs.insert(name, oid);
            }
        }
        Ok(refs)
    }

    /// Whether `old` is `new` or an ancestor of it. Both must be commits of the repository.
    pub async fn is_ancestor(&self, repo: &RepoDir, old: &Oid, new: &Oid) -> Result<bool> {
        if old == new {
            return Ok(true);
        }
        let args = ["merge-base", "--is-ancestor", old.as_str(), new.as_str()];
        match self.local("merge-base", Some(repo), args).await {
            Ok(_) => Ok(true),
            Err(Error::Failed { answer, .. }) if answer.end == End::Exited(1) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the repository has this object and it is a commit (or a tag of one).
    pub async fn has_commit(&self, repo: &RepoDir, oid: &Oid) -> Result<bool> {
        let commit = format!("{oid}^{{commit}}");
        match self.local("cat-file", Some(repo), ["cat-file", "-e", &commit]).await {
            Ok(_) => Ok(true),
            // 1 for an object that is not there, 128 for one that cannot be read as a commit.
            Err(Error::Failed { answer, .. }) if matches!(answer.end, End::Exited(1 | 128)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the repository has this object, of whatever type.
    pub async fn has_object(&self, repo: &RepoDir, oid: &Oid) -> Result<bool> {
        match self.local("cat-file", Some(repo), ["cat-file", "-e", oid.as_str()]).await {
            Ok(_) => Ok(true),
            Err(Error::Failed { answer, .. }) if matches!(answer.end, End::Exited(1 | 128)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The commits between two, both ends included, if the first is an ancestor of the second: each of them is an
    /// ancestor of `newest`. Nothing if it is not, if one is missing, or if there are more than [`COMMITS_MAX`].
    pub async fn commits_between(
        &self,
        repo: &RepoDir,
        oldest: &Oid,
        newest: &Oid,
    ) -> Result<Option<HashSet<Oid>>> {
        let digits = newest.as_str().len() + 2;
        let bounds = Bounds { time: LOCAL_TIME_MAX, stdout_bytes_max: COMMITS_MAX * digits };
        let not = format!("^{oldest}");
        // A boundary is a commit of `oldest`'s history that has a child in the range; `oldest` is one exactly if it is
        // an ancestor of `newest`.
        let args = ["rev-list", "--boundary", newest.as_str(), &not, "--"];
        let spec = self.spec(Some(repo), &[], args);
        let answer = match run("rev-list", &spec, b"", bounds, self.redactor()).await {
            Err(Error::TooMuch { .. }) => return Ok(None),
            answer => answer?,
        };
        if !answer.succeeded() {
            return Ok(None);
        }
        let mut commits = HashSet::new();
        let mut connected = oldest == newest;
        for line in String::from_utf8_lossy(&answer.stdout).lines() {
            let boundary = line.strip_prefix('-');
            let Ok(oid) = Oid::parse(boundary.unwrap_or(line)) else { continue };
            if boundary.is_none() {
                commits.insert(oid);
            } else if oid == *oldest {
                connected = true;
            }
        }
        commits.insert(oldest.clone());
        Ok(connected.then_some(commits))
    }

    /// The URL of a remote, without the user. Nothing if there is no such remote.
    ///
    /// A remote that is asked at one place and pushed to at another is refused: what was found there would be taken for
    /// what was pushed. So is a URL that holds a secret, or may: git would show it to whoever lists processes (INV-8).
    pub async fn remote_url(&self, repo: &RepoDir, remote: &RemoteName) -> Result<Option<String>> {
        let Some(asked) = self.urls(repo, &["--all", "--", remote.as_str()]).await? else { return Ok(None) };
        let pushed_to = self.urls(repo, &["--push", "--all", "--", remote.as_str()]).await?;
        let problem = if pushed_to.as_ref() != Some(&asked) {
            "has one URL for fetching and another for pushing; remove its pushurl"
        } else if asked.lines().count() != 1 {
            "has several URLs; leave it one"
        } else if has_secret(&asked) {
            "has a user or a password in its URL; write them as mirror.username and mirror.token"
        } else {
            return Ok(Some(self.redactor().redact(asked.trim())));
        };
        Err(Error::invalid("url", format!("the remote {remote} of {} {problem}", repo.path().display())))
    }

    async fn urls(&self, repo: &RepoDir, args: &[&str]) -> Result<Option<String>> {
        let args = ["remote", "get-url"].into_iter().chain(args.iter().copied());
        match self.local("remote", Some(repo), args).await {
            Ok(answer) => Ok(Some(String::from_utf8_lossy(&answer.stdout).into_owned())),
            Err(Error::Failed { answer, .. }) if matches!(answer.end, End::Exited(2 | 128)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The branch that HEAD names, and what it points to if it exists yet.
    pub async fn head(&self, repo: &RepoDir) -> Result<Option<(RefName, Option<Oid>)>> {
        let Ok(answer) = self.local("symbolic-ref", Some(repo), ["symbolic-ref", "--quiet", "HEAD"]).await
        else {
            return Ok(None);
        };
        let Ok(name) = RefName::parse(String::from_utf8_lossy(&answer.stdout).trim()) else {
            return Ok(None);
        };
        let pattern = RefPattern::parse(name.as_str())?;
        let oid = self.local_refs(repo, &[pattern]).await?.remove(&name);
        Ok(Some((name, oid)))
    }

    /// Fetches a ref of a remote into a directory of its own, to ask about ancestry. The repository is not changed,
    /// and the directory goes with the answer.
    pub async fn fetch_aside(
        &self,
        repo: &RepoDir,
        remote: &RemoteName,
        name: &RefName,
        timeout: Duration,
    ) -> Result<Aside> {
        // Among the objects, under a name that git itself removes when it finds an old one there.
        let place = repo.path().join("objects");
        let dir = TempDir::with_prefix_in("tmp_objdir-stargate-", &place)
            .map_err(|source| Error::Prepare { path: place, source })?;
        let alternates = repo.path().join("objects").into_os_string();
        let git = self.clone().with_objects(Objects { directory: dir.path().into(), alternates });
        let fetch = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--refmap="];
        let mut args = fetch.map(OsString::from).to_vec();
        args.extend(["--", remote.as_str(), name.as_str()].map(OsString::from));
        let bounds = Bounds { time: timeout, stdout_bytes_max: REFS_BYTES_MAX };
        let answer = git.remote("fetch", repo, args, bounds).await?;
        expect_success("fetch", timeout, answer)?;
        Ok(Aside { git, _dir: dir })
    }
}

/// Whether a URL names a password, or over http a user, which is where some servers want their tokens.
pub fn has_secret(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url.trim()) else { return false };
    let is_http = matches!(url.scheme(), "http" | "https");
    url.password().is_some() || (is_http && !url.username().is_empty())
}

/// Objects of a remote beside those of the repository.
#[derive(Debug)]
pub struct Aside {
    git: Git,
    _dir: TempDir,
}

impl Aside {
    /// A git that sees both.
    pub fn git(&self) -> &Git {
        &self.git
    }
}
