//! The one place of a soak that lets time pass: between strikes, and before a client tries again.

use std::time::Duration;

/// Lets so much time pass.
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
