//! The tables that are moved.

/// A table that is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Kind,
    Lane,
    Worker,
    LimitRule,
    LimitKey,
    Pause,
    Schedule,
    Idempotency,
    JobHistory,
    Job,
    JobEvent,
    JobParent,
    JobCancel,
    SourceLink,
    LeaderTerm,
    Repo,
    PushEvent,
    Webhook,
    WebhookOutbox,
    Token,
}

impl Table {
    /// In the order in which they are moved: what others refer to comes first.
    pub(crate) const ALL: [Self; 20] = [
        Self::Kind,
        Self::Lane,
        Self::Worker,
        Self::LimitRule,
        Self::LimitKey,
        Self::Pause,
        Self::Schedule,
        Self::Idempotency,
        Self::JobHistory,
        Self::Job,
        Self::JobEvent,
        Self::JobParent,
        Self::JobCancel,
        Self::SourceLink,
        Self::LeaderTerm,
        Self::Repo,
        Self::PushEvent,
        Self::Webhook,
        Self::WebhookOutbox,
        Self::Token,
    ];

    /// Its name in both stores.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Lane => "lane",
            Self::Worker => "worker",
            Self::LimitRule => "limit_rule",
            Self::LimitKey => "limit_key",
            Self::Pause => "pause",
            Self::Schedule => "schedule",
            Self::Idempotency => "idempotency",
            Self::JobHistory => "job_history",
            Self::Job => "job",
            Self::JobEvent => "job_event",
            Self::JobParent => "job_parent",
            Self::JobCancel => "job_cancel",
            Self::SourceLink => "source_link",
            Self::LeaderTerm => "leader_term",
            Self::Repo => "repo",
            Self::PushEvent => "push_event",
            Self::Webhook => "webhook",
            Self::WebhookOutbox => "webhook_outbox",
            Self::Token => "token",
        }
    }
}
