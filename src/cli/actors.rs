//! `annie actors`: the actor tree of a server.

use serde_json::{Value, json};

use super::{
    args::{Actors, OneActor, TreePage},
    client::{Client, encoded},
    console::{clipped, tame},
    failure::Failure,
    listing::Listing,
    orders, page,
    repeated::repeated,
    site::Site,
};

pub(super) const TREE: Listing = Listing {
    command: "actors tree",
    rows: "actors",
    columns: &[
        ("actor", "path"),
        ("kind", "kind"),
        ("incarnation", "incarnation"),
        ("status", "status"),
        ("mailbox", "mailbox_depth"),
        ("doing", "current"),
    ],
};

pub(super) const CRASHES: Listing = Listing {
    command: "actors crashes",
    rows: "crashes",
    columns: &[("at", "at"), ("actor", "path"), ("incarnation", "incarnation"), ("why", "reason")],
};

const OPERATED: Listing = Listing {
    command: "actors crashes",
    rows: "operated",
    columns: &[
        ("at", "at"),
        ("end requested of", "path"),
        ("incarnation", "incarnation"),
        ("how", "operation"),
        ("by", "by"),
    ],
};

/// `annie actors`
///
/// # Errors
/// If no server runs, or it refuses.
pub async fn run(site: &Site, command: Actors) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Actors::Tree(part) => repeated(site, part.watch, async || tree(site, &client, &part).await).await,
        Actors::Show { path } => show(site, &client, &path).await,
        Actors::Stop(one) => act(site, &client, "stop", one).await,
        Actors::Kill(one) => act(site, &client, "kill", one).await,
        Actors::Restart(one) => act(site, &client, "restart", one).await,
        Actors::ResetBudget(asked) => orders::reset_budget(site, &client, &asked).await,
        Actors::Crashes => crashes(site, &client.get(CRASHES.path()).await?),
    }
}

/// The crashes, and below them the ends that operators requested.
fn crashes(site: &Site, answer: &Value) -> Result<(), Failure> {
    CRASHES.print(site, answer, "No crashes.")?;
    let has_requested = answer["operated"].as_array().is_some_and(|ends| !ends.is_empty());
    if has_requested && !site.console.is_json() { OPERATED.print(site, answer, "") } else { Ok(()) }
}

async fn tree(site: &Site, client: &Client, part: &TreePage) -> Result<(), Failure> {
    let under = encoded(part.under.as_deref().unwrap_or_default());
    let page = page::parameters(part.limit, part.next.as_deref());
    let answer = client.get(&format!("{}?under={under}&{page}", TREE.path())).await?;
    TREE.print_with(site, &answer, "no actors", |actor, key| {
        let number = |key: &str| actor[key].as_u64().unwrap_or(0);
        match key {
            "path" => Some(indented(actor[key].as_str().unwrap_or_default())),
            "mailbox_depth" => Some(format!("{}/{}", number("mailbox_depth"), number("mailbox_max"))),
            "current" => actor[key].as_str().map(|current| format!("{current} for {} ms", number("current_ms"))),
            _ => None,
        }
    })
}

/// A path as a line of a tree.
fn indented(path: &str) -> String {
    let depth = path.matches('/').count();
    match path.rsplit_once('/') {
        Some((parent, name)) if !parent.is_empty() => format!("{}{name}", ". ".repeat(depth - 1)),
        _ => path.to_owned(),
    }
}

async fn show(site: &Site, client: &Client, path: &str) -> Result<(), Failure> {
    let answer = client.get(&format!("/api/v1/actors/view?path={}", encoded(path))).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    site.console.line(&tame(&pretty(&answer["actor"])))?;
    match answer.get("view") {
        Some(view) => site.console.line(&tame(&pretty(view))),
        None => {
            site.console.say("the actor is too busy to report its state");
            Ok(())
        }
    }
}

async fn act(site: &Site, client: &Client, what: &str, one: OneActor) -> Result<(), Failure> {
    let body = json!({
        "path": one.path, "incarnation": one.incarnation, "force": one.force, "reason": one.reason, "dry_run": one.dry_run,
    });
    let answer = client.post(&format!("/api/v1/actors/{what}"), &body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    if answer["dry_run"] == true {
        return site.console.line(&orders::effect(&answer));
    }
    let incarnation = answer["actor"]["incarnation"].as_u64().unwrap_or(0);
    let done = match what {
        "kill" => "killed",
        "restart" => "restarted",
        _ => "stopped",
    };
    site.console
        .line(&format!("{done} {} (incarnation {incarnation}); see `annie actors tree`", clipped(&one.path, 200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_line_is_indented_by_path_depth() {
        assert_eq!(indented("/"), "/");
        assert_eq!(indented("/scheduler"), "/scheduler");
        assert_eq!(indented("/infra/log"), ". log");
        assert_eq!(indented("/a/b/c"), ". . c");
    }
}
