//! Channels: ways to deliver final texts to users, each in one file behind core's [`annie_core::ports::Channel`].

mod webhook;

pub use webhook::{Webhook, WebhookConfig, WebhookError};
