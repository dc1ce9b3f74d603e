//! `annie.v1.Scheduler`: the queue and the voice gate.

use tonic::{Request, Response, Status};

use super::{Service, refused, v1};
use crate::api;

#[tonic::async_trait]
impl v1::scheduler_server::Scheduler for Service {
    async fn queue(&self, _: Request<v1::QueueRequest>) -> Result<Response<v1::QueueResponse>, Status> {
        let queue = self.state.kernel.queue().await.map_err(refused)?;
        Ok(Response::new(v1::QueueResponse { queue_json: queue.to_string() }))
    }

    async fn hold_gate(&self, request: Request<v1::HoldGateRequest>) -> Result<Response<v1::HoldGateResponse>, Status> {
        let wanted = request.into_inner();
        let grant = api::hold_gate(&self.state, &wanted.backend, &wanted.holder, wanted.ttl_ms).await;
        let grant = grant.map_err(refused)?;
        Ok(Response::new(v1::HoldGateResponse { epoch: grant.epoch, until_us: grant.until.0 }))
    }

    async fn release_gate(
        &self,
        request: Request<v1::ReleaseGateRequest>,
    ) -> Result<Response<v1::ReleaseGateResponse>, Status> {
        let wanted = request.into_inner();
        let released = api::release_gate(&self.state, &wanted.backend, &wanted.holder).await.map_err(refused)?;
        Ok(Response::new(v1::ReleaseGateResponse { released }))
    }
}
