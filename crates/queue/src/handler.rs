//! Handlers: the code that does the work of one kind, and what it is given.

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stargate_base::{ErrorClass, chain};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::job::{JobError, Json};
use crate::kind::{KindSpec, Profile};

/// Marks an attempt that did not begin; never stored.
const NOT_BEGUN: &str = "not begun";

/// What a handler answers: an optional result, or why it failed.
pub type HandlerResult = std::result::Result<Option<Json>, Failure>;

/// Does the work of one kind.
///
/// Handlers must be idempotent: a worker that dies after the work and before the record leads to another
/// execution. Most are written as an async function and registered with [`Registry::handle`].
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one execution. When [`Context::stopping`] is cancelled it should clean up and return soon; the future
    /// is dropped when it does not.
    async fn run(&self, context: Context) -> HandlerResult;
}

/// Why an execution failed, and when to try again.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What is stored and shown.
    pub error: JobError,
    /// Takes the place of the backoff delay: a server said when to come back.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure with a code of the handler's own.
    pub fn new(code: impl Into<String>, class: ErrorClass, message: impl Into<String>) -> Self {
        Self { error: JobError::new(code, class, message), retry_after: None }
    }

    /// Might succeed later: it is tried again.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new("HANDLER_ERROR", ErrorClass::RetryableTransient, message)
    }

    /// The input is wrong: failed at once.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("VALIDATION_FAILED", ErrorClass::ValidationFailure, message)
    }

    /// Needs an operator: failed at once.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new("HANDLER_FATAL", ErrorClass::Fatal, message)
    }

    /// Nothing was done, because something that is needed is not there yet: the attempt does not count and the job may
    /// be claimed again at once. Whoever answers this waits first, or the job goes round in circles.
    pub fn not_begun(message: impl Into<String>) -> Self {
        Self::new(NOT_BEGUN, ErrorClass::RetryableTransient, message)
    }

    /// Whether the attempt does not count.
    pub fn is_not_begun(&self) -> bool {
        self.error.code == NOT_BEGUN
    }

    /// With more detail than fits a line.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.error.detail = Some(detail.into());
        self
    }

    /// With the delay a server asked for.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self { error, retry_after: None }
    }
}

/// Any other error counts as transient, so that `?` works in handlers; its whole chain is kept.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::transient(chain(&error))
    }
}

/// The kinds a worker serves, each with its profile and handler.
///
/// ```
/// use stargate_queue::handler::{Failure, Registry};
/// use stargate_queue::{Profile, context::Context};
///
/// #[derive(serde::Deserialize)]
/// struct Greeting { name: String }
///
/// async fn greet(context: Context, greeting: Greeting) -> Result<String, Failure> {
///     context.progress(50).await;
///     Ok(format!("hello {}", greeting.name))
/// }
///
/// let mut registry = Registry::new();
/// registry.handle("greet", Profile::default(), greet)?;
/// # Ok::<(), stargate_queue::Error>(())
/// ```
#[derive(Default, Clone)]
pub struct Registry {
    entries: BTreeMap<Arc<str>, Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) profile: Profile,
    pub(crate) handler: Arc<dyn Handler>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

impl Registry {
    /// A registry without kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a handler for a kind. A kind can be registered once.
    pub fn register(&mut self, kind: &str, profile: Profile, handler: Arc<dyn Handler>) -> Result<()> {
        KindSpec::new(kind, &profile)?;
        if self.entries.insert(kind.into(), Entry { profile, handler }).is_some() {
            return Err(Error::invalid("kind", format!("{kind:?} has two handlers; remove one of them")));
        }
        Ok(())
    }

    /// Registers an async function with a typed payload.
    pub fn handle<F, Fut, P, R, E>(&mut self, kind: &str, profile: Profile, function: F) -> Result<()>
    where
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<R, E>> + Send + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        E: Into<Failure> + Send + 'static,
    {
        self.register(kind, profile, Arc::new(Typed { function, payload: PhantomData::<fn(P)> }))
    }

    /// Puts something around the handler of a kind; false if the kind is not registered.
    pub(crate) fn wrap(
        &mut self,
        kind: &str,
        around: impl FnOnce(Arc<dyn Handler>) -> Arc<dyn Handler>,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(kind) else { return false };
        entry.handler = around(entry.handler.clone());
        true
    }

    /// The kinds and their profiles, by name.
    pub fn profiles(&self) -> impl Iterator<Item = (&str, &Profile)> {
        self.entries.iter().map(|(kind, entry)| (kind.as_ref(), &entry.profile))
    }

    /// What the store is told about the kinds.
    pub fn specs(&self) -> Vec<KindSpec> {
        self.profiles().filter_map(|(kind, profile)| KindSpec::new(kind, profile).ok()).collect()
    }

    pub(crate) fn entries(&self) -> &BTreeMap<Arc<str>, Entry> {
        &self.entries
    }
}

/// Reads the payload, calls the function, writes the result.
struct Typed<F, P> {
    function: F,
    payload: PhantomData<fn(P)>,
}

#[async_trait]
impl<F, Fut, P, R, E> Handler for Typed<F, P>
where
    F: Fn(Context, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = std::result::Result<R, E>> + Send + 'static,
    P: DeserializeOwned + Send + 'static,
    R: Serialize + Send + 'static,
    E: Into<Failure> + Send + 'static,
{
    async fn run(&self, context: Context) -> HandlerResult {
        let payload: P = serde_json::from_str(context.payload().get()).map_err(|error| {
            Failure::new("PAYLOAD_INVALID", ErrorClass::ValidationFailure, error.to_string())
        })?;
        let answer = (self.function)(context, payload).await.map_err(Into::into)?;
        let result = serde_json::value::to_raw_value(&answer)
            .map_err(|error| Failure::fatal(format!("the result cannot be written as JSON: {error}")))?;
        // A handler that returns `()` has no result, rather than the result null.
        Ok(Some(result).filter(|json| json.get() != "null"))
    }
}
