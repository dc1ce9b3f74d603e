//! `annie chaos`: faults on demand, and the scenarios that prove what a server survives.

mod load;
mod own;
mod run;
mod scenarios;
mod strike;

use serde_json::json;

use super::{
    args::{Chaos, Inject},
    client::Client,
    console::table,
    failure::{Exit, Failure},
    site::Site,
};
use crate::{
    chaos::{FaultSpec, Target},
    grpc::{chaos::said, v1},
};

type Stub = v1::chaos_client::ChaosClient<tonic::transport::Channel>;

/// `annie chaos`
///
/// # Errors
/// If no server runs, it was not started for that, or a run finds something lost, doubled or repeated.
pub async fn run(site: &Site, command: Chaos) -> Result<(), Failure> {
    match command {
        Chaos::Run(wish) => run::run(site, wish).await,
        Chaos::Points { text } => points(site, text.as_deref().unwrap_or_default()).await,
        Chaos::Inject(wish) => inject(site, wish).await,
        Chaos::List => list(site).await,
        Chaos::Clear { id } => {
            let cleared = Door::of(&site.running().await?)?.clear(id.unwrap_or(0)).await?;
            if site.console.is_json() {
                return site.console.json(&json!({"cleared": cleared}));
            }
            site.console.line(&format!("{cleared} fault(s) taken off the list"))
        }
        Chaos::Effects { prefix } => {
            let effects = Door::of(&site.running().await?)?.effects(&prefix).await?;
            let v1::EffectsResponse { total, markers, repeated } = effects;
            if site.console.is_json() {
                return site.console.json(&json!({"total": total, "markers": markers, "repeated": repeated}));
            }
            site.console.line(&format!("{total} effects of {markers} markers, {} repeated", repeated.len()))
        }
    }
}

/// The gRPC door to a server's faults.
#[derive(Clone)]
struct Door {
    stub: Stub,
    key: Option<tonic::metadata::AsciiMetadataValue>,
}

impl Door {
    fn of(client: &Client) -> Result<Self, Failure> {
        let wrong =
            |why: String| Failure::new(Exit::Usage, format!("{} cannot be asked over gRPC: {why}", client.url()));
        let channel =
            tonic::transport::Channel::from_shared(client.url().to_owned()).map_err(|e| wrong(e.to_string()))?;
        let key = client.key().map(|key| format!("Bearer {}", key.expose()).parse()).transpose();
        Ok(Self { stub: Stub::new(channel.connect_lazy()), key: key.map_err(|_| wrong("the key is no text".into()))? })
    }

    fn asked<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        request
    }

    async fn inject(&self, spec: FaultSpec) -> Result<v1::ListedFault, Failure> {
        let request = self.asked(v1::InjectRequest { spec: Some(said(spec)) });
        let answer = self.stub.clone().inject(request).await.map_err(|e| refused(&e))?;
        Ok(answer.into_inner().fault.unwrap_or_default())
    }

    async fn list(&self) -> Result<Vec<v1::ListedFault>, Failure> {
        let request = self.asked(v1::ListFaultsRequest {});
        Ok(self.stub.clone().list_faults(request).await.map_err(|e| refused(&e))?.into_inner().faults)
    }

    async fn clear(&self, id: u64) -> Result<u32, Failure> {
        let request = self.asked(v1::ClearFaultsRequest { id });
        Ok(self.stub.clone().clear_faults(request).await.map_err(|e| refused(&e))?.into_inner().cleared)
    }

    async fn points(&self) -> Result<Vec<v1::FaultPoint>, Failure> {
        let request = self.asked(v1::PointsRequest {});
        Ok(self.stub.clone().points(request).await.map_err(|e| refused(&e))?.into_inner().points)
    }

    async fn effects(&self, prefix: &str) -> Result<v1::EffectsResponse, Failure> {
        let request = self.asked(v1::EffectsRequest { prefix: prefix.to_owned() });
        Ok(self.stub.clone().effects(request).await.map_err(|e| refused(&e))?.into_inner())
    }
}

fn refused(status: &tonic::Status) -> Failure {
    let failure = Failure::new(exit_of(status.code()), status.message());
    match status.code() {
        tonic::Code::PermissionDenied => failure.fix("use a key with the scope admin"),
        tonic::Code::InvalidArgument if status.message().contains("[chaos]") => {
            failure.fix("start a server with ANNIE__CHAOS__ENABLED=true, one that is there to be broken")
        }
        _ => failure,
    }
}

const fn exit_of(code: tonic::Code) -> Exit {
    use tonic::Code;
    match code {
        Code::Unauthenticated | Code::PermissionDenied => Exit::Auth,
        Code::NotFound => Exit::NotFound,
        Code::InvalidArgument => Exit::Usage,
        // A connection that breaks off is told as an unknown error, too.
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => Exit::Unavailable,
        _ => Exit::Failure,
    }
}

