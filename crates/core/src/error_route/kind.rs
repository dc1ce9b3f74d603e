//! The kinds of failures: what a router, a configuration and a skill's file know a failure by. The codes of outcomes are finer.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Status};

/// The kind of a failed run of a skill [S3 4.3].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A site refused the page: 401, 402, 403 and 451.
    #[serde(rename = "http_403")]
    Http403,
    /// A site has no such page: 404 and 410.
    #[serde(rename = "http_404")]
    Http404,
    /// A site or service takes no more requests for now.
    #[serde(rename = "http_429")]
    Http429,
    /// A site answered with another error, or did not answer.
    #[serde(rename = "http_error")]
    HttpError,
    /// There was no result in time.
    Timeout,
    /// The result could not be read.
    ParseError,
    /// There was nothing to find.
    EmptyResult,
    /// A guard refused an address.
    SsrfBlocked,
    /// A guard, a rule or a setting refused the run.
    Refused,
    /// The arguments do not fit.
    Validation,
    /// What the arguments name does not exist.
    NotFound,
    /// What the arguments name has changed or exists already.
    Conflict,
    /// The skill failed too often and is not run for now.
    BreakerOpen,
    /// The skill panicked, or its program ended abnormally.
    Crashed,
    /// The run was cancelled.
    Cancelled,
    /// The run was started, and it is not known whether it took effect.
    UnknownEffect,
    /// The request or its result is too large for the model.
    ContextOverflow,
    /// Something that the skill needs is not available for now.
    Unavailable,
    /// Any other failure.
    Other,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 19] = [
        Self::Http403,
        Self::Http404,
        Self::Http429,
        Self::HttpError,
        Self::Timeout,
        Self::ParseError,
        Self::EmptyResult,
        Self::SsrfBlocked,
        Self::Refused,
        Self::Validation,
        Self::NotFound,
        Self::Conflict,
        Self::BreakerOpen,
        Self::Crashed,
        Self::Cancelled,
        Self::UnknownEffect,
        Self::ContextOverflow,
        Self::Unavailable,
        Self::Other,
    ];

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http403 => "http_403",
            Self::Http404 => "http_404",
            Self::Http429 => "http_429",
            Self::HttpError => "http_error",
            Self::Timeout => "timeout",
            Self::ParseError => "parse_error",
            Self::EmptyResult => "empty_result",
            Self::SsrfBlocked => "ssrf_blocked",
            Self::Refused => "refused",
            Self::Validation => "validation",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::BreakerOpen => "breaker_open",
            Self::Crashed => "crashed",
            Self::Cancelled => "cancelled",
            Self::UnknownEffect => "unknown_effect",
            Self::ContextOverflow => "context_overflow",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The kind of a failure; `None` if the run did not fail.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.status {
            Status::Success | Status::Partial | Status::Pending => None,
            Status::Unknown => Some(Self::UnknownEffect),
            Status::ErrorBlocked => Some(match outcome.error_type.as_deref() {
                Some("ssrf" | "ssrf_blocked") => Self::SsrfBlocked,
                _ => Self::Refused,
            }),
            Status::ErrorTransient | Status::ErrorPermanent => {
                Some(Self::of_code(outcome.error_type.as_deref().unwrap_or_default()))
            }
        }
    }

    /// The kind of an error code. Codes of sites have the prefix `site_`, so that they do not count against the skill.
    fn of_code(code: &str) -> Self {
        let status = code.strip_prefix("site_").or_else(|| code.strip_prefix("http_"));
        if let Some(status) = status.and_then(|status| status.parse::<u16>().ok()) {
            return match status {
                401 | 402 | 403 | 451 => Self::Http403,
                404 | 410 => Self::Http404,
                425 | 429 => Self::Http429,
                408 | 504 => Self::Timeout,
                413 | 414 => Self::ContextOverflow,
                _ => Self::HttpError,
            };
        }
        match code {
            "timeout" | "site_timeout" => Self::Timeout,
            "rate_limited" => Self::Http429,
            "parse_error" | "mcp_input_required" => Self::ParseError,
            "empty_result" => Self::EmptyResult,
            "invalid_arguments" | "unknown_skill" | "validation" => Self::Validation,
            "not_found" => Self::NotFound,
            "conflict" => Self::Conflict,
            "breaker_open" | "overloaded" => Self::BreakerOpen,
            "panic" | "broke_off" | "crashed" | "program_failed" => Self::Crashed,
            "cancelled" => Self::Cancelled,
            "refused" | "io_denied" => Self::Refused,
            "too_large" | "context_overflow" => Self::ContextOverflow,
            "io"
            | "disk_full"
            | "unreachable"
            | "not_started"
            | "not_spawned"
            | "breaker_unavailable"
            | "script_unavailable"
            | "store_unavailable"
            | "store_locked"
            | "store_full" => Self::Unavailable,
            code if code.starts_with("site_") || code.starts_with("http_") => Self::HttpError,
            _ => Self::Other,
        }
    }

    /// Whether the same call certainly fails again, as long as nothing else changes.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::Http403 | Self::Http404 | Self::SsrfBlocked)
    }
}
