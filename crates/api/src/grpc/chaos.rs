//! `annie.v1.Chaos`: fault injection. The authorisation table decides who may use it, and the configuration whether it is
//! available.

use annie_chaos::{Chaos, FaultLine, FaultSpec, PointLine};
use tonic::{Request, Response, Status};

use super::{Service, caller, refused, v1};
use crate::error::{ApiError, Code};

/// The request field that contains the specification.
const FIELD: &str = "spec";

impl Service {
    fn chaos(&self) -> Result<&Chaos, Status> {
        self.state.chaos.as_ref().ok_or_else(|| {
            refused(ApiError::new(Code::Unsupported, "no faults can be injected here: `[chaos] enabled` is not set"))
        })
    }
}

#[tonic::async_trait]
impl v1::chaos_server::Chaos for Service {
    async fn inject(&self, request: Request<v1::InjectRequest>) -> Result<Response<v1::InjectResponse>, Status> {
        let by = caller(&request)?.name();
        let chaos = self.chaos()?;
        let spec = spec_of(request.into_inner().spec.unwrap_or_default()).map_err(refused)?;
        tracing::warn!(by, target = %spec.target, kind = %spec.kind, "a caller injects a fault");
        let wrong = |(field, why): (&str, String)| refused(ApiError::invalid(why).at(format!("{FIELD}.{field}")));
        let fault = chaos.injector.inject(spec).map_err(wrong)?;
        Ok(Response::new(v1::InjectResponse { fault: Some(listed(fault)) }))
    }

    async fn list_faults(&self, _: Request<v1::ListFaultsRequest>) -> Result<Response<v1::ListFaultsResponse>, Status> {
        let faults = self.chaos()?.injector.list().into_iter().map(listed).collect();
        Ok(Response::new(v1::ListFaultsResponse { faults }))
    }

    async fn clear_faults(
        &self,
        request: Request<v1::ClearFaultsRequest>,
    ) -> Result<Response<v1::ClearFaultsResponse>, Status> {
        let id = Some(request.into_inner().id).filter(|id| *id > 0);
        let cleared = self.chaos()?.injector.clear(id);
        if let Some(id) = id
            && cleared == 0
        {
            return Err(refused(ApiError::not_found(&format!("fault as {id}"))));
        }
        Ok(Response::new(v1::ClearFaultsResponse { cleared: u32::try_from(cleared).unwrap_or(u32::MAX) }))
    }

    async fn points(&self, _: Request<v1::PointsRequest>) -> Result<Response<v1::PointsResponse>, Status> {
        let points = self.chaos()?.injector.points().into_iter().map(point).collect();
        Ok(Response::new(v1::PointsResponse { points }))
    }

    async fn effects(&self, request: Request<v1::EffectsRequest>) -> Result<Response<v1::EffectsResponse>, Status> {
        let effects = self.chaos()?.effects.read(&request.into_inner().prefix);
        let effects = effects.map_err(|e| refused(ApiError::internal(&format!("the effects cannot be read: {e}"))))?;
        Ok(Response::new(v1::EffectsResponse {
            total: effects.total(),
            markers: effects.by_marker.len() as u64,
            repeated: effects.repeated().into_iter().map(str::to_owned).collect(),
        }))
    }
}

fn spec_of(asked: v1::FaultSpec) -> Result<FaultSpec, ApiError> {
    let word = |field: &str| {
        let field = format!("{FIELD}.{field}");
        move |why: String| ApiError::invalid(why).at(field)
    };
    let any = |pattern: String| if pattern.is_empty() { "*".to_owned() } else { pattern };
    Ok(FaultSpec {
        target: asked.target.parse().map_err(word("target"))?,
        place: any(asked.place),
        point: any(asked.point),
        kind: asked.kind.parse().map_err(word("kind"))?,
        wait_ms: asked.wait_ms,
        by_ms: asked.by_ms,
        skip: asked.skip,
        injections_max: asked.injections_max,
        chance_permille: if asked.chance_permille == 0 { 1_000 } else { asked.chance_permille },
        seed: asked.seed,
        for_ms: asked.for_ms,
    })
}

/// The specification of a fault as a protobuf message.
pub fn to_wire(spec: FaultSpec) -> v1::FaultSpec {
    v1::FaultSpec {
        target: spec.target.to_string(),
        place: spec.place,
        point: spec.point,
        kind: spec.kind.to_string(),
        wait_ms: spec.wait_ms,
        by_ms: spec.by_ms,
        skip: spec.skip,
        injections_max: spec.injections_max,
        chance_permille: spec.chance_permille,
        seed: spec.seed,
        for_ms: spec.for_ms,
    }
}

fn listed(line: FaultLine) -> v1::ListedFault {
    let FaultLine { id, spec, passed, injected, ended } = line;
    v1::ListedFault { id, spec: Some(to_wire(spec)), passed, injected, ended }
}

fn point(line: PointLine) -> v1::FaultPoint {
    let PointLine { target, place, point, passed, injected } = line;
    v1::FaultPoint { target: target.to_string(), place, point, passed, injected }
}