async fn inject(site: &Site, wish: Inject) -> Result<(), Failure> {
    let word = |e: String| Failure::new(Exit::Usage, e);
    let spec = FaultSpec {
        target: wish.target.parse().map_err(word)?,
        place: wish.at,
        point: wish.point,
        deed: wish.deed.parse().map_err(word)?,
        wait_ms: wish.wait_ms,
        by_ms: wish.by_ms,
        skip: wish.skip,
        strikes_max: if wish.once { 1 } else { wish.strikes },
        chance_permille: wish.chance,
        seed: wish.seed,
        for_ms: wish.for_s.saturating_mul(1_000),
    };
    spec.check().map_err(|(field, why)| Failure::new(Exit::Usage, format!("{field}: {why}")))?;
    let is_last_word = spec.target == Target::Process;
    let fault = Door::of(&site.running().await?)?.inject(spec).await;
    let fault = match fault {
        // It did what was asked before it could say so.
        Err(failure) if is_last_word && failure.exit == Exit::Unavailable => v1::ListedFault::default(),
        other => other?,
    };
    if site.console.is_json() {
        return site.console.json(&json!({"id": fault.id}));
    }
    site.console.line(&format!("fault {} is on the list; `annie chaos clear` takes it off", fault.id))
}

async fn list(site: &Site) -> Result<(), Failure> {
    let faults = Door::of(&site.running().await?)?.list().await?;
    if site.console.is_json() {
        for fault in &faults {
            site.console.json(&shown(fault))?;
        }
        return Ok(());
    }
    if faults.is_empty() {
        site.console.say("no fault is on the list");
        return Ok(());
    }
    let rows = faults.iter().map(|fault| {
        let spec = fault.spec.clone().unwrap_or_default();
        vec![
            fault.id.to_string(),
            spec.target,
            spec.place,
            spec.point,
            spec.deed,
            strikes(fault.struck, spec.strikes_max),
            fault.passed.to_string(),
            if fault.ended { "ended" } else { "armed" }.to_owned(),
        ]
    });
    site.console.line(&table(&["id", "target", "place", "point", "deed", "struck", "passed", "state"], rows.collect()))
}

/// How often a fault struck, of how often it may: `0 of 1`, or `3` if it has no limit.
fn strikes(struck: u64, strikes_max: u64) -> String {
    if strikes_max == 0 { struck.to_string() } else { format!("{struck} of {strikes_max}") }
}

fn shown(fault: &v1::ListedFault) -> serde_json::Value {
    let spec = fault.spec.clone().unwrap_or_default();
    json!({
        "id": fault.id, "target": spec.target, "place": spec.place, "point": spec.point, "deed": spec.deed,
        "wait_ms": spec.wait_ms, "by_ms": spec.by_ms, "skip": spec.skip, "strikes_max": spec.strikes_max,
        "chance_permille": spec.chance_permille, "seed": spec.seed, "for_ms": spec.for_ms,
        "passed": fault.passed, "struck": fault.struck, "ended": fault.ended
    })
}

async fn points(site: &Site, text: &str) -> Result<(), Failure> {
    let mut points = Door::of(&site.running().await?)?.points().await?;
    points.retain(|p| text.is_empty() || [&p.target, &p.place, &p.point].iter().any(|part| part.contains(text)));
    if site.console.is_json() {
        for v1::FaultPoint { target, place, point, passed, struck } in points {
            let line = json!({"target": target, "place": place, "point": point, "passed": passed, "struck": struck});
            site.console.json(&line)?;
        }
        return Ok(());
    }
    if points.is_empty() {
        site.console.say("nothing was passed yet: send a message first");
        return Ok(());
    }
    let rows = points.into_iter().map(|p| vec![p.target, p.place, p.point, p.passed.to_string(), p.struck.to_string()]);
    site.console.line(&table(&["target", "place", "point", "passed", "struck"], rows.collect()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn fault_that_may_strike_once_is_listed_with_its_limit() {
        assert_eq!([strikes(0, 1), strikes(1, 1), strikes(3, 0)], ["0 of 1", "1 of 1", "3"]);
    }

    #[test]
    fn every_deed_stands_in_the_help_and_in_the_manual_where_it_strikes() {
        let mut cli = crate::cli::args::Cli::command();
        let chaos = cli.find_subcommand_mut("chaos").and_then(|chaos| chaos.find_subcommand_mut("inject")).unwrap();
        // Its lines are broken wherever the width wants it.
        let help = chaos.render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let manual = include_str!("../../docs/operating.md");
        for target in Target::ALL {
            let deeds: Vec<&str> = target.deeds().iter().map(|deed| deed.as_str()).collect();
            let said = format!("{target} {} ", deeds.join(", "));
            assert!(help.contains(&said), "{said} is missing in\n{help}");
            let is_row = |line: &&str| line.starts_with(&format!("| `{target}` |"));
            let row = manual.lines().find(is_row).unwrap_or_else(|| panic!("docs/operating.md has no row of {target}"));
            let wanted = format!("| `{}` |", deeds.join("`, `"));
            assert!(row.ends_with(&wanted), "docs/operating.md: {row}\nis not {wanted}");
        }
    }
}
