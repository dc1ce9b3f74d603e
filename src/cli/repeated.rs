//! `--watch`: shows the same again until Ctrl-C.

use std::time::Duration;

use super::{args::Watch, console::Presses, failure::Failure, site::Site};

/// Moves the cursor to the corner of the terminal and erases what is there.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Shows something once, or with `--watch` again and again until Ctrl-C. On a terminal each time replaces the one before.
///
/// # Errors
/// As `show`.
pub async fn repeated(
    site: &Site,
    watch: Watch,
    mut show: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(seconds) = watch.watch else { return show().await };
    let mut presses = Presses::new()?;
    loop {
        if site.console.live {
            site.console.data(CLEAR)?;
        }
        show().await?;
        tokio::select! {
            () = presses.next() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
        }
    }
}
