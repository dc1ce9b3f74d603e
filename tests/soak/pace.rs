//! The one function of a soak that lets time pass: between disruptions, and before a client retries.

use std::time::Duration;

/// Waits for this time.
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
