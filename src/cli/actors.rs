//! `annie actors`: the actor tree of a server.

use serde_json::{Value, json};

use super::{
    args::{Actors, OneActor, TreePage},
    client::{Client, encoded},
    console::{clipped, table, tame},
    failure::Failure,
    page,
    site::Site,
};

/// `annie actors`
///
/// # Errors
/// If no server runs, or it refuses.
pub async fn run(site: &Site, command: Actors) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        Actors::Tree(part) => tree(site, &client, &part).await,
        Actors::Show { path } => show(site, &client, &path).await,
        Actors::Stop(one) => act(site, &client, "stop", one).await,
        Actors::Kill(one) => act(site, &client, "kill", one).await,
        Actors::Restart(one) => act(site, &client, "restart", one).await,
        Actors::Crashes => crashes(site, &client).await,
    }
}

async fn tree(site: &Site, client: &Client, part: &TreePage) -> Result<(), Failure> {
    let under = encoded(part.under.as_deref().unwrap_or_default());
    let page = page::parameters(part.limit, part.next.as_deref());
    let answer = client.get(&format!("/api/v1/actors?under={under}&{page}")).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let actors: Vec<&Value> = answer["actors"].as_array().into_iter().flatten().collect();
    let rows = actors.iter().map(|actor| {
        let number = |key: &str| actor[key].as_u64().unwrap_or(0);
        let doing = match actor["current"].as_str() {
            Some(current) => format!("{current} for {} ms", number("current_ms")),
            None => String::new(),
        };
        let waiting = format!("{}/{}", number("mailbox_depth"), number("mailbox_max"));
        let incarnation = number("incarnation").to_string();
        vec![indented(&text(actor, "path")), text(actor, "kind"), incarnation, text(actor, "status"), waiting, doing]
    });
    site.console.line(&table(&["actor", "kind", "incarnation", "status", "mailbox", "doing"], rows.collect()))?;
    page::say_more(site, actors.len(), &answer);
    Ok(())
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
    let body =
        json!({"path": one.path, "incarnation": one.incarnation, "force": one.force, "reason": "the command line"});
    let answer = client.post(&format!("/api/v1/actors/{what}"), &body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
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

async fn crashes(site: &Site, client: &Client) -> Result<(), Failure> {
    let answer = client.get("/api/v1/actors/crashes").await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let crashes: Vec<&Value> = answer["crashes"].as_array().into_iter().flatten().collect();
    if crashes.is_empty() {
        site.console.say("No crashes.");
        return Ok(());
    }
    let rows = crashes.iter().map(|crash| {
        let incarnation = crash["incarnation"].as_u64().unwrap_or(0).to_string();
        vec![text(crash, "at"), text(crash, "path"), incarnation, text(crash, "reason")]
    });
    site.console.line(&table(&["at", "actor", "incarnation", "why"], rows.collect()))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
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
