//! `annie chaos`: injects faults, and runs scenarios that check what a server survives.

mod inject;
mod load;
mod own;
mod run;
mod scenarios;

use annie_chaos::{FaultSpec, Target};
use serde_json::json;

use super::{
    args::{Chaos, Inject},
    client::Client,
    failure::{Exit, Failure},
    site::Site,
    tables::fitted,
};
use crate::grpc::{chaos::to_wire, v1};

type Stub = v1::chaos_client::ChaosClient<tonic::transport::Channel>;

/// `annie chaos`
///
/// # Errors
/// If no server runs, the server does not allow faults, or a run finds a message or effect that is lost, doubled or repeated.
pub async fn run(site: &Site, command: Chaos) -> Result<(), Failure> {
    match command {
        Chaos::Run(options) => run::run(site, options).await,
        Chaos::Points { text } => points(site, text.as_deref().unwrap_or_default()).await,
        Chaos::Inject(options) => inject(site, options).await,
        Chaos::List => list(site).await,
        Chaos::Clear { id } => {
            let cleared = FaultApi::of(&site.running().await?)?.clear(id.unwrap_or(0)).await?;
            if site.console.is_json() {
                return site.console.json(&json!({"cleared": cleared}));
            }
            site.console.line(&format!("{cleared} fault(s) removed"))
        }
        Chaos::Effects { prefix } => {
            let effects = FaultApi::of(&site.running().await?)?.effects(&prefix).await?;
            let v1::EffectsResponse { total, markers, repeated } = effects;
            if site.console.is_json() {
                return site.console.json(&json!({"total": total, "markers": markers, "repeated": repeated}));
            }
            site.console.line(&format!("{total} effects of {markers} markers, {} repeated", repeated.len()))
        }
    }
}

/// gRPC client for a server's faults.
#[derive(Clone)]
struct FaultApi {
    stub: Stub,
    key: Option<tonic::metadata::AsciiMetadataValue>,
}

impl FaultApi {
    fn of(client: &Client) -> Result<Self, Failure> {
        let wrong =
            |why: String| Failure::new(Exit::Usage, format!("{} cannot be asked over gRPC: {why}", client.url()));
        let channel =
            tonic::transport::Channel::from_shared(client.url().to_owned()).map_err(|e| wrong(e.to_string()))?;
        let key = client.key().map(|key| format!("Bearer {}", key.expose()).parse()).transpose();
        Ok(Self { stub: Stub::new(channel.connect_lazy()), key: key.map_err(|_| wrong("the key is no text".into()))? })
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        request
    }

    async fn inject(&self, spec: FaultSpec) -> Result<v1::ListedFault, Failure> {
        let request = self.request(v1::InjectRequest { spec: Some(to_wire(spec)) });
        let answer = self.stub.clone().inject(request).await.map_err(|e| refused(&e))?;
        Ok(answer.into_inner().fault.unwrap_or_default())
    }

    async fn list(&self) -> Result<Vec<v1::ListedFault>, Failure> {
        let request = self.request(v1::ListFaultsRequest {});
        Ok(self.stub.clone().list_faults(request).await.map_err(|e| refused(&e))?.into_inner().faults)
    }

    async fn clear(&self, id: u64) -> Result<u32, Failure> {
        let request = self.request(v1::ClearFaultsRequest { id });
        Ok(self.stub.clone().clear_faults(request).await.map_err(|e| refused(&e))?.into_inner().cleared)
    }

    async fn points(&self) -> Result<Vec<v1::FaultPoint>, Failure> {
        let request = self.request(v1::PointsRequest {});
        Ok(self.stub.clone().points(request).await.map_err(|e| refused(&e))?.into_inner().points)
    }

    async fn effects(&self, prefix: &str) -> Result<v1::EffectsResponse, Failure> {
        let request = self.request(v1::EffectsRequest { prefix: prefix.to_owned() });
        Ok(self.stub.clone().effects(request).await.map_err(|e| refused(&e))?.into_inner())
    }
}

