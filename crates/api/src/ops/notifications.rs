//! Notifications of a user outside of conversations, as pages.

use annie_core::{ids::TaskId, ports::Notification};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::page::{self, Page},
    auth::{KeyScope::Chat, Need::Scope},
    error::ApiError,
    grpc::v1,
    http::{extract::Args, schema},
};

/// The operations on notifications.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/notifications", Scope(Chat), list_notifications, Notices::from)
            .about("list_notifications", "chat", "List your notifications.", "notifications")
            .rpc("/annie.v1.Notifications/List", asked, listed),
    ]
}

/// A notification outside of conversations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notice {
    /// The id, after which a stream is resumed. Ids ascend, with gaps.
    pub id: u64,
    text: String,
    /// The tasks that the notification is about.
    #[schema(value_type = Vec<schema::TaskId>)]
    task_ids: Vec<TaskId>,
    /// RFC 3339.
    #[schema(format = DateTime)]
    at: String,
}

impl From<Notification> for Notice {
    fn from(notification: Notification) -> Self {
        Self {
            id: notification.id,
            text: notification.text,
            task_ids: notification.tasks,
            at: notification.at.to_string(),
        }
    }
}

/// A notification as gRPC shows it.
pub(crate) fn wire(notification: Notification) -> v1::Notification {
    v1::Notification {
        id: notification.id,
        text: notification.text,
        task_ids: notification.tasks.iter().map(ToString::to_string).collect(),
        at_us: notification.at.0,
    }
}

/// Notifications, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Notices {
    notifications: Vec<Notice>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<Page<Notification>> for Notices {
    fn from(page: Page<Notification>) -> Self {
        Self { notifications: page.rows.into_iter().map(Into::into).collect(), next: page.next }
    }
}

fn listed(page: Page<Notification>) -> v1::ListNotificationsResponse {
    let notifications = page.rows.into_iter().map(wire).collect();
    v1::ListNotificationsResponse { notifications, next: page.next.unwrap_or_default() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NoticesPage {
    /// Only notifications after this id; 0 means the beginning. `next` takes precedence.
    after: Option<u64>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked(asked: v1::ListNotificationsRequest) -> Result<Args<NoticesPage>, ApiError> {
    let v1::ListNotificationsRequest { after, limit, next } = asked;
    Ok(Args(NoticesPage { after: Some(after), next: Some(next), limit: page::text_of(limit) }))
}

async fn list_notifications(call: Call, Args(page): Args<NoticesPage>) -> Result<Page<Notification>, ApiError> {
    let limit = page::ROWS.of_text(page.limit.as_deref())?;
    let after = page::cursor(page.next.as_deref())?.or(page.after).unwrap_or(0);
    let rows = call.state.kernel.notifications(&call.caller.user, after, limit).await?;
    Ok(Page::of(rows, limit, |row| row.id))
}
