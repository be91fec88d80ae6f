//! `stargate repo …`: the repositories that are served and mirrored.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use stargate_gateway::{Error, RepoName, Repositories};
use stargate_git::{RefName, RefPattern, RepoDir};
use stargate_repo::{Repo, RepoSpec, SharedPushes};

use crate::auditing::audited;
use crate::config::size;
use crate::failure::{Failure, Result};
use crate::gateway;
use crate::hooks::default_branch;
use crate::mirroring::shown;
use crate::output;
use crate::run::App;

/// `repo …`
#[derive(Debug, Subcommand)]
pub(crate) enum RepoCommand {
    /// Make a bare repository with its hooks
    Create(Create),
    /// List repositories: their branch, its commit, their size, their last push
    List,
    /// Take a repository out of service; it is moved to the trash, not deleted
    Remove(Remove),
}

/// `repo create`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  stargate repo create team/tools
  git clone http://127.0.0.1:8080/git/team/tools.git")]
pub(crate) struct Create {
    /// Its name: up to three parts of letters, digits and . _ -
    name: String,
    /// The branch that HEAD points to
    #[arg(long, value_name = "BRANCH", default_value = "main")]
    branch: String,
}

/// `repo remove`
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Its name, as listed
    name: String,
}

#[derive(Serialize)]
struct RepoView<'a> {
    name: &'a str,
    path: Option<String>,
    default_branch: Option<&'a str>,
    default_oid: Option<&'a str>,
    bytes: Option<u64>,
    objects: Option<u64>,
    pushed_at: Option<Timestamp>,
}

impl RepoCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let repositories = gateway::repositories(&app.settings)?;
        match self {
            Self::Create(create) => create.run(app, &repositories).await,
            Self::List => list(app, &repositories).await,
            Self::Remove(remove) => remove.run(app, &repositories).await,
        }
    }
}

/// Reads the name of a repository.
pub(crate) fn name(text: &str) -> Result<RepoName> {
    RepoName::parse(text).map_err(|error| gateway::failure(&error))
}

impl Create {
    async fn run(&self, app: &App, repositories: &Repositories) -> Result<()> {
        let name = name(&self.name)?;
        let branch = format!("refs/heads/{}", self.branch.trim_start_matches("refs/heads/"));
        let branch = RefName::parse(&branch).map_err(|error| Failure::input(format!("--branch: {error}")))?;
        // Asked first: a store that cannot be used is told before there is something to clean up.
        let stores = app.stores().await?;
        let work = self.make(&stores.pushes, repositories, &name, &branch);
        let dir = audited(&stores.audit, "repo.create", &name, serde_json::Value::Null, work).await?;
        let url = format!("http://{}/git/{name}.git", app.settings.api_listen);
        match app.out.json {
            true => app.out.json(&serde_json::json!({
                "name": name.as_str(), "path": dir.path(), "url": url, "default_branch": branch.as_str(),
            })),
            false => {
                app.out.note(format!("made {}; with a running 'stargate up' it is at", dir.path().display()));
                app.out.line(url);
            }
        }
        Ok(())
    }

    /// Makes it, enters it, and answers where it is.
    async fn make(
        &self,
        pushes: &SharedPushes,
        repositories: &Repositories,
        name: &RepoName,
        branch: &RefName,
    ) -> Result<RepoDir> {
        if repositories.find(name).is_err() {
            // A push that was under way when a repository of that name was removed may have left something.
            pushes.repo_remove(name.as_str()).await?;
        }
        let dir = match repositories.create(name, branch).await {
            Err(error @ Error::Exists { .. }) => {
                match unanswered(pushes, repositories, name, branch).await? {
                    Some(dir) => dir,
                    None => return Err(gateway::failure(&error)),
                }
            }
            made => made.map_err(|error| gateway::failure(&error))?,
        };
        // If this fails or is never reached, the first push enters it.
        pushes
            .repo_put(RepoSpec { name: name.as_str().to_owned(), default_branch: branch.as_str().to_owned() })
            .await?;
        Ok(dir)
    }
}

/// A repository whose maker died before it could answer: it is whole, but nobody has entered it and nothing was pushed.
async fn unanswered(
    pushes: &SharedPushes,
    repositories: &Repositories,
    name: &RepoName,
    branch: &RefName,
) -> Result<Option<RepoDir>> {
    let Ok(dir) = repositories.find(name) else { return Ok(None) };
    if pushes.repo(name.as_str()).await?.is_some()
        || default_branch(dir.path()).as_deref() != Some(branch.as_str())
    {
        return Ok(None);
    }
    let all = RefPattern::parse("refs/*").map_err(|error| Failure::input(error.to_string()))?;
    let refs = repositories.git().local_refs(&dir, &[all]).await?;
    Ok(refs.is_empty().then_some(dir))
}

async fn list(app: &App, repositories: &Repositories) -> Result<()> {
    let stores = app.stores().await?;
    let now = stores.jobs.now().await?;
    let known = shown::known(repositories, &stores.pushes).await?;
    if app.out.json {
        let views: Vec<RepoView<'_>> =
            known.iter().map(|(name, repo)| view(name, repo.as_ref(), repositories)).collect();
        app.out.json(&views);
        return Ok(());
    }
    let mut table = output::table(&["name", "branch", "commit", "size", "last push"]);
    for (name, repo) in &known {
        let repo = repo.as_ref();
        let short = |branch: &str| branch.trim_start_matches("refs/heads/").to_owned();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row(vec![
            name.to_string(),
            or_none(repo.map(|repo| short(&repo.default_branch))),
            or_none(
                repo.and_then(|repo| repo.default_oid.as_ref()).map(|oid| oid.chars().take(10).collect()),
            ),
            or_none(repo.and_then(|repo| repo.size).map(|size| size::words(size.bytes))),
            or_none(repo.and_then(|repo| repo.pushed_at).map(|at| output::when(at, now))),
        ]);
    }
    app.out.table(&table, "no repositories; 'stargate repo create NAME' makes one");
    Ok(())
}

fn view<'a>(name: &'a RepoName, repo: Option<&'a Repo>, repositories: &Repositories) -> RepoView<'a> {
    RepoView {
        name: name.as_str(),
        path: repositories.find(name).ok().map(|dir| dir.path().display().to_string()),
        default_branch: repo.map(|repo| repo.default_branch.as_str()),
        default_oid: repo.and_then(|repo| repo.default_oid.as_deref()),
        bytes: repo.and_then(|repo| repo.size).map(|size| size.bytes),
        objects: repo.and_then(|repo| repo.size).map(|size| size.objects),
        pushed_at: repo.and_then(|repo| repo.pushed_at),
    }
}

impl Remove {
    async fn run(&self, app: &App, repositories: &Repositories) -> Result<()> {
        let name = name(&self.name)?;
        let stores = app.stores().await?;
        let work = async {
            let trash = repositories.remove(&name).map_err(|error| gateway::failure(&error))?;
            stores.pushes.repo_remove(name.as_str()).await?;
            Ok::<_, Failure>(trash)
        };
        let trash = audited(&stores.audit, "repo.remove", &name, serde_json::Value::Null, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "name": name.as_str(), "trash": trash })),
            false => app.out.line(format!("{name} is out of service; it lies in {}", trash.display())),
        }
        Ok(())
    }
}