fn refused(status: &tonic::Status) -> Failure {
    let failure = Failure::new(exit_of(status.code()), status.message());
    match status.code() {
        tonic::Code::PermissionDenied => failure.fix("use a key with the scope admin"),
        tonic::Code::InvalidArgument if status.message().contains("[chaos]") => {
            failure.fix("start a server for fault injection, with ANNIE__CHAOS__ENABLED=true")
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
        // An interrupted connection is also reported as `Unknown`.
        Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => Exit::Unavailable,
        _ => Exit::Failure,
    }
}

async fn inject(site: &Site, options: Inject) -> Result<(), Failure> {
    let usage = |e: String| Failure::new(Exit::Usage, e);
    let spec = FaultSpec {
        target: options.target.parse().map_err(usage)?,
        place: options.at,
        point: options.point,
        kind: options.kind.parse().map_err(usage)?,
        wait_ms: options.wait_ms,
        by_ms: options.by_ms,
        skip: options.skip,
        injections_max: if options.once { 1 } else { options.injections },
        chance_permille: options.chance,
        seed: options.seed,
        for_ms: options.for_s.saturating_mul(1_000),
    };
    spec.check_inside().map_err(|(field, why)| Failure::new(Exit::Usage, format!("{field}: {why}")))?;
    let ends_server = spec.target == Target::Process;
    let fault = FaultApi::of(&site.running().await?)?.inject(spec).await;
    let fault = match fault {
        // The fault ended the server before its reply was sent.
        Err(failure) if ends_server && failure.exit == Exit::Unavailable => v1::ListedFault::default(),
        other => other?,
    };
    if site.console.is_json() {
        return site.console.json(&json!({"id": fault.id}));
    }
    site.console.line(&format!("fault {} is injected; `annie chaos clear` removes it", fault.id))
}

async fn list(site: &Site) -> Result<(), Failure> {
    let faults = FaultApi::of(&site.running().await?)?.list().await?;
    if site.console.is_json() {
        for fault in &faults {
            site.console.json(&shown(fault))?;
        }
        return Ok(());
    }
    if faults.is_empty() {
        site.console.say("no faults");
        return Ok(());
    }
    let rows = faults.iter().map(|fault| {
        let spec = fault.spec.clone().unwrap_or_default();
        vec![
            fault.id.to_string(),
            spec.target,
            spec.place,
            spec.point,
            spec.kind,
            injections(fault.injected, spec.injections_max),
            fault.passed.to_string(),
            if fault.ended { "ended" } else { "armed" }.to_owned(),
        ]
    });
    site.console.line(&fitted(
        site.console.columns(),
        &["id", "target", "place", "point", "kind", "injected", "passed", "state"],
        rows.collect(),
    ))
}

/// How often a fault took effect and its limit: `0 of 1`, or `3` without a limit.
fn injections(injected: u64, injections_max: u64) -> String {
    if injections_max == 0 { injected.to_string() } else { format!("{injected} of {injections_max}") }
}

fn shown(fault: &v1::ListedFault) -> serde_json::Value {
    let spec = fault.spec.clone().unwrap_or_default();
    json!({
        "id": fault.id, "target": spec.target, "place": spec.place, "point": spec.point, "kind": spec.kind,
        "wait_ms": spec.wait_ms, "by_ms": spec.by_ms, "skip": spec.skip, "injections_max": spec.injections_max,
        "chance_permille": spec.chance_permille, "seed": spec.seed, "for_ms": spec.for_ms,
        "passed": fault.passed, "injected": fault.injected, "ended": fault.ended
    })
}

async fn points(site: &Site, text: &str) -> Result<(), Failure> {
    let mut points = FaultApi::of(&site.running().await?)?.points().await?;
    points.retain(|p| text.is_empty() || [&p.target, &p.place, &p.point].iter().any(|part| part.contains(text)));
    if site.console.is_json() {
        for v1::FaultPoint { target, place, point, passed, injected } in points {
            let line =
                json!({"target": target, "place": place, "point": point, "passed": passed, "injected": injected});
            site.console.json(&line)?;
        }
        return Ok(());
    }
    if points.is_empty() {
        site.console.say("no fault point was passed yet: send a message first");
        return Ok(());
    }
    let rows =
        points.into_iter().map(|p| vec![p.target, p.place, p.point, p.passed.to_string(), p.injected.to_string()]);
    site.console.line(&fitted(
        site.console.columns(),
        &["target", "place", "point", "passed", "injected"],
        rows.collect(),
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn fault_with_a_limit_is_listed_with_count_and_limit() {
        assert_eq!([injections(0, 1), injections(1, 1), injections(3, 0)], ["0 of 1", "1 of 1", "3"]);
    }

    /// A plan has the options of `annie chaos inject`, with the same names.
    #[test]
    fn inject_options_are_the_words_of_the_plan_grammar() {
        let cli = crate::cli::args::Cli::command();
        let inject = cli.find_subcommand("chaos").and_then(|chaos| chaos.find_subcommand("inject")).unwrap();
        let options: Vec<&str> =
            inject.get_arguments().filter(|arg| !arg.is_global_set()).filter_map(|arg| arg.get_long()).collect();
        let refused = "actor kill --unknown 1".parse::<FaultSpec>().unwrap_err();
        let (_, known) = refused.split_once("there are ").unwrap();
        assert_eq!(options, known.split(", ").collect::<Vec<_>>());
    }

    #[test]
    fn help_and_manual_list_every_fault_kind_of_each_target() {
        let mut cli = crate::cli::args::Cli::command();
        let chaos = cli.find_subcommand_mut("chaos").and_then(|chaos| chaos.find_subcommand_mut("inject")).unwrap();
        // The help wraps lines, so all white space is normalised.
        let help = chaos.render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let manual = include_str!("../../docs/operating.md");
        for target in Target::ALL {
            let kinds: Vec<&str> = target.kinds().iter().map(|kind| kind.as_str()).collect();
            let line = format!("{target} {} ", kinds.join(", "));
            assert!(help.contains(&line), "{line} is missing in\n{help}");
            let is_row = |line: &&str| line.starts_with(&format!("| `{target}` |"));
            let row = manual.lines().find(is_row).unwrap_or_else(|| panic!("docs/operating.md has no row of {target}"));
            let wanted = format!("| `{}` |", kinds.join("`, `"));
            assert!(row.ends_with(&wanted), "docs/operating.md: {row}\nis not {wanted}");
        }
    }
}
